// turn-rules.ts: one message from its start to its final state, and what is refused on the way.
import { expect, test } from 'vitest'
import { append, type Ending, finish, start } from '../../src/protocol/turn-rules.ts'
import { draft, limits, message, OWNER } from './rows.ts'

const owned = { inboxSeq: 3, doneSeq: 1, owner: OWNER, epoch: 5, entrySeq: 10 }
const running = { ...owned, runningSeq: 2, starts: 1, entrySeq: 12 }
const turn = { owner: OWNER, seq: 2, starts: 1 }
const parsed = (text: string): unknown => JSON.parse(text)

test('I10 · a first start writes the turn and its message', () => {
  const starting = draft(owned, { payload: '{"a":1}' })
  expect(start(starting, OWNER, limits())).toEqual({
    outcome: 'started',
    turn,
    epoch: 5,
    entrySeq: 12,
    message: message(2, { payload: '{"a":1}' }),
    suspect: false,
  })
  expect(starting.row).toMatchObject({ runningSeq: 2, starts: 1, doneSeq: 1, retryInMs: null })
  expect(starting.entries.map(({ type, payload, attempt }) => [type, parsed(payload), attempt])).toEqual([
    ['turn_started', { process: 'P1' }, 1],
    ['message', { id: 'm-2', kind: 'message', source: 'user', payload: { a: 1 } }, 1],
  ])
})

test('I10 · a later start writes the turn and not the message again', () => {
  const starting = draft({ ...owned, starts: 1, failures: 1, retryInMs: 0 })
  expect(start(starting, OWNER, limits())).toMatchObject({ outcome: 'started', turn: { starts: 2 } })
  expect(starting.entries.map(({ type }) => type)).toEqual(['turn_started'])
})

test.each([
  ['another owner', { owner: 'P2.bbbb' }, {}, { outcome: 'lost' }],
  ['no owner', { owner: null }, {}, { outcome: 'lost' }],
  ['a running turn', { runningSeq: 2 }, {}, { outcome: 'lost' }],
  ['nothing to do', { doneSeq: 3 }, {}, { outcome: 'nothing', doneSeq: 3 }],
  ['a back-off', { starts: 1, retryInMs: 40 }, {}, { outcome: 'later', retryInMs: 40 }],
  [
    'a kind without handler',
    {},
    { runs: () => false },
    { outcome: 'unrunnable', kind: 'message', version: 1, seq: 2 },
  ],
  [
    'a newer form, although it is counted out',
    { crashes: 3, starts: 20 },
    { version: 0 },
    { outcome: 'unrunnable', kind: 'message', version: 1, seq: 2 },
  ],
  ['another suspect running', { crashes: 2, starts: 2 }, { maySuspect: () => false }, { outcome: 'suspect' }],
  ['no confirmed lock', {}, { holdsLock: () => false }, { outcome: 'unheld' }],
])('I4 · nothing starts with %s', (_what, changes, with_, expected) => {
  const starting = draft({ ...owned, ...changes })
  expect(start(starting, OWNER, limits(with_))).toEqual(expected)
  expect(starting.touched).toBe(false)
})

test('I4 · a message with one crash left is a suspect, and a limit of one crash makes none', () => {
  const suspect = start(draft({ ...owned, crashes: 2, starts: 2 }), OWNER, limits())
  expect(suspect).toMatchObject({ outcome: 'started', suspect: true })
  const fresh = start(draft(owned), OWNER, limits({ maxCrashes: 1, maySuspect: () => false }))
  expect(fresh).toMatchObject({ outcome: 'started', suspect: false })
})

test.each([
  ['stopped before it started', { stopSeq: 2 }, {}, 'stopped', 'stopped', ['message', 'turn_ended']],
  [
    'stopped during its back-off',
    { stopSeq: 2, starts: 1, retryInMs: 9e9 },
    {},
    'stopped',
    'stopped',
    ['turn_ended'],
  ],
  ['withdrawn', {}, { status: 'withdrawn' as const }, 'withdrawn', undefined, ['message', 'turn_ended']],
  [
    'withdrawn and stopped',
    { stopSeq: 2 },
    { status: 'withdrawn' as const },
    'withdrawn',
    undefined,
    ['message', 'turn_ended'],
  ],
  ['missing', {}, null, 'missing', undefined, ['turn_ended']],
  ['missing and stopped', { stopSeq: 3 }, null, 'missing', undefined, ['turn_ended']],
  ['crashed too often', { crashes: 3, starts: 3 }, {}, 'failed', 'failed', ['error', 'turn_ended']],
  ['started too often', { starts: 20 }, {}, 'failed', 'failed', ['error', 'turn_ended']],
  [
    'stopped and crashed too often',
    { stopSeq: 2, crashes: 3, starts: 3 },
    {},
    'stopped',
    'stopped',
    ['turn_ended'],
  ],
])(
  'I1 · a message that was %s gets its final state without a start',
  (_what, changes, next, as, status, entries) => {
    const skipping = draft({ ...owned, ...changes }, next)
    // Nothing that keeps a message from running keeps it from its end.
    const unable = limits({ runs: () => false, holdsLock: () => false, maySuspect: () => false })
    expect(start(skipping, OWNER, unable)).toEqual({ outcome: 'skipped', seq: 2, as, epoch: 5 })
    expect(skipping.row).toMatchObject({
      doneSeq: 2,
      runningSeq: null,
      starts: 0,
      failures: 0,
      crashes: 0,
      retryInMs: null,
    })
    expect(skipping.statuses.map(({ seq, status: written }) => [seq, written])).toEqual(
      status ? [[2, status]] : [],
    )
    expect(skipping.entries.map(({ type }) => type)).toEqual(entries)
  },
)

test('I7 · append adds entries of the turn; repeated after a lost answer it doubles nothing', () => {
  const entries = [
    { type: 'a', payload: '1' },
    { type: 'b', payload: '2' },
  ]
  const first = draft(running)
  expect(append(first, turn, entries, 12)).toEqual({ outcome: 'appended', entrySeq: 14 })
  expect(first.entries.map(({ type, seq }) => [type, seq])).toEqual([
    ['a', 2],
    ['b', 2],
  ])
  const repeated = draft(first.row)
  expect(append(repeated, turn, entries, 12)).toEqual({ outcome: 'appended', entrySeq: 14 })
  expect(repeated.touched).toBe(false)
})

const ENDINGS: Ending[] = [
  { as: 'completed', entries: [{ type: 'reply', payload: '"x"' }] },
  { as: 'stopped' },
  { as: 'handed_over' },
  { as: 'retrying', error: '{}', delayMs: 50 },
  { as: 'failed', error: '{}' },
]

test.each([
  ['another owner', { owner: 'P2.bbbb' }],
  ['no owner', { owner: null }],
  ['a later attempt of the same owner', { starts: 2 }],
  ['a later message', { doneSeq: 2, runningSeq: 3 }],
  ['no running turn', { runningSeq: null }],
])('I3 · nothing of a turn is written when the row names %s', (_what, changes) => {
  const fenced = draft({ ...running, ...changes })
  expect(append(fenced, turn, [{ type: 'a', payload: '1' }], 12)).toEqual({ outcome: 'lost' })
  for (const ending of ENDINGS) expect(finish(fenced, turn, ending, ['call-1'])).toEqual({ outcome: 'lost' })
  expect(fenced.touched).toBe(false)
})

test.each([
  [0, { doneSeq: 2, starts: 0, owner: OWNER }, undefined, ['reply', 'tool_result', 'turn_ended']],
  [1, { doneSeq: 2, starts: 0, owner: OWNER }, 'stopped', ['tool_result', 'turn_ended']],
  [2, { doneSeq: 1, starts: 1, owner: null, handovers: 1 }, undefined, ['tool_result', 'turn_ended']],
  [
    3,
    { doneSeq: 1, starts: 1, owner: OWNER, failures: 1, retryInMs: 50 },
    undefined,
    ['error', 'tool_result', 'turn_ended'],
  ],
  [4, { doneSeq: 2, starts: 0, owner: OWNER, failures: 0 }, 'failed', ['error', 'tool_result', 'turn_ended']],
] as const)(
  'I1 · ending %i commits entries, state and numbers together',
  (index, numbers, status, entries) => {
    const ending = ENDINGS[index]
    if (!ending) return expect.unreachable()
    const finishing = draft(running)
    expect(finish(finishing, turn, ending, ['call-1'])).toMatchObject({ outcome: 'finished', inboxSeq: 3 })
    expect(finishing.row).toMatchObject({ ...numbers, runningSeq: null, epoch: 5 })
    expect(finishing.entries.map(({ type }) => type)).toEqual(entries)
    expect(parsed(finishing.entries.at(-1)?.payload ?? '')).toEqual({ outcome: ending.as })
    expect(finishing.statuses.map((change) => change.status)).toEqual(status ? [status] : [])
  },
)

test('I3 · a detached handler is cut off by a new owner in the same commit', () => {
  const finishing = draft(running)
  finish(finishing, turn, { as: 'stopped', detached: true }, [], 'P1.bbbb')
  // Nothing else that is kept tells whether the handler has returned.
  expect(parsed(finishing.entries.at(-1)?.payload ?? '')).toEqual({ outcome: 'stopped', detached: true })
  expect(finishing.row).toMatchObject({ owner: 'P1.bbbb', epoch: 6, doneSeq: 2 })
  expect(finishing.entries.map(({ epoch }) => epoch)).toEqual([5])
  expect(append(draft(finishing.row), turn, [{ type: 'late', payload: '1' }], 13)).toEqual({
    outcome: 'lost',
  })
})
