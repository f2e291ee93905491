// Traps of transactions: deadlocks, lookups that miss, locks on what is not there, halves that are kept.
import { Kysely, MysqlDialect, sql } from 'kysely'
import { createPool } from 'mysql2'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type Accepted, type Client, UnavailableError } from '../../src/index.ts'
import { resolveTunables } from '../../src/base/options.ts'
import { connectMysql } from '../../src/mysql/connect.ts'
import { Inbox } from '../../src/mysql/inbox.ts'
import { toSubmission } from '../../src/session/submission.ts'
import { TO_MYSQL } from './line.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type World } from './world.ts'

let world: World
beforeEach(async () => {
  world = await openWorld()
})
afterEach(() => world.close())

const tunables = resolveTunables()

/** A client whose transactions can be held at an exact statement. */
async function clientOnLine(): Promise<{ client: Client; line: Awaited<ReturnType<World['newLine']>> }> {
  const line = await world.newLine(world.mysqlUrl)
  return { line, client: world.newClient({ mysqlTimeoutMs: 8000, enqueueTimeoutMs: 20_000 }, line.url) }
}

test('I1 · trap: transactions that create the same sessions at once do not deadlock each other', async () => {
  const troubles: unknown[] = []
  const pools = Array.from({ length: 4 }, () => connectMysql(world.mysqlUrl, { timeoutMs: 20_000 }))
  const inboxes = pools.map(
    (mysql) => new Inbox(mysql, { queueMax: 1000, onTrouble: (error) => troubles.push(error) }),
  )
  // Each round, four processes enqueue to the same new and old sessions, each in an order of its own.
  for (let round = 0; round < 20; round++) {
    const ids = Array.from({ length: 30 }, (_, at) => `${at % 3 === 0 ? 'old' : `new${round}`}-${at}`)
    const results = await Promise.all(
      inboxes.map((inbox, index) => {
        const rotated = [...ids.slice(index * 7), ...ids.slice(0, index * 7)]
        const order = index % 2 === 0 ? rotated : rotated.toReversed()
        const submissions = order.map((id) =>
          toSubmission(id, 'hello', { idempotencyKey: `${round}-${index}` }, tunables),
        )
        return inbox.accept(submissions, 20_000)
      }),
    )
    expect(results.flat().filter((result) => result instanceof Error)).toEqual([])
  }
  await Promise.all(pools.map((mysql) => mysql.close()))
  expect(troubles).toEqual([])
  expect(
    await world.rows('SELECT id FROM butler_sessions WHERE id LIKE ? AND inbox_seq <> 4', ['new%']),
  ).toEqual([])
})

test('I6 · trap: an idempotency key is looked up under the row lock, so a row committed meanwhile is not missed (PI-08)', async () => {
  const { client, line } = await clientOnLine()
  const commit = line.hold(TO_MYSQL.commit)
  const first = client.enqueue('same', 'hello', { idempotencyKey: 'key' })
  await commit.seen
  const second = world.client.enqueue('same', 'hello', { idempotencyKey: 'key' })
  await world.lockWait('same')
  commit.release()
  expect(await second).toEqual({ ...(await first), duplicate: true })
  expect((await world.row('same')).inbox_seq).toBe(1)
})

/** The application's own Kysely, with the isolation level it happens to have: REPEATABLE READ. */
const application = () =>
  new Kysely<never>({ dialect: new MysqlDialect({ pool: createPool({ uri: world.mysqlUrl }) }) })

test('I6 · trap: in a caller’s REPEATABLE READ transaction a key committed after its snapshot is not missed', async () => {
  const app = application()
  const again = await app.transaction().execute(async (trx) => {
    await trx
      .selectFrom('butler_messages' as never)
      .selectAll()
      .execute()
    await world.client.enqueue('same', 'hello', { idempotencyKey: 'key' })
    // The last of them would be refused, if it were not known.
    const options = [
      { idempotencyKey: 'new' },
      { idempotencyKey: 'key' },
      { idempotencyKey: 'key', whenBusy: 'reject' },
    ] as const
    const items = options.map((option) => ({ sessionId: 'same', message: 'hello', ...option }))
    const many = await world.client.enqueueMany(items, { trx })
    const one = await world.client.enqueue('same', 'hello', { ...options[2], trx })
    return [...many.results, one]
  })
  await app.destroy()
  expect(again).toMatchObject([
    { seq: 2, duplicate: false },
    { seq: 1, duplicate: true },
    { seq: 1, duplicate: true },
    { seq: 1, duplicate: true },
  ])
  expect((await world.row('same')).inbox_seq).toBe(2)
})

const NEIGHBOURS = ['m', 'k', 'l1', 'n', 'z', 'a']

test('I1 · trap: keys that are looked up and absent lock nothing of other sessions', async () => {
  const { client, line } = await clientOnLine()
  await world.client.enqueue('k', 'before', { idempotencyKey: 'before' })
  const commit = line.hold(TO_MYSQL.commit)
  const open = client.enqueue('l', 'hello', { idempotencyKey: 'absent' })
  await commit.seen
  const quick = world.newClient({ enqueueTimeoutMs: 4000 })
  const results = await Promise.all(
    NEIGHBOURS.map((id) =>
      quick.enqueue(id, 'hello', { idempotencyKey: 'absent' }).then(({ duplicate }) => duplicate),
    ),
  )
  expect(results).toEqual(NEIGHBOURS.map(() => false))
  commit.release()
  expect(await open).toMatchObject({ seq: 1, duplicate: false })
})

test('I1 · trap: nor do those of a caller’s open REPEATABLE READ transaction', async () => {
  const app = application()
  await world.client.enqueue('k', 'before', { idempotencyKey: 'before' })
  await app.transaction().execute(async (trx) => {
    await world.client.enqueue('l', 'hello', { idempotencyKey: 'absent', trx })
    const quick = world.newClient({ enqueueTimeoutMs: 4000 })
    for (const id of NEIGHBOURS) await quick.enqueue(id, 'hello', { idempotencyKey: 'absent' })
  })
  await app.destroy()
  expect((await world.row('l')).inbox_seq).toBe(1)
})

test('I1 · trap: one impossible row does not fail its batch', async () => {
  await world.run(`CREATE TRIGGER refuse BEFORE INSERT ON butler_messages FOR EACH ROW
    IF NEW.payload = '"impossible"' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF`)
  const sent = ['a', 'b', 'impossible', 'c', 'd'].map((payload, index) =>
    world.client.enqueue(`s${index}`, payload),
  )
  const results = await Promise.allSettled(sent)
  expect(results.map(({ status }) => status)).toEqual([
    'fulfilled',
    'fulfilled',
    'rejected',
    'fulfilled',
    'fulfilled',
  ])
  expect(await world.rows('SELECT id FROM butler_sessions ORDER BY id')).toEqual(
    ['s0', 's1', 's3', 's4'].map((id) => ({ id })),
  )
})

test('I1 · trap: one impossible entry fails its own message only, and does not hold up the turns of others', async () => {
  await world.run(`CREATE TRIGGER refuse BEFORE INSERT ON butler_entries FOR EACH ROW
    IF NEW.payload LIKE '%impossible"' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF`)
  const stage = new Stage()
  await world.worker(
    async (turn) => {
      await stage.handler(turn)
      return turn.sessionId === 's2' ? 'impossible' : 'possible'
    },
    { retryDelaysMs: [10] },
  )
  for (let index = 0; index < 5; index++) await world.client.enqueue(`s${index}`, 'wait')
  await stage.began(5)
  stage.go()
  await eventually(() => {
    stage.go()
    return world.rows('SELECT id FROM butler_sessions WHERE done_seq = 0').then(({ length }) => length === 0)
  }, 'all done')
  const failed = await world.rows('SELECT session_id, status FROM butler_messages WHERE status IS NOT NULL')
  expect(failed).toEqual([{ session_id: 's2', status: 'failed' }])
  expect(stage.turns.filter(({ sessionId }) => sessionId !== 's2')).toHaveLength(4)
})

test('I1 · trap: a lock wait that ends in 1205 keeps no half of the transaction', async () => {
  const mysql = connectMysql(world.mysqlUrl, { timeoutMs: 2000 })
  await world.client.enqueue('held', 'hello')
  const release = await world.holdRow('held')
  // Somebody looks away from the error and lets the transaction commit.
  const outcome = mysql.transaction(async (trx) => {
    await trx.updateTable('butler_messages').set({ error: 'half' }).where('session_id', '=', 'held').execute()
    await trx
      .updateTable('butler_sessions')
      .set({ stop_seq: 9 })
      .where('id', '=', 'held')
      .execute()
      .catch(() => undefined)
  })
  await expect(outcome).rejects.toSatisfy((error) => String(error).includes('Lock wait timeout'))
  await release()
  await mysql.close()
  expect(await world.rows('SELECT error FROM butler_messages')).toEqual([{ error: null }])
})

test('I1 · trap: an enqueue that meets 1205 halfway is repeated whole', async () => {
  const connection = await world.admin.getConnection()
  await connection.beginTransaction()
  const id = 'halfway'
  await connection.query(
    `INSERT INTO butler_messages (session_id, seq, id, idempotency_key, fingerprint, kind, source, payload, created_at)
     VALUES (?, 1, 'x', 'x', 'x', 'x', 'x', 'null', utc_timestamp(3))`,
    [id],
  )
  // The number is given out, then the message's own row waits, in vain.
  const troubles: unknown[] = []
  const mysql = connectMysql(world.mysqlUrl, { timeoutMs: 2000 })
  const inbox = new Inbox(mysql, { queueMax: 10, onTrouble: (error) => troubles.push(error) })
  const sent = inbox.accept([toSubmission(id, 'hello', {}, tunables)], 20_000)
  await eventually(() => troubles.length > 0, '1205')
  await connection.rollback()
  connection.release()
  expect(await sent).toMatchObject([{ seq: 1, duplicate: false }])
  expect(String(troubles[0])).toContain('Lock wait timeout')
  await mysql.close()
  expect((await world.row(id)).inbox_seq).toBe(1)
})

test('I1 · trap: a connection released with an open transaction does not swallow the next user’s rows', async () => {
  const mysql = connectMysql(world.mysqlUrl, { poolSize: 1, timeoutMs: 8000 })
  const inbox = new Inbox(mysql, { queueMax: 10, onTrouble: () => undefined })
  await inbox.accept([toSubmission('s', 'first', {}, tunables)], 8000)
  await mysql.db.connection().execute(async (connection) => {
    await sql`begin`.execute(connection)
    await connection.updateTable('butler_sessions').set({ stop_seq: 9 }).execute()
  })
  await mysql.db.updateTable('butler_messages').set({ error: 'mine' }).execute()
  // Seen from outside: what was left open is undone, what came after is there.
  expect(await world.rows('SELECT error FROM butler_messages')).toEqual([{ error: 'mine' }])
  expect((await world.row('s')).stop_seq).toBe(0)
  await mysql.close()
})

test.each(['commit', 'rollback'])(
  'I1 · trap: a connection killed at %s takes no later user’s rows with it (MY-08)',
  async (moment) => {
    const line = await world.newLine(world.mysqlUrl)
    const client = world.newClient({ mysqlPoolSize: 2, mysqlTimeoutMs: 3000 }, line.url)
    await client.enqueue('s', 'first')
    const held = line.hold(new RegExp(`${moment}$`, 'i'))
    if (moment === 'rollback') {
      await world.run(`CREATE TRIGGER refuse BEFORE INSERT ON butler_messages FOR EACH ROW
        IF NEW.payload = '"bad"' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF`)
    }
    const sent = client.enqueue('s', moment === 'rollback' ? 'bad' : 'good').catch((error: unknown) => error)
    await held.seen
    const open = await world.rows<{ id: number }>(
      `SELECT trx_mysql_thread_id AS id FROM information_schema.innodb_trx
       JOIN information_schema.processlist ON trx_mysql_thread_id = ID WHERE DB = DATABASE()`,
    )
    for (const { id } of open) await world.run(`KILL ${id}`)
    held.release()
    const outcome = await sent
    const later: Accepted[] = []
    for (const payload of ['a', 'b', 'c']) later.push(await client.enqueue('s', payload))
    const rows = await world.rows<{ seq: number; payload: string }>(
      'SELECT seq, payload FROM butler_messages ORDER BY seq',
    )
    const expected = moment === 'rollback' ? ['first', 'a', 'b', 'c'] : ['first', 'good', 'a', 'b', 'c']
    expect(rows.map(({ payload }) => JSON.parse(payload) as string)).toEqual(expected)
    expect(rows.map(({ seq }) => seq)).toEqual(expected.map((_, index) => index + 1))
    expect(outcome instanceof Error).toBe(moment === 'rollback')
    expect(outcome).not.toBeInstanceOf(UnavailableError)
  },
)
