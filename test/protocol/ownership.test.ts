// ownership.ts: who may own a session, and whose turn may be taken.
import { expect, test } from 'vitest'
import { acquire, evict, type Verdict } from '../../src/protocol/ownership.ts'
import { draft, OWNER } from './rows.ts'

const running = { inboxSeq: 2, doneSeq: 0, runningSeq: 1, owner: OWNER, epoch: 3, starts: 1 }
const turn = { owner: OWNER, seq: 1, starts: 1 }

test.each([
  ['a session without owner', { inboxSeq: 1, epoch: 3 }, { outcome: 'acquired', epoch: 4 }],
  [
    'one whose owner is between turns',
    { inboxSeq: 1, owner: OWNER, epoch: 3 },
    { outcome: 'acquired', epoch: 4 },
  ],
  ['one with nothing to do', { inboxSeq: 1, doneSeq: 1 }, { outcome: 'nothing' }],
  ['one whose turn runs', running, { outcome: 'refused', running: turn }],
  ['one that runs without an owner', { ...running, owner: null }, { outcome: 'acquired', epoch: 4 }],
])('I3 · acquiring %s', (_what, changes, expected) => {
  const acquiring = draft(changes)
  expect(acquire(acquiring, 'P2.bbbb')).toMatchObject(expected)
  const { owner, runningSeq } = acquiring.row
  const acquired = expected.outcome === 'acquired'
  expect(owner).toBe(acquired ? 'P2.bbbb' : ((changes as { owner?: string }).owner ?? null))
  expect(runningSeq).toBe(acquired ? null : ((changes as { runningSeq?: number }).runningSeq ?? null))
})

test.each([1, null])(
  'I3 · acquiring again under the same token costs no second epoch (running: %s)',
  (runningSeq) => {
    const again = draft({ ...running, runningSeq })
    expect(acquire(again, OWNER)).toMatchObject({ outcome: 'acquired', epoch: 3 })
    expect([again.touched, again.row.runningSeq]).toEqual([false, runningSeq])
  },
)

test.each<[Verdict, number]>([
  ['dead', 1],
  ['hung', 0],
  ['silent', 0],
  ['orphan', 0],
])('I4 · evicting a %s owner ends its turn, closes its calls and counts %i crashes', (verdict, crashes) => {
  const evicting = draft(running, undefined, ['call-1', 'call-2'])
  expect(evict(evicting, turn, verdict)).toEqual({ evicted: true })
  expect(evicting.row).toMatchObject({ owner: null, runningSeq: null, doneSeq: 0, starts: 1, crashes })
  expect(evicting.entries.map(({ type, callId }) => [type, callId])).toEqual([
    ['tool_result', 'call-1'],
    ['tool_result', 'call-2'],
    ['turn_ended', undefined],
  ])
})

test.each([
  ['the next message', { ...running, doneSeq: 1, runningSeq: 2 }],
  ['a later attempt', { ...running, starts: 2 }],
  ['another owner', { ...running, owner: 'P1.cccc' }],
  ['no turn', { ...running, runningSeq: null }],
])('I4 · a verdict takes nothing when the row names %s', (_what, changes) => {
  const evicting = draft(changes)
  expect(evict(evicting, turn, 'dead')).toEqual({ evicted: false })
  expect(evicting.touched).toBe(false)
})
