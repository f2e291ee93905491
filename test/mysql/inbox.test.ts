// The inbox over a real server: dense numbers whoever sends, one message per key, and a clear answer whatever happens.
import { sql } from 'kysely'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { connectMysql, type Mysql, type MysqlOptions } from '../../src/mysql/connect.ts'
import { Inbox } from '../../src/mysql/inbox.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
import type { Submission } from '../../src/protocol/intake.ts'
import { submission } from '../protocol/rows.ts'
import { freshDatabase } from '../support/services.ts'
import { wireTo } from './wire.ts'

let database: { url: string; drop: () => Promise<void> }
let mysql: Mysql
let made = 0
const closing: (() => unknown)[] = []

beforeAll(async () => {
  database = await freshDatabase()
  mysql = connectMysql(database.url, { poolSize: 20 })
  await migrateUp(mysql.db)
})
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close()
})
afterAll(async () => {
  await mysql.close()
  await database.drop()
})

const never = () => 60_000
const sessionId = () => `s-${(made += 1)}`
/** A submission of its own id in a session. */
const to = (id: string, changes: Partial<Submission> = {}) =>
  submission(`m-${(made += 1)}`, { sessionId: id, ...changes })

function open(url = database.url, options: MysqlOptions & { queueMax?: number } = {}) {
  const { queueMax = 1000, ...rest } = options
  const own = connectMysql(url, { poolSize: 4, ...rest })
  closing.push(() => own.close())
  const troubles: unknown[] = []
  return { troubles, inbox: new Inbox(own, { queueMax, onTrouble: (error) => troubles.push(error) }) }
}

async function openWire(act: Parameters<typeof wireTo>[1], timeoutMs = 1500) {
  const wire = await wireTo(database.url, act)
  closing.push(() => wire.close())
  return open(wire.url, { timeoutMs })
}

const rowOf = (id: string) =>
  mysql.db.selectFrom('butler_sessions').selectAll().where('id', '=', id).executeTakeFirstOrThrow()
const seqsOf = async (id: string) =>
  (
    await mysql.db
      .selectFrom('butler_messages')
      .select('seq')
      .where('session_id', '=', id)
      .orderBy('seq')
      .execute()
  ).map(({ seq }) => Number(seq))
const upTo = (last: number) => Array.from({ length: last }, (_, index) => index + 1)

test('I2 · calls of one moment share a transaction and get dense numbers in their order', async () => {
  let commits = 0
  const { inbox } = await openWire((text) => {
    if (/commit$/i.test(text)) commits += 1
    return 'pass'
  })
  const [a, b] = [sessionId(), sessionId()]
  const calls = upTo(40).map((n) => inbox.accept([to(n % 2 ? a : b)], never()))
  const seqs = (await Promise.all(calls)).flat().map((result) => ('seq' in result ? result.seq : result))
  expect(seqs).toEqual(upTo(40).map((n) => Math.ceil(n / 2)))
  expect(commits).toBeLessThanOrEqual(2)
})

test('I2 · many producers at once, each over connections of its own, leave no hole and no doubled number', async () => {
  const ids = [sessionId(), sessionId(), sessionId()]
  const producers = upTo(5).map(() => open())
  const results = await Promise.all(
    producers.flatMap(({ inbox }) =>
      upTo(20).map(() =>
        inbox.accept([to(ids[0] ?? ''), to(ids[2] ?? ''), to(ids[1] ?? ''), to(ids[0] ?? '')], never()),
      ),
    ),
  )
  expect(results.flat().every((result) => !(result instanceof Error))).toBe(true)
  expect(await Promise.all(ids.map(seqsOf))).toEqual([upTo(200), upTo(100), upTo(100)])
  expect(producers.flatMap(({ troubles }) => troubles)).toEqual([])
})

test('I6 · the same key is one message: in one call, in one batch, and from several producers', async () => {
  const id = sessionId()
  const one = () => to(id, { key: 'order-1' })
  const producers = upTo(4).map(() => open())
  const results = await Promise.all(
    producers.flatMap(({ inbox }) => upTo(5).map(() => inbox.accept([one(), one(), to(id)], never()))),
  )
  const keyed = results
    .flatMap(([first, second]) => [first, second])
    .map((result) => (result && 'seq' in result ? result : expect.unreachable()))
  expect(new Set(keyed.map((result) => `${result.seq} ${result.id}`)).size).toBe(1)
  expect(keyed.filter((result) => !result.duplicate)).toHaveLength(1)
  expect(await seqsOf(id)).toEqual(upTo(21))
})

test('I6 · the same key with other content conflicts with the first, also within a batch, and costs no number', async () => {
  const id = sessionId()
  const { inbox } = open()
  const other = { key: 'k', fingerprint: 'g'.repeat(43) }
  const results = await inbox.accept([to(id, { key: 'k' }), to(id, other), to(id)], never())
  expect(results).toMatchObject([{ seq: 1 }, { code: 'IDEMPOTENCY_CONFLICT' }, { seq: 2 }])
  expect(await inbox.accept([to(id, other)], never())).toMatchObject([{ code: 'IDEMPOTENCY_CONFLICT' }])
  expect(Number((await rowOf(id)).inbox_seq)).toBe(2)
})

test('I6 · keys that differ by case are two messages, and so are sessions (PE-08)', async () => {
  const { inbox } = open()
  const [lower, upper] = ['case-a', 'case-A']
  await inbox.accept([to(lower, { key: 'k' }), to(upper, { key: 'k' }), to(lower, { key: 'K' })], never())
  expect([await seqsOf(lower), await seqsOf(upper)]).toEqual([[1, 2], [1]])
})

test('I1 · what is refused leaves no hole, and a session with nothing to do does not wait', async () => {
  const id = sessionId()
  const { inbox } = open(database.url, { queueMax: 3 })
  const results = await inbox.accept(
    upTo(5).map(() => to(id)),
    never(),
  )
  expect(results.map((result) => ('seq' in result ? result.seq : result.code))).toEqual([
    1,
    2,
    3,
    'QUEUE_FULL',
    'QUEUE_FULL',
  ])
  await sql`update butler_sessions set done_seq = 3, waiting_since = null where id = ${id}`.execute(mysql.db)
  const known = await seqsOf(id)
  const { id: first } = await mysql.db
    .selectFrom('butler_messages')
    .select('id')
    .where('session_id', '=', id)
    .where('seq', '=', 1)
    .executeTakeFirstOrThrow()
  expect(await inbox.accept([to(id, { key: first })], never())).toMatchObject([{ seq: 1, duplicate: true }])
  expect(await rowOf(id)).toMatchObject({ inbox_seq: 3, waiting_since: null })
  expect(known).toEqual([1, 2, 3])
})

test.each([
  ['was committed', 'pass, then cut'],
  ['was not committed', 'swallow'],
] as const)(
  'I1 I6 · a message whose COMMIT stays unanswered is accepted once: it %s',
  async (_what, action) => {
    let armed = true
    const { inbox, troubles } = await openWire((text) => {
      if (!armed || !/commit$/i.test(text)) return 'pass'
      armed = false
      return action
    })
    const id = sessionId()
    const batch = [inbox.accept([to(id)], never()), inbox.accept([to(id, { key: 'k' }), to(id)], never())]
    expect((await Promise.all(batch)).flat()).toMatchObject(upTo(3).map((seq) => ({ seq, duplicate: false })))
    expect(await seqsOf(id)).toEqual([1, 2, 3])
    expect(troubles).toMatchObject([{ code: 'OUTCOME_UNKNOWN' }])
  },
)

test('I1 · who gives up with a COMMIT open is told so; who never got that far is told that nothing happened', async () => {
  let deaf = 'commit'
  const { inbox } = await openWire((text) => {
    if (deaf === 'all') return 'swallow'
    return /commit$/i.test(text) ? 'swallow' : 'pass'
  }, 400)
  const id = sessionId()
  await expect(inbox.accept([to(id)], 900)).rejects.toMatchObject({
    code: 'OUTCOME_UNKNOWN',
  })
  const down = open('mysql://root@127.0.0.1:1/nowhere')
  await expect(down.inbox.accept([to(id)], 300)).rejects.toMatchObject({
    code: 'MYSQL_UNAVAILABLE',
  })
  deaf = 'all'
  expect((await rowOf(id).catch(() => undefined))?.inbox_seq ?? 0).toBe(0)
})

test('I1 · one message that the database refuses does not fail its neighbours', async () => {
  const { inbox } = open()
  const [a, b] = [sessionId(), sessionId()]
  const results = await Promise.allSettled([
    inbox.accept([to(a)], never()),
    inbox.accept([to(b), to(a, { kind: 'x'.repeat(100) })], never()),
    inbox.accept([to(a)], never()),
  ])
  expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled'])
  expect([await seqsOf(a), await seqsOf(b)]).toEqual([[1, 2], []])
})

test('I8 · a session whose row somebody holds does not make the others fail', async () => {
  const { inbox, troubles } = open(database.url, { timeoutMs: 2000 })
  const [held, free, later] = [sessionId(), sessionId(), sessionId()]
  await inbox.accept([to(held)], never())
  const trx = await mysql.db.startTransaction().execute()
  closing.push(() =>
    trx
      .rollback()
      .execute()
      .catch(() => undefined),
  )
  await sql`select id from butler_sessions where id = ${held} for update`.execute(trx)
  const waiting = inbox.accept([to(held)], never())
  // One in the batch of the held one, one after it; both have to wait for its lock wait to end, not for its lock.
  const others = [free, later].map((id) => inbox.accept([to(id)], 15_000))
  expect((await Promise.all(others)).flat()).toMatchObject([{ seq: 1 }, { seq: 1 }])
  expect(troubles).not.toEqual([])
  // The row is still held.
  await sql`select 1`.execute(trx)
  await trx.rollback().execute()
  expect(await waiting).toMatchObject([{ seq: 2 }])
})

test('a batch larger than a packet may be is split', async () => {
  const { inbox } = open()
  const ids = upTo(12).map(() => sessionId())
  const payload = JSON.stringify('x'.repeat(700_000))
  const results = await Promise.all(ids.map((id) => inbox.accept([to(id, { payload })], never())))
  expect(results.flat()).toMatchObject(ids.map(() => ({ seq: 1 })))
})
