// The ledger over a real server: rules of many sessions share transactions and none of them pays for another; a lost
// answer is settled by the row, whatever became of the COMMIT.
import { sql } from 'kysely'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { connectMysql, type Mysql } from '../../src/mysql/connect.ts'
import { Inbox } from '../../src/mysql/inbox.ts'
import { Ledger, type Rule } from '../../src/mysql/ledger.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
import { stop } from '../../src/protocol/intake.ts'
import { acquire } from '../../src/protocol/ownership.ts'
import { append, finish, start, type StartedTurn } from '../../src/protocol/turn-rules.ts'
import { limits, submission } from '../protocol/rows.ts'
import { freshDatabase } from '../support/services.ts'
import { wireTo } from './wire.ts'

const OWNER = 'P1.aaaa'

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

/** Sessions with two messages each. */
async function sessions(count: number): Promise<string[]> {
  const ids = Array.from({ length: count }, () => `s-${String((made += 1)).padStart(4, '0')}`)
  const inbox = new Inbox(mysql, { queueMax: 10, onTrouble: () => undefined })
  const all = ids.flatMap((sessionId) => [1, 2].map((n) => submission(`${sessionId}-m${n}`, { sessionId })))
  await inbox.accept(all, 60_000)
  return ids
}

/** A ledger, over the wire that `act` watches if there is one. */
async function open(act?: Parameters<typeof wireTo>[1]) {
  const troubles: unknown[] = []
  if (!act) return { troubles, ledger: new Ledger(mysql, { onTrouble: (error) => troubles.push(error) }) }
  const wire = await wireTo(database.url, act)
  const own = connectMysql(wire.url, { poolSize: 8, timeoutMs: 1500 })
  closing.push(wire.close, () => own.close())
  return { troubles, ledger: new Ledger(own, { onTrouble: (error) => troubles.push(error) }) }
}

/** Holds the rows' locks in another connection until it is released. */
async function holdRows(ids: string[]): Promise<() => Promise<void>> {
  const trx = await mysql.db.startTransaction().execute()
  await trx.selectFrom('butler_sessions').select('id').where('id', 'in', ids).forUpdate().execute()
  let release: (() => Promise<void>) | undefined = async () => {
    release = undefined
    await trx.commit().execute()
  }
  closing.push(() => release?.())
  return async () => release?.()
}

const rowOf = (id: string) =>
  mysql.db.selectFrom('butler_sessions').selectAll().where('id', '=', id).executeTakeFirstOrThrow()
const entriesOf = (id: string) =>
  mysql.db
    .selectFrom('butler_entries')
    .selectAll()
    .where('session_id', '=', id)
    .orderBy('entry_seq')
    .execute()

async function started(id: string): Promise<StartedTurn> {
  const { ledger } = await open()
  await ledger.commit(id, (draft) => acquire(draft, OWNER))
  const turn = await ledger.commit(id, (draft) => start(draft, OWNER, limits()), { head: 'now' })
  if (turn?.outcome !== 'started') return expect.unreachable()
  return turn
}

/** Acts on the nth COMMIT and the chunks that follow it. */
function atCommit(...actions: ('pass' | 'swallow' | 'pass, then cut')[]) {
  let left = [...actions]
  const seen = { commits: 0 }
  const act = (text: string): 'pass' | 'swallow' | 'pass, then cut' => {
    const isCommit = /commit$/i.test(text)
    if (isCommit) seen.commits += 1
    if (left.length === 0 || (left.length === actions.length && !isCommit)) return 'pass'
    const [now = 'pass', ...rest] = left
    left = rest
    return now
  }
  return { act, seen }
}

test('rules of many sessions share a few transactions', async () => {
  const { act, seen } = atCommit()
  const { ledger } = await open(act)
  const ids = await sessions(100)
  const results = await Promise.all(ids.map((id) => ledger.commit(id, (draft) => acquire(draft, OWNER))))
  expect(results.every((result) => result?.outcome === 'acquired')).toBe(true)
  expect(seen.commits).toBeLessThanOrEqual(5)
})

test('rules of one session in one batch see each other', async () => {
  const { ledger } = await open()
  const [id = ''] = await sessions(1)
  const seen = await Promise.all(
    [1, 2, 3].map((n) =>
      ledger.commit(id, (draft) => {
        draft.add(1, { type: 'note', payload: `${n}` })
        return draft.row.entrySeq
      }),
    ),
  )
  expect(seen).toEqual([1, 2, 3])
  expect((await entriesOf(id)).map(({ payload }) => payload)).toEqual(['1', '2', '3'])
})

test('an unknown session is undefined, and its neighbours are not', async () => {
  const { ledger } = await open()
  const [id = ''] = await sessions(1)
  const rule: Rule<unknown> = (draft) => stop(draft, undefined)
  const results = await Promise.all([
    ledger.commit('nobody', rule),
    ledger.commit(id, rule),
    ledger.commit('nothing', rule),
  ])
  expect(results).toMatchObject([undefined, { through: 2 }, undefined])
})

test('I8 · sessions whose rows somebody holds never hold up the others, in one batch or one by one', async () => {
  const { ledger, troubles } = await open()
  const [a = '', b = '', free = '', other = ''] = await sessions(4)
  const release = await holdRows([a, b])
  const rule: Rule<unknown> = (draft) => acquire(draft, OWNER)
  let held = 0
  const waiting = []
  for (const id of [a, b]) {
    waiting.push(ledger.commit(id, rule).then((result) => ((held += 1), result)))
    // Each in a batch of its own: the first is under way when the second comes.
    await new Promise((resolve) => setImmediate(resolve))
  }
  expect(await ledger.commit(free, rule)).toMatchObject({ outcome: 'acquired' })
  waiting.push(ledger.commit(a, (draft) => stop(draft, 1)))
  expect(await Promise.all([ledger.commit(other, rule), ledger.commit(free, rule)])).toMatchObject([
    { outcome: 'acquired' },
    { outcome: 'acquired', epoch: 1 },
  ])
  expect([held, troubles]).toEqual([0, []])
  await release()
  expect(await Promise.all(waiting)).toMatchObject([
    { outcome: 'acquired' },
    { outcome: 'acquired' },
    { through: 1 },
  ])
})

test('I8 · one impossible change, or one rule that throws, does not fail its neighbours', async () => {
  const { ledger } = await open()
  const [a = '', b = '', c = '', d = ''] = await sessions(4)
  const note =
    (type: string): Rule<number> =>
    (draft) => {
      draft.add(1, { type, payload: '1' })
      return draft.row.entrySeq
    }
  const results = await Promise.allSettled([
    ledger.commit(a, note('note')),
    ledger.commit(b, note('x'.repeat(100))),
    ledger.commit(c, note('note')),
    ledger.commit(d, () => {
      throw new Error('a bug')
    }),
  ])
  expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled', 'rejected'])
  expect(await Promise.all([a, b, c, d].map(async (id) => (await entriesOf(id)).length))).toEqual([
    1, 0, 1, 0,
  ])
  expect(Number((await rowOf(b)).entry_seq)).toBe(0)
})

test('I1 · a deadlock is retried whole', async () => {
  const { ledger, troubles } = await open()
  const [id = '', heavy = ''] = await sessions(2)
  await started(id)
  const trx = await mysql.db.startTransaction().execute()
  closing.push(() =>
    trx
      .rollback()
      .execute()
      .catch(() => undefined),
  )
  // Much to undo, so that the ledger is the cheaper one to give up.
  const filler = Array.from(
    { length: 300 },
    (_, n) => sql`(${heavy}, ${n + 1}, 1, 1, 1, 'note', '1', utc_timestamp(3))`,
  )
  await sql`insert into butler_entries (session_id, entry_seq, seq, epoch, attempt, type, payload, created_at)
    values ${sql.join(filler)}`.execute(trx)
  await sql`select seq from butler_messages where session_id = ${id} for update`.execute(trx)
  let runs = 0
  const ended = ledger.commit(id, (draft) => {
    runs += 1
    return finish(draft, { owner: OWNER, seq: 1, starts: 1 }, { as: 'failed', error: '{}' }, [])
  })
  await vi.waitFor(
    async () => {
      const { rows } = await sql`select 1 from information_schema.innodb_trx where trx_state = 'LOCK WAIT'
      and trx_query like ${'%butler_messages%'} and trx_query not like ${'%innodb_trx%'}`.execute(mysql.db)
      expect(rows.length).toBeGreaterThan(0)
      // This view of the server's is renewed only when nobody has looked at it for 100 ms.
    },
    { timeout: 10_000, interval: 250 },
  )
  await sql`select id from butler_sessions where id = ${id} for update`.execute(trx)
  await trx.rollback().execute()
  expect(await ended).toMatchObject({ outcome: 'finished', doneSeq: 1 })
  expect(runs).toBe(2)
  expect(troubles).toMatchObject([{ errno: 1213 }])
  expect((await entriesOf(id)).map(({ type }) => type)).toEqual([
    'turn_started',
    'message',
    'error',
    'turn_ended',
  ])
})

const FINISH: Rule<unknown> = (draft) =>
  finish(
    draft,
    { owner: OWNER, seq: 1, starts: 1 },
    { as: 'completed', entries: [{ type: 'reply', payload: '"x"' }] },
    [],
  )
const ENTRIES = ['turn_started', 'message', 'reply', 'turn_ended']

test.each([
  ['was committed', ['pass, then cut'], 1],
  ['was not committed', ['swallow'], 2],
  [
    'was committed, and the next tries find no server',
    ['pass, then cut', 'pass, then cut', 'pass, then cut'],
    1,
  ],
  [
    'was committed, and so was the answer to the question',
    ['pass, then cut', 'pass', 'pass', 'pass, then cut'],
    1,
  ],
] as const)('I4 · a Finish without an answer is no fenced one: it %s', async (_what, actions, most) => {
  const [id = ''] = await sessions(1)
  await started(id)
  const { act } = atCommit(...actions)
  const { ledger, troubles } = await open(act)
  let runs = 0
  const result = await ledger.commit(id, (draft) => {
    runs += 1
    return FINISH(draft)
  })
  expect(result).toMatchObject({ outcome: 'finished', doneSeq: 1 })
  expect(runs).toBeLessThanOrEqual(most)
  expect(troubles).not.toEqual([])
  expect((await entriesOf(id)).map(({ type }) => type)).toEqual(ENTRIES)
})

test('I4 · a Start without an answer is settled by the row while producers and Stop go on', async () => {
  const [id = ''] = await sessions(1)
  const { ledger: other } = await open()
  await other.commit(id, (draft) => acquire(draft, OWNER))
  const inbox = new Inbox(mysql, { queueMax: 10, onTrouble: () => undefined })
  let between: Promise<unknown> = Promise.resolve()
  const { act } = atCommit('pass, then cut')
  const { ledger } = await open((text) => {
    const action = act(text)
    if (action === 'pass, then cut') {
      const late = submission('late', { sessionId: id })
      between = Promise.all([
        inbox.accept([late], 60_000),
        other.commit(id, (draft) => stop(draft, undefined)),
      ])
    }
    return action
  })
  const result = await ledger.commit(id, (draft) => start(draft, OWNER, limits()), { head: 'now' })
  await between
  expect(result).toMatchObject({ outcome: 'started', turn: { seq: 1, starts: 1 } })
  const row = await rowOf(id)
  expect([row.inbox_seq, row.running_seq, row.starts].map(Number)).toEqual([3, 1, 1])
  expect(Number(row.stop_seq)).toBeGreaterThanOrEqual(2)
})

test.each([
  ['was committed', 'pass, then cut'],
  ['was not committed', 'swallow'],
] as const)('I7 · an append without an answer that %s is there once', async (_what, action) => {
  const [id = ''] = await sessions(1)
  const { turn, entrySeq } = await started(id)
  const { ledger } = await open(atCommit(action).act)
  const entries = [{ type: 'note', payload: '1' }]
  const result = await ledger.commit(id, (draft) => append(draft, turn, entries, entrySeq))
  expect(result).toEqual({ outcome: 'appended', entrySeq: entrySeq + 1 })
  expect((await entriesOf(id)).map(({ type }) => type)).toEqual(['turn_started', 'message', 'note'])
})

test('I1 · a caller that gives up is told that the outcome is unknown; later calls work', async () => {
  const [id = ''] = await sessions(1)
  let deaf = true
  const { ledger } = await open(() => (deaf ? 'pass, then cut' : 'pass'))
  const giveUp = AbortSignal.timeout(300)
  const rule: Rule<unknown> = (draft) => stop(draft, undefined)
  await expect(ledger.commit(id, rule, { giveUp })).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  deaf = false
  expect(await ledger.commit(id, rule)).toMatchObject({ through: 2 })
})
