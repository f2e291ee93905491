// intake.ts: what becomes of a message, a stop and a withdrawal, decided on numbers alone.
import { expect, test } from 'vitest'
import { RefusedError } from '../../src/base/errors.ts'
import { admit, stop, stopTurn, withdraw } from '../../src/protocol/intake.ts'
import { draft, row, submission } from './rows.ts'

const earlier = { seq: 4, id: 'm-first', fingerprint: 'f'.repeat(43) }

test('I2 · an accepted message gets the next number', () => {
  const numbers = row({ inboxSeq: 6, doneSeq: 2 })
  expect(admit(numbers, submission('m-new'), undefined, 10)).toEqual({
    seq: 7,
    id: 'm-new',
    duplicate: false,
    position: 4,
  })
  expect(numbers.inboxSeq).toBe(7)
})

test('I6 · a known key answers with its first message and raises nothing', () => {
  const numbers = row({ inboxSeq: 6 })
  expect(admit(numbers, submission('m-second'), earlier, 10)).toEqual({
    seq: 4,
    id: 'm-first',
    duplicate: true,
    position: 3,
  })
  expect(numbers.inboxSeq).toBe(6)
  for (const doneSeq of [3, 4, 6])
    expect(admit(row({ inboxSeq: 6, doneSeq }), submission('m-second'), earlier, 10)).toMatchObject({
      position: 0,
    })
})

test('I6 · the repeat of a call whose answer was lost is the first call, not a duplicate', () => {
  expect(admit(row({ inboxSeq: 6 }), submission('m-first'), earlier, 10)).toMatchObject({
    seq: 4,
    duplicate: false,
  })
})

test('I6 · a known key is answered also when the session is busy or full, and with other content it conflicts', () => {
  const busy = { inboxSeq: 6, runningSeq: 1 }
  const again = submission('m-second', { whenBusy: 'reject' })
  expect(admit(row(busy), again, earlier, 1)).toMatchObject({ duplicate: true })
  const other = submission('m-second', { fingerprint: 'g'.repeat(43) })
  expect(admit(row(busy), other, earlier, 10)).toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' })
})

test.each([
  ['idle', { inboxSeq: 3, doneSeq: 3 }, true],
  ['a turn runs', { inboxSeq: 3, doneSeq: 2, runningSeq: 3 }, false],
  ['a message waits', { inboxSeq: 3, doneSeq: 2 }, false],
  ['a stopped turn still runs', { inboxSeq: 3, doneSeq: 2, runningSeq: 3, stopSeq: 3 }, false],
  ['all that waits is stopped', { inboxSeq: 3, doneSeq: 1, stopSeq: 3 }, true],
])('whenBusy reject, %s', (_what, changes, accepted) => {
  const numbers = row(changes)
  const result = admit(numbers, submission('m', { whenBusy: 'reject' }), undefined, 10)
  expect(result instanceof RefusedError ? result.code : 'accepted').toBe(
    accepted ? 'accepted' : 'SESSION_BUSY',
  )
  expect(numbers.inboxSeq).toBe(accepted ? 4 : 3)
})

test('I5 · an interrupt stops everything before itself and not itself', () => {
  const numbers = row({ inboxSeq: 6, doneSeq: 2, runningSeq: 3 })
  expect(admit(numbers, submission('m', { whenBusy: 'interrupt' }), undefined, 1)).toMatchObject({ seq: 7 })
  expect(numbers).toMatchObject({ inboxSeq: 7, stopSeq: 6 })
})

test.each([
  ['two wait', { inboxSeq: 2 }, true],
  ['one runs, one waits', { inboxSeq: 2, runningSeq: 1 }, false],
  ['two wait, both stopped', { inboxSeq: 2, stopSeq: 2 }, false],
  ['two wait, one stopped', { inboxSeq: 2, stopSeq: 1 }, false],
])('a session with a limit of two is full when %s: %s', (_what, changes, full) => {
  const result = admit(row(changes), submission('m'), undefined, 2)
  expect(result instanceof RefusedError ? result.code : 'accepted').toBe(full ? 'QUEUE_FULL' : 'accepted')
})

test.each([
  [
    'everything',
    undefined,
    { inboxSeq: 5, doneSeq: 1, runningSeq: 2 },
    { through: 5, running: 2, pending: true },
  ],
  [
    'up to a message that waits',
    3,
    { inboxSeq: 5, doneSeq: 1, runningSeq: 2 },
    { through: 3, running: 2, pending: true },
  ],
  [
    'only what is done',
    1,
    { inboxSeq: 5, doneSeq: 1, runningSeq: 2 },
    { through: 1, running: null, pending: false },
  ],
  [
    'never beyond the last message',
    99,
    { inboxSeq: 5, doneSeq: 1 },
    { through: 5, running: null, pending: true },
  ],
  ['never down', 2, { inboxSeq: 5, doneSeq: 1, stopSeq: 4 }, { through: 4, running: null, pending: true }],
  [
    'nothing in an idle session',
    undefined,
    { inboxSeq: 5, doneSeq: 5 },
    { through: 5, running: null, pending: false },
  ],
])('I5 · a stop covers %s', (_what, through, changes, expected) => {
  const stopping = draft(changes)
  expect(stop(stopping, through)).toMatchObject(expected)
  expect(stopping.row.stopSeq).toBe(expected.through)
  const again = draft(stopping.row)
  expect(stop(again, through)).toMatchObject(expected)
  expect(again.touched).toBe(false)
})

test('a deleted session cannot be stopped', () => {
  expect(stop(draft({ inboxSeq: 5, doneSeq: 5, purgeSeq: 5 }), undefined)).toBeUndefined()
})

const BETWEEN = { starts: 1, failures: 1, retryInMs: 500 }

test.each([
  ['that runs', 3, { runningSeq: 3, starts: 1 }, { stopSeq: 3, after: 2, upTo: 3, running: 3, underWay: 3 }],
  ['running', 'running', { runningSeq: 3, starts: 1 }, { stopSeq: 3, upTo: 3, running: 3, underWay: 3 }],
  ['between two attempts', 3, BETWEEN, { stopSeq: 3, running: null, underWay: 3, pending: true }],
  ['running, between two attempts', 'running', BETWEEN, { stopSeq: 3, underWay: 3, pending: true }],
  [
    'that is stopped already, as all is',
    3,
    { runningSeq: 3, starts: 1, stopSeq: 5 },
    { stopSeq: 5, upTo: 3 },
  ],
  ['that is done', 2, { runningSeq: 3, starts: 1 }, { stopSeq: 0, after: 1, upTo: 2, pending: false }],
  ['running, of which there is none', 'running', {}, { stopSeq: 0, after: 2, upTo: 2, pending: false }],
] as const)('I5 · a stop of one turn: %s', (_what, turn, changes, { stopSeq, ...expected }) => {
  const stopping = draft({ inboxSeq: 5, doneSeq: 2, ...changes })
  expect(stopTurn(stopping, turn)).toMatchObject({ through: stopSeq, ...expected })
  expect(stopping.row).toMatchObject({ stopSeq, retryInMs: null })
  const again = draft(stopping.row)
  expect(stopTurn(again, turn)).toMatchObject({ through: stopSeq, ...expected })
  expect(again.touched).toBe(false)
})

test.each([
  ['waits behind the running one', 4, { runningSeq: 3, starts: 1 }, 'not-started'],
  ['is next and has never started', 3, {}, 'not-started'],
  ['does not exist', 6, {}, 'missing'],
  ['is of a deleted life', 1, { purgeSeq: 1 }, 'missing'],
  ['is of a deleted session', 1, { doneSeq: 5, purgeSeq: 5 }, undefined],
])('I5 · a message that %s has no turn to stop', (_what, turn, changes, expected) => {
  const stopping = draft({ inboxSeq: 5, doneSeq: 2, ...changes })
  expect(stopTurn(stopping, turn)).toBe(expected)
  expect(stopping.touched).toBe(false)
})

test.each([
  ['one that waits', 4, { inboxSeq: 5, doneSeq: 2, runningSeq: 3, starts: 1 }, 'withdrawn'],
  ['the next one, never started', 3, { inboxSeq: 5, doneSeq: 2 }, 'withdrawn'],
  ['the running one', 3, { inboxSeq: 5, doneSeq: 2, runningSeq: 3, starts: 1 }, 'started'],
  ['one between two attempts', 3, { inboxSeq: 5, doneSeq: 2, starts: 1, failures: 1 }, 'started'],
  ['one that is done', 2, { inboxSeq: 5, doneSeq: 2 }, 'done'],
  ['one that does not exist', 6, { inboxSeq: 5, doneSeq: 2 }, 'missing'],
  ['one of a deleted life', 2, { inboxSeq: 5, doneSeq: 2, purgeSeq: 2 }, 'missing'],
])('withdrawing %s', (_what, seq, changes, expected) => {
  const withdrawing = draft(changes)
  expect(withdraw(withdrawing, seq)).toBe(expected)
  const marked = expected === 'withdrawn' ? [{ seq, status: 'withdrawn', error: null }] : []
  expect(withdrawing.statuses).toEqual(marked)
  // The next one waits for nobody.
  const passed = expected === 'withdrawn' && seq === 3
  expect(withdrawing.row.doneSeq).toBe(passed ? 3 : 2)
  expect(withdrawing.entries.map(({ type }) => type)).toEqual(passed ? ['message', 'turn_ended'] : [])
})
