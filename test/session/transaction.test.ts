// Messages in the caller's own transaction: they are there when it commits, and only then.
import { Kysely, MysqlDialect, sql } from 'kysely'
import { createPool, type Pool } from 'mysql2'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { eventually, failure, openHouse, signal } from './house.ts'

interface Shop {
  orders: { id: number }
}

const house = openHouse()
let pool: Pool
let db: Kysely<Shop>

beforeAll(async () => {
  pool = createPool({ uri: house.url, connectionLimit: 8 })
  db = new Kysely<Shop>({ dialect: new MysqlDialect({ pool }) })
  await sql`create table orders (id int primary key) engine = innodb`.execute(db)
})
beforeEach(() => db.deleteFrom('orders').execute())
afterAll(() => db.destroy())

const orders = async () => (await db.selectFrom('orders').selectAll().execute()).map(({ id }) => id)

test.each(['read committed', 'repeatable read', 'serializable'] as const)(
  'I1 · a message and the caller’s row are committed together, %s',
  async (level) => {
    const client = house.client()
    const id = house.sessionId()
    const ran = signal()
    await house.worker(() => ran.resolve(), { sweepMs: 300_000 })
    const sent = await db
      .transaction()
      .setIsolationLevel(level)
      .execute(async (trx) => {
        await trx.insertInto('orders').values({ id: 7 }).execute()
        const accepted = await client.enqueue(id, 'order 7', { trx, idempotencyKey: 'order-7' })
        expect(accepted).toMatchObject({ seq: 1, duplicate: false })
        await expect(client.inspect(id)).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' })
        return accepted
      })
    await sent.notify()
    await ran.promise
    expect(await orders()).toEqual([7])
    await house.settled(client, id)
  },
)

test('I1 · a rollback leaves neither message nor session, and its number is given to the next', async () => {
  const client = house.client()
  const id = house.sessionId()
  const before = await house.everything()
  const error = await failure(
    db.transaction().execute(async (trx) => {
      await trx.insertInto('orders').values({ id: 7 }).execute()
      await client.enqueue(id, 'never', { trx })
      await client.enqueueMany([{ sessionId: id, message: 'never' }], { trx })
      throw new Error('changed my mind')
    }),
  )
  expect(error).toMatchObject({ message: 'changed my mind' })
  expect(await house.everything()).toEqual(before)
  expect(await orders()).toEqual([])
  expect(await client.enqueue(id, 'x')).toMatchObject({ seq: 1 })
})

test('I8 · a forgotten notify costs a sweep, not the message (PI-02)', async () => {
  const client = house.client()
  const id = house.sessionId()
  const ran = signal()
  await house.worker(() => ran.resolve())
  await db.transaction().execute((trx) => client.enqueue(id, 'x', { trx }))
  await ran.promise
  await house.settled(client, id)
})

test('I8 · a notify before the commit, or for a rollback, or twice, does no harm', async () => {
  const client = house.client()
  const id = house.sessionId()
  const seen: unknown[] = []
  await house.worker((turn) => void seen.push(turn.message.payload))
  const sent = await db.transaction().execute(async (trx) => {
    const early = await client.enqueue(id, 'early', { trx })
    await early.notify()
    return early
  })
  await Promise.all([sent.notify(), sent.notify()])
  const { rolledBack } = await db
    .transaction()
    .execute(async (trx) => {
      throw Object.assign(new Error('no'), { rolledBack: await client.enqueue(id, 'never', { trx }) })
    })
    .catch((error: { rolledBack: { notify(): Promise<void> } }) => error)
  await rolledBack.notify()
  expect(await client.enqueue(id, 'last')).toMatchObject({ seq: 2 })
  await house.settled(client, id)
  expect(seen).toEqual(['early', 'last'])
})

test('I6 · a key committed by somebody else after the transaction’s snapshot is found, not doubled', async () => {
  const client = house.client()
  const id = house.sessionId()
  await client.enqueue(id, 'first')
  const accepted = await db
    .transaction()
    .setIsolationLevel('repeatable read')
    .execute(async (trx) => {
      await trx.selectFrom('orders').selectAll().execute()
      await sql`select count(*) from butler_messages`.execute(trx)
      await client.enqueue(id, 'x', { idempotencyKey: 'k' })
      const own = await client.enqueue(id, 'x', { trx, idempotencyKey: 'k' })
      return [own, await client.enqueue(id, 'y', { trx })]
    })
  expect(accepted).toMatchObject([
    { seq: 2, duplicate: true },
    { seq: 3, duplicate: false },
  ])
  await expect(
    db.transaction().execute((trx) => client.enqueue(id, 'z', { trx, idempotencyKey: 'k' })),
  ).rejects.toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' })
})

test('I2 · transactions and plain calls at the same time share dense numbers', async () => {
  const client = house.client()
  const id = house.sessionId()
  const calls = Array.from({ length: 24 }, (_, n) =>
    n % 2
      ? client.enqueue(id, `${n}`)
      : db.transaction().execute((trx) => client.enqueue(id, `${n}`, { trx })),
  )
  const seqs = (await Promise.all(calls)).map(({ seq }) => seq).sort((a, b) => a - b)
  expect(seqs).toEqual(Array.from({ length: 24 }, (_, n) => n + 1))
})

test('I6 · several messages in a transaction are decided one by one', async () => {
  const client = house.client()
  const id = house.sessionId()
  const sent = await db.transaction().execute((trx) =>
    client.enqueueMany(
      [
        { sessionId: id, message: '1' },
        { sessionId: id, message: '2', whenBusy: 'reject' },
        { sessionId: id, message: '3' },
      ],
      { trx },
    ),
  )
  await sent.notify()
  expect(sent.results).toMatchObject([{ seq: 1 }, { ok: false, error: { code: 'SESSION_BUSY' } }, { seq: 2 }])
})

test('a database in place of a transaction is refused, since nothing would hold the session’s row', async () => {
  const client = house.client()
  const before = await house.everything()
  await expect(client.enqueue('a', 'x', { trx: db as never })).rejects.toMatchObject({
    code: 'INVALID_ARGUMENT',
  })
  expect(await house.everything()).toEqual(before)
  // The application's pool is none of ours.
  await client.close()
  await eventually(async () => expect(await orders()).toEqual([]))
})
