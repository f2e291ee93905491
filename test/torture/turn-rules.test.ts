// Each rule is seen to find what it is there to find in a made-up history, and nothing when all is well or excused.
import { describe, expect, test } from 'vitest'
import type { Entry } from '../support/checker-facts.ts'
import type { Line } from '../support/history.ts'
import {
  call,
  COMPLETED,
  entry,
  fault,
  good,
  line,
  problemsOf,
  rig,
  SECOND,
  sent,
  turn,
  world,
} from './made-up.ts'
import * as rules from './turn-rules.ts'

const completions = problemsOf(rules.completions)
const endings = problemsOf(rules.endings)
const handOvers = problemsOf(rules.handOvers)
const losses = problemsOf(rules.losses)
const writes = problemsOf(rules.writes)

describe('I4 I10 · endings', () => {
  const ended = (end: Record<string, unknown>, history: Line[] = [], error?: Record<string, unknown>) =>
    endings(
      world({
        ...good,
        history: [...good.history, ...history],
        entries: [
          entry(1, 1, 10.2, 'turn_started'),
          ...(error ? [entry(1, 1, 10.3, 'error', error)] : []),
          entry(1, 1, 10.3, 'turn_ended', end),
        ],
      }),
    )
  const failing = (script: string, times: number, before: Entry[], error: Entry) => {
    const end = entry(1, error.attempt, error.at / 1000, 'turn_ended', { outcome: 'failed' })
    const started = entry(1, error.attempt, 10, 'turn_started')
    return endings(
      world({ ...good, scripts: [['a', script, times]], entries: [...before, started, error, end] }),
    )
  }
  const dead = (attempt: number) => turn(1, attempt, 9, 10, { outcome: 'lost', verdict: 'dead' })
  const struck = (attempt: number) => [
    entry(1, attempt, 9, 'turn_started'),
    entry(1, attempt, 9, 'error', { message: 'failure' }),
    entry(1, attempt, 9, 'turn_ended', { outcome: 'retrying' }),
  ]
  const stop = (outcome: string, through: number) =>
    call('s', 10, outcome, { name: 'stop', fields: { through } })

  test('a message that failed although its handler cannot', () => {
    expect(ended({ outcome: 'failed' }, [], { code: 'ECONNRESET' })[0]).toContain('(echo) failed with')
  })

  test('a message that is counted out needs three deaths or twenty starts', () => {
    const error = (attempt: number) => entry(1, attempt, 11, 'error', { code: 'COUNTED_OUT' })
    expect(failing('echo', 0, [...dead(1), ...dead(2)], error(2))[0]).toContain('after 2 deaths and 3 starts')
    expect(failing('echo', 0, [...dead(1), ...dead(2), ...dead(3)], error(3))).toEqual([])
    const orphan = { outcome: 'lost', verdict: 'orphan' }
    const many = Array.from({ length: 19 }, (_, index) => turn(1, index + 1, 9, 10, orphan)).flat()
    expect(failing('echo', 0, many.slice(2), error(19))).toHaveLength(1)
    expect(failing('echo', 0, many, error(20))).toEqual([])
  })

  test('a timeout needs its time, and a script that hangs', () => {
    const error = (at: number) => entry(1, 1, at, 'error', { code: 'TURN_TIMEOUT' })
    expect(failing('hang', 0, [], error(10.1))[0]).toContain('timed out after 100 ms')
    expect(failing('hang', 0, [], error(18.1))).toEqual([])
    expect(failing('echo', 0, [], error(18.1))[0]).toContain('although it does not hang')
  })

  test('a handler that throws is given up at its third failure, and only if it throws so often', () => {
    const error = (attempt: number) => entry(1, attempt, 10.1, 'error', { message: 'failure' })
    expect(failing('fail', 3, [], error(1))[0]).toContain('given up at failure 1')
    expect(failing('fail', 3, [...struck(1), ...struck(2)], error(3))).toEqual([])
    expect(failing('fail', 2, [...struck(1), ...struck(2)], error(3))[0]).toContain('failed with')
  })

  test('a failure without its error', () => {
    expect(ended({ outcome: 'retrying' })[0]).toContain('without its error')
  })

  test('a message that is missing', () => {
    expect(ended({ outcome: 'missing' })[0]).toContain('ended as missing')
  })

  test('a stop that nobody asked for, that went less far, or that was refused', () => {
    const end = { outcome: 'stopped' }
    for (const history of [[], stop('ok', 0), stop('failed', 1)])
      expect(ended(end, history)[0]).toContain('was stopped although nobody had asked for it')
    for (const history of [stop('ok', 1), stop('unknown', 0)]) expect(ended(end, history)).toEqual([])
    const interrupt = sent('b', 10, 2, { whenBusy: 'interrupt' })
    expect(ended(end, interrupt)).toEqual([])
  })

  test('a withdrawal that nobody asked for', () => {
    const withdraw = (outcome: string) => call('w', 10, outcome, { name: 'withdraw', fields: { seq: 1 } })
    const end = { outcome: 'withdrawn' }
    for (const history of [[], withdraw('failed')])
      expect(ended(end, history)[0]).toContain('was withdrawn although nobody had asked for it')
    expect(ended(end, withdraw('ok'))).toEqual([])
  })
})

describe('I1 I4 · completions', () => {
  test('a turn that is completed although its handler was never called, or threw', () => {
    const [sending] = [sent('a', 10, 1)]
    for (const history of [sending, [...sending, line('threw', 1, 1, 10.3)], [line('end', 1, 2, 10.3)]])
      expect(completions(world({ ...good, history }))[0]).toContain('no handler had come to its end')
  })

  test('a message without its reply, or with two', () => {
    const [started, reply, end] = good.entries as [Entry, Entry, Entry]
    for (const entries of [
      [started, end],
      [started, reply, reply, end],
    ])
      expect(completions(world({ ...good, entries }))[0]).toContain(`with ${entries.length - 2} replies`)
  })

  test('a turn that ends as another attempt', () => {
    const [started, reply, end] = good.entries as [Entry, Entry, Entry]
    const other = [started, reply, { ...end, attempt: 2 }]
    expect(completions(world({ ...good, entries: other }))[0]).toContain('turn 1.1 ended as 1.2')
  })
})

describe('I4 · losses', () => {
  const lost = (end: Record<string, unknown>, faults: Line[]) =>
    losses(
      world({
        ...good,
        history: [...good.history, ...faults],
        entries: [...turn(1, 1, 10.2, 12, end), ...turn(1, 2, 12.1, 12.2, COMPLETED)],
      }),
    )
  const dead = { outcome: 'lost', verdict: 'dead' }

  test('a turn that a healthy owner lost', () => {
    expect(lost(dead, [])[0]).toContain('turn 1.1 was taken from P (dead) without a reason')
    expect(lost(dead, fault('redis-flush', 11, 11))).toHaveLength(1)
    expect(lost(dead, fault('worker-kill', 11, 12, { costs: 'target', process: 'Q' }))).toHaveLength(1)
    expect(lost(dead, fault('worker-kill', 1, 2, { costs: 'target', process: 'P' }))).toHaveLength(1)
    const drain = fault('worker-drain', 11, 12, { costs: 'handover', process: 'P' })
    expect(lost(dead, drain)).toHaveLength(1)
    expect(lost(dead, [...drain, ...fault('mysql-kill', 11, 12)])).toEqual([])
  })

  test('a turn that was lost for a reason', () => {
    expect(lost(dead, fault('worker-kill', 11, 12, { costs: 'target', process: 'P' }))).toEqual([])
    expect(lost(dead, fault('redis-failover', 11, 12, { costs: 'all' }))).toEqual([])
    const stall = {
      ...rig,
      what: 'event',
      name: 'worker.stalled',
      ns: 11 * SECOND,
      fields: { process: 'P', lagMs: 900 },
    }
    expect(lost(dead, [stall])).toEqual([])
    const ended = { ...rig, what: 'ended', name: 'SIGABRT', ns: 11 * SECOND, fields: { process: 'P' } }
    expect(lost(dead, [ended])).toEqual([])
  })

  test('both stores are a reason only if both were silent at the same time', () => {
    const silent = { silences: true }
    const both = (redis: Line[]) => lost(dead, [...redis, ...fault('mysql-freeze', 10, 11, silent)])
    expect(both(fault('redis-kill', 10.5, 12, silent))).toEqual([])
    expect(both(fault('redis-kill', 11.5, 12, silent))).toHaveLength(1)
    expect(both(fault('redis-flush', 10.5, 10.5))).toHaveLength(1)
  })

  test('neither a fault that did nothing nor one that met the process before is a reason', () => {
    const begun = (name: string, fields: Record<string, unknown>) => [
      { ...rig, what: 'fault', name, ns: 9 * SECOND, fields: { id: 'x', ...fields } },
    ]
    const end = (what: string, name: string, fields = {}) => [
      { ...rig, what, name, ns: 9.5 * SECOND, fields: { id: 'x', ...fields } },
    ]
    const failover = begun('redis-failover', { costs: 'all' })
    expect(lost(dead, [...failover, ...end('void', 'redis-failover')])).toHaveLength(1)
    const refused = end('void', 'redis-failover').map((one) => ({ ...one, reason: 'no answer' }))
    expect(lost(dead, [...failover, ...refused])).toHaveLength(1)
    const kill = begun('worker-kill', { costs: 'target', process: 'OLD' })
    expect(lost(dead, [...kill, ...end('healed', 'worker-kill', { process: 'P' })])).toHaveLength(1)
  })

  test('a turn that was handed over by a process that did not drain', () => {
    const end = { outcome: 'handed_over' }
    const handed = (faults: Line[]) =>
      handOvers(
        world({
          ...good,
          history: [...good.history, ...faults],
          entries: [...turn(1, 1, 10.2, 12, end), ...turn(1, 2, 12.1, 12.2, COMPLETED)],
        }),
      )
    expect(handed([])[0]).toContain('which did not drain')
    expect(handed(fault('worker-drain', 9, 12, { costs: 'handover', process: 'Q' }))).toHaveLength(1)
    expect(handed(fault('worker-drain', 11, 12, { costs: 'handover', process: 'P' }))).toEqual([])
  })
})

test('I3 · a write after the signal', () => {
  expect(writes(world({ ...good, history: [line('wrote', 1, 1, 10)] }))).toHaveLength(1)
})
