// The ledger when an answer is lost: it is settled by the row, whatever became of the COMMIT.
import { expect, test } from 'vitest'
import { Inbox } from '../../src/mysql/inbox.ts'
import type { Rule } from '../../src/mysql/ledger.ts'
import { stop, withdraw } from '../../src/protocol/intake.ts'
import { acquire } from '../../src/protocol/ownership.ts'
import { append, finish, start } from '../../src/protocol/turn-rules.ts'
import { limits, submission } from '../protocol/rows.ts'
import { atCommit, ledgerWorld, OWNER } from './ledger-world.ts'

const world = ledgerWorld()

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
  const [id = ''] = await world.sessions(1)
  await world.started(id)
  const { act } = atCommit(...actions)
  const { ledger, troubles } = await world.open(act)
  let runs = 0
  const result = await ledger.commit(id, (draft) => {
    runs += 1
    return FINISH(draft)
  })
  expect(result).toMatchObject({ outcome: 'finished', doneSeq: 1 })
  expect(runs).toBeLessThanOrEqual(most)
  expect(troubles).not.toEqual([])
  expect((await world.entriesOf(id)).map(({ type }) => type)).toEqual(ENTRIES)
})

test('I4 · a Finish without an answer is no fenced one when the next message was taken back since', async () => {
  const [id = ''] = await world.sessions(1)
  await world.started(id)
  const { ledger: other } = await world.open()
  let [isCut, isWithdrawn] = [false, false]
  let between: Promise<unknown> = Promise.resolve()
  const { act } = atCommit('pass, then cut')
  const { ledger } = await world.open((text) => {
    const action = act(text)
    if (action === 'pass, then cut') {
      isCut = true
      between = other
        .commit(id, (draft) => withdraw(draft, 2), { head: 'now' })
        .then((result) => ((isWithdrawn = true), result))
    }
    // Nobody looks at the row before that.
    return isCut && !isWithdrawn && action === 'pass' ? 'swallow' : action
  })
  expect(await ledger.commit(id, FINISH)).toMatchObject({ outcome: 'finished', doneSeq: 1 })
  expect(await between).toBe('withdrawn')
  expect(Number((await world.rowOf(id)).done_seq)).toBe(2)
})

test('I4 · a Start without an answer is settled by the row while producers and Stop go on', async () => {
  const [id = ''] = await world.sessions(1)
  const { ledger: other } = await world.open()
  await other.commit(id, (draft) => acquire(draft, OWNER))
  const inbox = new Inbox(world.mysql, { queueMax: 10, onTrouble: () => undefined })
  let between: Promise<unknown> = Promise.resolve()
  const { act } = atCommit('pass, then cut')
  const { ledger } = await world.open((text) => {
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
  const row = await world.rowOf(id)
  expect([row.inbox_seq, row.running_seq, row.starts].map(Number)).toEqual([3, 1, 1])
  expect(Number(row.stop_seq)).toBeGreaterThanOrEqual(2)
})

test.each([
  ['was committed', 'pass, then cut'],
  ['was not committed', 'swallow'],
] as const)('I7 · an append without an answer that %s is there once', async (_what, action) => {
  const [id = ''] = await world.sessions(1)
  const { turn, entrySeq } = await world.started(id)
  const { ledger } = await world.open(atCommit(action).act)
  const entries = [{ type: 'note', payload: '1' }]
  const result = await ledger.commit(id, (draft) => append(draft, turn, entries, entrySeq))
  expect(result).toEqual({ outcome: 'appended', entrySeq: entrySeq + 1 })
  expect((await world.entriesOf(id)).map(({ type }) => type)).toEqual(['turn_started', 'message', 'note'])
})

test('I1 · a caller that gives up is told that the outcome is unknown; later calls work', async () => {
  const [id = ''] = await world.sessions(1)
  let deaf = true
  const { ledger } = await world.open(() => (deaf ? 'pass, then cut' : 'pass'))
  const giveUp = AbortSignal.timeout(300)
  const rule: Rule<unknown> = (draft) => stop(draft, undefined)
  await expect(ledger.commit(id, rule, { giveUp })).rejects.toMatchObject({ code: 'OUTCOME_UNKNOWN' })
  deaf = false
  expect(await ledger.commit(id, rule)).toMatchObject({ through: 2 })
})
