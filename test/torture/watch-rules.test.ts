// The rule for watchers is seen to find what it is there to find, and nothing when all is well.
import { describe, expect, test } from 'vitest'
import type { Line } from '../support/history.ts'
import { COMPLETED, good, problemsOf, rig, SECOND, turn, world } from './made-up.ts'
import { watched } from './watch-rules.ts'

const watching = problemsOf(watched)

/** Two messages, the first one in two attempts: eight entries. */
const entries = [
  ...turn(1, 1, 10.2, 10.3, { outcome: 'retrying' }),
  ...turn(1, 2, 10.4, 10.5, COMPLETED),
  ...turn(2, 1, 10.6, 10.7, COMPLETED),
]

const line = (what: string, fields: Record<string, unknown>, at: number): Line => {
  return { ...rig, process: 'watchers', session: 'chat', name: 'w', what, fields, ns: at * SECOND }
}

type Told = Record<string, unknown> & { type: string }

/** As the watcher is given the entry of this number. */
const saw = (number: number, altered: Record<string, unknown> = {}): Told => {
  const { seq, epoch, attempt, type, step: stepKey, call: callId, text, at } = entries[number - 1]!
  const payload = JSON.parse(text) as unknown
  const own = { entry: number, seq, epoch, attempt, type, stepKey, callId, payload }
  return { type: 'entry', entry: { ...own, createdAt: new Date(at).toISOString(), ...altered } }
}
const delta = (seq: number, attempt: number, index: number): Told => ({ type: 'delta', seq, attempt, index })

/** What is wrong when a watcher that began behind `from` was given these. */
const told = (events: readonly Told[], from = 0, purged = 0) => {
  const seen = events.map((event, index) => line('saw', event, 20 + index))
  const made = world({ ...good, entries, history: [line('watches', { after: String(from) }, 19), ...seen] })
  const sessions = [{ id: 'chat', purgedEntries: purged } as (typeof made.facts.sessions)[number]]
  // What was deleted is not there any more.
  const kept = new Map([['chat', made.facts.entries.get('chat')!.filter((one) => one.entry > purged)]])
  return watching({ ...made, facts: { ...made.facts, sessions, entries: kept } })
}
const range = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => saw(from + index))

describe('I7 · watched', () => {
  test('everything once, in order, from wherever the watcher began', () => {
    expect(told(range(1, 8))).toEqual([])
    expect(told(range(5, 8), 4)).toEqual([])
    expect(told([], 8)).toEqual([])
    expect(told([saw(1), delta(1, 1, 1), ...range(2, 3), delta(1, 2, 1), ...range(4, 8)])).toEqual([])
  })

  test('it counts a case for each entry and delta', () => {
    const history = [line('watches', { after: '0' }, 19), line('saw', saw(1), 20)]
    expect(watched(world({ ...good, entries, history }))).toHaveLength(8)
  })

  test('a repeat', () => {
    expect(told([...range(1, 4), ...range(4, 8)])).toEqual([
      'chat: I7: watcher w saw entry 4 of message 1 again',
    ])
  })

  test('a gap, and an end before the end', () => {
    expect(told([...range(1, 3), ...range(5, 8)])).toEqual([
      'chat: I7: watcher w had not seen entry 4 of message 1 before entry 5 of message 1',
    ])
    expect(told(range(1, 7))).toEqual(['chat: I7: watcher w had not seen entry 8 of message 2 to its end'])
  })

  test('two in the wrong order', () => {
    expect(told([...range(1, 3), saw(5), saw(4), ...range(6, 8)])).toEqual([
      'chat: I7: watcher w had not seen entry 4 of message 1 before entry 5 of message 1',
      'chat: I7: watcher w saw entry 4 of message 1 behind entry 5',
    ])
  })

  test('an entry that is not as the database has it, or not there', () => {
    const [altered] = told([...range(1, 3), saw(4, { payload: 'other' }), ...range(5, 8)])
    expect(altered).toContain('I7: watcher w saw entry 4 of message 1 as {')
    for (const change of [{ type: 'note' }, { attempt: 3 }, { epoch: 2 }, { callId: 'c' }])
      expect(told([...range(1, 3), saw(4, change), ...range(5, 8)])).toHaveLength(1)
    expect(told([...range(1, 8), saw(8, { entry: 9 })])).toEqual([
      'chat: I7: watcher w saw entry 9 of message 2, which is not there',
    ])
  })

  test('a delta after the end of its attempt, or once a later one has begun', () => {
    const late = 'chat: I7: watcher w saw delta 1 of turn 1.1 after the end of it'
    expect(told([...range(1, 2), delta(1, 1, 1), ...range(3, 8)])).toEqual([late])
    expect(told([...range(1, 6), delta(1, 1, 1), ...range(7, 8)])).toEqual([late])
  })

  test('a delta twice', () => {
    expect(told([saw(1), delta(1, 1, 1), delta(1, 1, 2), delta(1, 1, 1), ...range(2, 8)])).toEqual([
      'chat: I7: watcher w saw delta 1 of turn 1.1 again',
    ])
  })

  test('of a deleted life only the order counts, and only a deletion lets a watcher begin again', () => {
    const resync = { type: 'resync', head: 8 }
    expect(told(range(6, 8), 0, 5)).toEqual([])
    expect(told([...range(1, 3), resync, ...range(6, 8)], 0, 5)).toEqual([])
    expect(told([...range(1, 5), ...range(5, 8)], 0, 5)).toHaveLength(1)
    expect(told([...range(1, 3), resync, ...range(4, 8)])).toEqual([
      'chat: I7: watcher w was told to begin again, and nothing had been deleted',
    ])
  })
})
