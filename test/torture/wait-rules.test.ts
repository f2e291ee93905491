// Each rule is seen to find what it is there to find in a made-up history, and nothing when all is well or excused.
import { describe, expect, test } from 'vitest'
import type { Line } from '../support/history.ts'
import { COMPLETED, fault, good, problemsOf, sent, turn, world } from './made-up.ts'
import * as rules from './wait-rules.ts'

const lateness = problemsOf(rules.lateness)
const restarts = problemsOf(rules.restarts)

describe('I8 · lateness', () => {
  const late = (faults: Line[], at = 18) =>
    lateness(
      world({
        ...good,
        history: [...good.history, ...faults],
        entries: turn(1, 1, at, at + 0.1, COMPLETED),
      }),
    )

  test('a message that waited for nothing', () => {
    expect(late([])[0]).toContain('message 1 waited 7900 ms without a reason')
    expect(late(fault('script-flush', 10, 17, { gentle: true }))).toHaveLength(1)
    expect(late(fault('redis-kill', 10, 17))).toEqual([])
    expect(late(fault('redis-kill', 10, 17), 70)).toHaveLength(1)
  })

  test('keys of another session excuse nothing, and a process elsewhere not everything', () => {
    expect(late(fault('lock-deleted', 10, 10, { session: 'other' }))).toHaveLength(1)
    expect(late(fault('lock-deleted', 10, 10, { session: 'chat' }))).toEqual([])
    expect(late(fault('lock-deleted', -2, -2, { session: 'chat' }), 70)).toHaveLength(1)
    const elsewhere = fault('worker-freeze', 9, 60, { process: 'Q' })
    expect(late(elsewhere)).toEqual([])
    expect(late(elsewhere, 40)).toHaveLength(1)
    expect(late(fault('worker-freeze', 9, 39, { process: 'P' }), 40)).toEqual([])
  })

  test('a message waits for the one before it', () => {
    const entries = [...turn(1, 1, 10.2, 20, COMPLETED), ...turn(2, 1, 20.1, 20.2, COMPLETED)]
    const history = [...good.history, ...sent('b', 10, 2)]
    expect(lateness(world({ history, entries, scripts: [...good.scripts, ['b', 'echo']] }))).toEqual([])
  })
})

describe('I8 · restarts', () => {
  const again = (end: Record<string, unknown>, at: number, faults: Line[] = []) =>
    restarts(
      world({
        ...good,
        history: [...good.history, ...faults],
        entries: [...turn(1, 1, 10.2, 12, end), ...turn(1, 2, at, at + 1, COMPLETED)],
      }),
    )
  const dead = { outcome: 'lost', verdict: 'dead' }

  test('a takeover that comes late after the kill', () => {
    const kill = fault('worker-kill', 11, 12, { costs: 'target', process: 'P' })
    expect(again(dead, 13, kill)).toEqual([])
    expect(again(dead, 19, kill)[0]).toContain('turn 1.2 started 8000 ms after P had lost it')
    expect(again(dead, 19, [...kill, ...fault('redis-kill', 10, 18)])).toEqual([])
    expect(again(dead, 99, [...kill, ...fault('redis-kill', 10, 18)])).toHaveLength(1)
  })

  test('a retry or a hand-over that comes late', () => {
    for (const outcome of ['retrying', 'handed_over']) {
      expect(again({ outcome }, 12.3)).toEqual([])
      expect(again({ outcome }, 18)[0]).toContain('turn 1.2 started 6000 ms after P had left it')
    }
  })
})
