// Each rule of the judge is seen to find what it is there to find in a made-up race, and nothing in a good one.
import { expect, test } from 'vitest'
import type { StopOutcome, StopReceipt } from '../../src/index.ts'
import type { Line } from '../support/history.ts'
import { type Entry, type Evidence, judge } from './judge.ts'
import type { SentCall, StopCall } from './race.ts'

const entry = (number: number, seq: number, type: string, more: Partial<Entry> = {}): Entry => ({
  entry: number,
  seq,
  attempt: type === 'turn_started' ? 1 : 0,
  type,
  ...more,
})
const started = (number: number, seq: number, attempt = 1) => entry(number, seq, 'turn_started', { attempt })
const ended = (number: number, seq: number, outcome: string, attempt = 1, more: Partial<Entry> = {}) =>
  entry(number, seq, 'turn_ended', { attempt, outcome, ...more })
const sent = (seq: number, from: number, more: Partial<SentCall> = {}): SentCall => {
  return { seq, position: 0, from, to: from + 1, ...more }
}
const outcome = (seq: number, what: StopOutcome['outcome']): StopOutcome => ({ seq, outcome: what, ms: 1 })
const line = (what: string, seq: number, ns: number, attempt = 1): Line => {
  return { what, session: 's', seq, attempt, ns, pid: 1, process: 'P' }
}
const receipt = (more: Partial<StopReceipt> = {}): StopReceipt => {
  return {
    through: 2,
    running: 1,
    quiet: true,
    outcomes: [outcome(1, 'aborted'), outcome(2, 'never-started')],
    ...more,
  }
}
const stop = (more: Partial<StopCall> = {}): StopCall => {
  return { asked: { waitMs: 1000 }, from: 20, to: 30, head: 4, receipt: receipt(), ...more }
}

/** 1 runs, 2 waits behind it; both are stopped, and 3 comes afterwards. */
const GOOD: Evidence = {
  race: {
    session: 's',
    sent: [sent(1, 10), sent(2, 12), sent(3, 40)],
    stops: [stop()],
    refused: [],
    unknown: [],
  },
  entries: [
    started(1, 1),
    entry(2, 1, 'message', { attempt: 1 }),
    ended(3, 1, 'stopped'),
    entry(4, 2, 'message'),
    ended(5, 2, 'stopped', 0),
    started(6, 3),
    entry(7, 3, 'message', { attempt: 1 }),
    ended(8, 3, 'completed'),
  ],
  states: new Map([
    [1, 'stopped'],
    [2, 'stopped'],
    [3, 'completed'],
  ]),
  lines: [line('start', 1, 15), line('abort', 1, 25), line('start', 3, 45), line('end', 3, 46)],
}

const rulesOf = (evidence: Evidence) => [...new Set(judge(evidence).map(({ rule }) => rule))]
const withStop = (more: Partial<StopCall>, changes: Partial<Evidence> = {}): Evidence => {
  return { ...GOOD, ...changes, race: { ...GOOD.race, stops: [stop(more)] } }
}
const states = (...list: string[]) => new Map(list.map((state, index) => [index + 1, state]))
const replaced = (number: number, ...instead: Entry[]) =>
  GOOD.entries.flatMap((one) => (one.entry === number ? instead : [one]))

test('a good race is good', () => expect(judge(GOOD)).toEqual([]))

test('a message without an end, or with two that differ, is not finished', () => {
  expect(rulesOf({ ...GOOD, states: states('stopped', 'stopped', 'open') })).toEqual(['unfinished'])
  expect(rulesOf({ ...GOOD, states: states('stopped', 'stopped', 'failed') })).toEqual(['unfinished'])
  expect(rulesOf({ ...GOOD, states: states('stopped', 'stopped') })).toEqual(['unfinished'])
})

test('a turn below a tombstone that begins after the stop had returned has run although it was stopped', () => {
  // Whatever becomes of it afterwards.
  const late = [started(5, 2), ended(5.5, 2, 'stopped')]
  const early = withStop({ head: 5, receipt: receipt({ outcomes: [outcome(1, 'aborted')] }) })
  expect(rulesOf({ ...early, entries: replaced(5, ...late) })).toEqual([])
  expect(rulesOf({ ...GOOD, entries: replaced(5, ...late) })).toContain('stoppedButRan')
  // Also by an interrupt, and of a message that had run before.
  const [one, two, three] = GOOD.race.sent as [SentCall, SentCall, SentCall]
  const interrupt = { ...three, interrupt: { head: 4 } }
  const race = { ...GOOD.race, stops: [], sent: [one, two, interrupt] }
  expect(rulesOf({ ...GOOD, race })).toEqual([])
  const again = [started(5, 1, 2), ended(5.1, 1, 'stopped', 2), ended(5.2, 2, 'stopped', 0)]
  expect(rulesOf({ ...GOOD, race, entries: replaced(5, ...again) })).toEqual(['stoppedButRan'])
})

test('what is stopped must have been covered', () => {
  const third = {
    states: states('stopped', 'stopped', 'stopped'),
    entries: replaced(8, ended(8, 3, 'stopped')),
  }
  expect(rulesOf({ ...GOOD, ...third })).toEqual(['wronglyStopped'])
  const one = receipt({ through: 1, outcomes: [outcome(1, 'aborted')] })
  for (const asked of [{ through: 1 }, { turn: 1 }, { turn: 'running' as const }])
    expect(rulesOf(withStop({ asked, receipt: one }))).toEqual(['wronglyStopped'])
  // Its tombstone is another one's.
  expect(rulesOf(withStop({ asked: { turn: 1 }, receipt: { ...one, through: 2 } }))).toEqual([
    'wronglyStopped',
  ])
  expect(rulesOf(withStop({ asked: { through: 2 } }))).toEqual([])
})

test('no stop reaches what was sent after it had returned', () => {
  const far = withStop({ receipt: receipt({ through: 3 }) })
  expect(rulesOf({ ...far, entries: GOOD.entries })).toContain('wronglyStopped')
})

test('a stop of everything reaches whatever had been accepted before it', () => {
  const one = receipt({ through: 1, outcomes: [outcome(1, 'aborted')] })
  expect(rulesOf(withStop({ receipt: one }))).toContain('missed')
})

test('a receipt that the transcript contradicts is wrong', () => {
  const says = (first: StopOutcome['outcome'], changes: Partial<Evidence> = {}) =>
    rulesOf(
      withStop(
        { receipt: receipt({ outcomes: [outcome(1, first)], quiet: first !== 'stopping' }), head: 5 },
        changes,
      ),
    )
  const end = (what: string, more: Partial<Entry> = {}) => ({
    entries: replaced(3, ended(3, 1, what, 1, more)),
    states: states(what, 'stopped', 'completed'),
  })
  const lost = { entries: replaced(3, ended(3, 1, 'lost'), ended(3.5, 1, 'stopped')) }
  expect(says('aborted')).toEqual([])
  expect(says('never-started')).toEqual(['wrongReceipt'])
  expect(says('fenced')).toEqual(['wrongReceipt'])
  expect(says('already-done')).toEqual(['wrongReceipt'])
  expect(says('stopping')).toEqual([])
  expect(says('aborted', end('completed'))).toEqual(['wrongReceipt'])
  expect(says('already-done', end('completed'))).toEqual([])
  expect(says('aborted', end('stopped', { detached: true }))).toEqual(['wrongReceipt'])
  expect(says('fenced', end('stopped', { detached: true }))).toEqual([])
  expect(says('aborted', lost)).toEqual(['wrongReceipt'])
  expect(says('fenced', lost)).toEqual([])
  const neverRan = { entries: GOOD.entries.filter(({ entry: n }) => n !== 1) }
  expect(says('aborted', neverRan)).toContain('wrongReceipt')
  expect(says('stopping', neverRan)).toContain('wrongReceipt')
  // Somebody else had stopped it before.
  const twice = withStop({ receipt: receipt({ outcomes: [outcome(1, 'already-done')] }) })
  expect(
    rulesOf({ ...twice, race: { ...twice.race, stops: [...twice.race.stops, stop({ from: 5 })] } }),
  ).toEqual([])
})

test('a receipt that contradicts itself is wrong', () => {
  expect(rulesOf(withStop({ receipt: receipt({ quiet: false }) }))).toEqual(['wrongReceipt'])
  expect(rulesOf(withStop({ receipt: receipt({ running: 2, outcomes: [outcome(1, 'aborted')] }) }))).toEqual([
    'wrongReceipt',
  ])
})

test('a handler that goes on, or writes, after it was said to be quiet was not', () => {
  expect(rulesOf({ ...GOOD, lines: [line('start', 1, 15), line('abort', 1, 31)] })).toEqual(['notQuiet'])
  expect(rulesOf({ ...GOOD, lines: [line('start', 1, 15)] })).toEqual(['notQuiet'])
  // It was stopped before it was called.
  expect(rulesOf({ ...GOOD, lines: [] })).toEqual([])
  expect(
    rulesOf({ ...GOOD, entries: replaced(5, entry(5, 1, 'reply'), ended(5.5, 2, 'stopped', 0)) }),
  ).toEqual(['notQuiet'])
})

test('a position is below the number', () => {
  const [one, two, three] = GOOD.race.sent as [SentCall, SentCall, SentCall]
  const race = { ...GOOD.race, sent: [one, { ...two, position: 2 }, three] }
  expect(rulesOf({ ...GOOD, race })).toEqual(['wrongPosition'])
})
