// The ledger over a real server: rules of many sessions share transactions and none of them pays for another.
import { sql } from 'kysely'
import { expect, test, vi } from 'vitest'
import type { Rule } from '../../src/mysql/ledger.ts'
import { stop } from '../../src/protocol/intake.ts'
import { acquire, evict } from '../../src/protocol/ownership.ts'
import { append, finish, start } from '../../src/protocol/turn-rules.ts'
import { limits } from '../protocol/rows.ts'
import { atCommit, ledgerWorld, OWNER } from './ledger-world.ts'

const world = ledgerWorld()

test('rules of many sessions share a few transactions', async () => {
  const { act, seen } = atCommit()
  const { ledger } = await world.open(act)
  const ids = await world.sessions(100)
  const results = await Promise.all(ids.map((id) => ledger.commit(id, (draft) => acquire(draft, OWNER))))
  expect(results.every((result) => result?.outcome === 'acquired')).toBe(true)
  expect(seen.commits).toBeLessThanOrEqual(5)
})

test('rules of one session in one batch see each other', async () => {
  const { ledger } = await world.open()
  const [id = ''] = await world.sessions(1)
  const seen = await Promise.all(
    [1, 2, 3].map((n) =>
      ledger.commit(id, (draft) => {
        draft.add(1, { type: 'note', payload: `${n}` })
        return draft.row.entrySeq
      }),
    ),
  )
  expect(seen).toEqual([1, 2, 3])
  expect((await world.entriesOf(id)).map(({ payload }) => payload)).toEqual(['1', '2', '3'])
})

test('I4 · a rule that reads open calls sees the one that an earlier rule of the same batch has opened', async () => {
  const { ledger } = await world.open()
  const [id = ''] = await world.sessions(1)
  const { turn, entrySeq } = await world.started(id)
  const call = { type: 'tool_call', callId: 'call-1', payload: '{}' }
  await Promise.all([
    ledger.commit(id, (draft) => append(draft, turn, [call], entrySeq)),
    ledger.commit(id, (draft) => evict(draft, turn, 'dead'), { openCalls: true }),
  ])
  const entries = await world.entriesOf(id)
  expect(entries.slice(-3).map(({ type }) => type)).toEqual(['tool_call', 'tool_result', 'turn_ended'])
})

test('I8 · waiting_since is set for as long as there is work', async () => {
  const { ledger } = await world.open()
  const [id = ''] = await world.sessions(1)
  const waits = async () => (await world.rowOf(id)).waiting_since !== null
  await world.started(id)
  expect(await waits()).toBe(true)
  await ledger.commit(id, (draft) => stop(draft, undefined))
  const turn = { owner: OWNER, seq: 1, starts: 1 }
  await ledger.commit(id, (draft) => finish(draft, turn, { as: 'stopped' }, []))
  expect(await waits()).toBe(true)
  await ledger.commit(id, (draft) => start(draft, OWNER, limits()), { head: 'now' })
  expect(await waits()).toBe(false)
})

test('an unknown session is undefined, and its neighbours are not', async () => {
  const { ledger } = await world.open()
  const [id = ''] = await world.sessions(1)
  const rule: Rule<unknown> = (draft) => stop(draft, undefined)
  const results = await Promise.all([
    ledger.commit('nobody', rule),
    ledger.commit(id, rule),
    ledger.commit('nothing', rule),
  ])
  expect(results).toMatchObject([undefined, { through: 2 }, undefined])
})

test('I8 · sessions whose rows somebody holds never hold up the others, in one batch or one by one (MY-06)', async () => {
  const { ledger, troubles } = await world.open()
  const [a = '', b = '', free = '', other = ''] = await world.sessions(4)
  const release = await world.holdRows([a, b])
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
  const { ledger } = await world.open()
  const [a = '', b = '', c = '', d = ''] = await world.sessions(4)
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
  expect(await Promise.all([a, b, c, d].map(async (id) => (await world.entriesOf(id)).length))).toEqual([
    1, 0, 1, 0,
  ])
  expect(Number((await world.rowOf(b)).entry_seq)).toBe(0)
})

test('I1 · a deadlock is retried whole (MY-04)', async () => {
  const { ledger, troubles } = await world.open()
  const [id = '', heavy = ''] = await world.sessions(2)
  await world.started(id)
  const trx = await world.mysql.db.startTransaction().execute()
  world.closing.push(() =>
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
      and trx_query like ${'%butler_messages%'} and trx_query not like ${'%innodb_trx%'}`.execute(
        world.mysql.db,
      )
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
  expect((await world.entriesOf(id)).map(({ type }) => type)).toEqual([
    'turn_started',
    'message',
    'error',
    'turn_ended',
  ])
})
