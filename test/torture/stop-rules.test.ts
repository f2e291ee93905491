// Each rule is seen to find what it is there to find in a made-up history, and nothing when all is well or excused.
import { describe, expect, test } from 'vitest'
import type { Line } from '../support/history.ts'
import { call, COMPLETED, fault, good, line, problemsOf, sent, turn, world } from './made-up.ts'
import * as rules from './stop-rules.ts'

const heard = problemsOf(rules.heard)
const stopped = problemsOf(rules.stopped)

describe('I5 · stops', () => {
  const stop = call('s', 10.1, 'ok', { name: 'stop', fields: { through: 1, running: null } })

  test('a turn that starts after a stop of its message had returned', () => {
    const late = { ...good, history: [...good.history, ...stop], entries: turn(1, 1, 10.4, 10.5, COMPLETED) }
    expect(stopped(world(late))[0]).toContain('turn 1.1 started after s had stopped it')
    const early = { ...late, entries: turn(1, 1, 10.1, 10.5, COMPLETED) }
    expect(stopped(world(early))).toEqual([])
    const interrupt = {
      ...late,
      history: [...good.history, ...sent('b', 10.1, 2, { whenBusy: 'interrupt' })],
    }
    expect(stopped(world(interrupt))[0]).toContain('started after b had stopped it')
  })

  test('a receipt that does not name what ran', () => {
    const running = { ...good, history: [...good.history, ...stop], entries: turn(1, 1, 10, 40, COMPLETED) }
    expect(stopped(world(running))[0]).toContain('did not say that message 1 was running')
  })

  describe('what runs', () => {
    const told = call('s', 10.1, 'ok', { name: 'stop', fields: { through: 1, running: 1 } })
    const stops = (more: Line[], end: number) =>
      heard(
        world({
          ...good,
          history: [...sent('a', 10, 1), line('start', 1, 1, 10.05), ...told, ...more],
          entries: turn(1, 1, 10, end, { outcome: 'stopped' }),
        }),
      )
    const signal = line('signal', 1, 1, 11)

    test('has to hear of it, whatever happens to Redis', () => {
      expect(stops([], 20)[0]).toContain('message 1 had not heard of stop s')
      expect(stops([signal], 12)).toEqual([])
      expect(stops(fault('redis-freeze', 9, 11), 20)).toHaveLength(1)
      expect(stops(fault('script-flush', 9, 11, { gentle: true }), 20)).toHaveLength(1)
      expect(stops(fault('line-hole', 9, 11, { process: 'Q' }), 20)).toHaveLength(1)
      expect(stops(fault('line-hole', 9, 11, { process: 'P' }), 20)).toEqual([])
      expect(stops(fault('mysql-freeze', 9, 11), 20)).toEqual([])
    })

    test('has to end', () => expect(stops([signal], 30)[0]).toContain('had not ended when stop s'))
  })
})
