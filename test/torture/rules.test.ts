// Each rule of the campaign's judge is seen to find what it is there to find, in a made-up history that breaks it, and to
// find nothing in the same history when it is true, or when a fault excuses it.
import { describe, expect, test } from 'vitest'
import type { Line } from '../support/history.ts'
import { call, COMPLETED, entry, fault, good, rig, SECOND, sent, turn, world } from './made-up.ts'
import { answers, endings, lateness, losses, origins, stopped } from './rules.ts'
import { taleOf } from './tale.ts'

test('a history in which everything went right breaks no rule', () => {
  for (const rule of [answers, origins, endings, stopped, losses, lateness])
    expect(rule(world(good)), rule.name).toEqual([])
})

describe('I1 I6 · origins', () => {
  test('two messages of one call', () => {
    const twice = { ...good, scripts: [...good.scripts, ['a', 'echo'] as const] }
    expect(origins(world(twice))).toEqual(['chat: I6: a is 2 messages: 1, 2'])
  })

  test('a message whose only call was refused, and not one whose call is unanswered', () => {
    const refused = call('a', 10, 'failed', { fields: { mark: 'a', code: 'MYSQL_UNAVAILABLE' } })
    expect(origins(world({ ...good, history: refused }))[0]).toContain('every call for a was refused')
    for (const outcome of ['unknown', 'nothing'])
      expect(origins(world({ ...good, history: call('a', 10, outcome, { fields: { mark: 'a' } }) }))).toEqual(
        [],
      )
  })

  test('two calls that were both the first', () => {
    const second = call('b', 11, 'ok', { seq: 1, fields: { mark: 'a', id: 'm-1', duplicate: false } })
    expect(origins(world({ ...good, history: [...good.history, ...second] }))[0]).toContain(
      'they were the first',
    )
  })

  test('a call that was told the number of another message', () => {
    const other = { ...good, scripts: [['b', 'echo'] as const] }
    expect(origins(world(other)).join()).toContain('which is not the one it sent')
  })
})

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
  const stop = (outcome: string, through: number) =>
    call('s', 10, outcome, { name: 'stop', fields: { through } })

  test('a message that failed although its handler cannot', () => {
    expect(ended({ outcome: 'failed' }, [], { code: 'ECONNRESET' })[0]).toContain('(echo) failed with')
    expect(ended({ outcome: 'failed' }, [], { code: 'COUNTED_OUT' })).toEqual([])
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

  test('a handler that runs on without having heard, unless a fault excuses it', () => {
    const start = { ...rig, what: 'start', session: 'chat', seq: 1, attempt: 1, ns: 10.05 * SECOND }
    const told = call('s', 10.1, 'ok', { name: 'stop', fields: { through: 1, running: 1 } })
    const deaf = (more: Line[]) =>
      stopped(
        world({
          ...good,
          history: [...good.history, start, ...told, ...more],
          entries: turn(1, 1, 10, 20, { outcome: 'stopped' }),
        }),
      )
    expect(deaf([])[0]).toContain('message 1 had not heard of stop s')
    expect(deaf([{ ...start, what: 'signal', ns: 11 * SECOND }])).toEqual([])
    expect(deaf(fault('redis-freeze', 9, 11))).toEqual([])
    expect(deaf(fault('script-flush', 9, 11, { gentle: true }))).toHaveLength(1)
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
  })

  test('a turn that was lost for a reason', () => {
    expect(lost(dead, fault('worker-kill', 11, 12, { costs: 'target', process: 'P' }))).toEqual([])
    expect(lost(dead, fault('redis-failover', 11, 12, { costs: 'all' }))).toEqual([])
    expect(lost(dead, [...fault('redis-kill', 10, 12), ...fault('mysql-freeze', 10, 12)])).toEqual([])
    const stall = {
      ...rig,
      what: 'event',
      name: 'worker.stalled',
      ns: 11 * SECOND,
      fields: { process: 'P', lagMs: 900 },
    }
    expect(lost(dead, [stall])).toEqual([])
  })

  test('a turn that was handed over by a process that did not drain', () => {
    const end = { outcome: 'handed_over' }
    expect(lost(end, [])[0]).toContain('which did not drain')
    expect(lost(end, fault('worker-drain', 11, 12, { costs: 'target', process: 'P' }))).toEqual([])
  })
})

describe('I8 · lateness', () => {
  const late = (faults: Line[]) =>
    lateness(
      world({ ...good, history: [...good.history, ...faults], entries: turn(1, 1, 18, 18.1, COMPLETED) }),
    )

  test('a message that waited for nothing', () => {
    expect(late([])[0]).toContain('message 1 waited 7900 ms without a reason')
    expect(late(fault('script-flush', 10, 17, { gentle: true }))).toHaveLength(1)
    expect(late(fault('redis-kill', 10, 17))).toEqual([])
  })

  test('a message waits for the one before it', () => {
    const entries = [...turn(1, 1, 10.2, 20, COMPLETED), ...turn(2, 1, 20.1, 20.2, COMPLETED)]
    const history = [...good.history, ...sent('b', 10, 2)]
    expect(lateness(world({ history, entries, scripts: [...good.scripts, ['b', 'echo']] }))).toEqual([])
  })
})

describe('I3 I10 · answers', () => {
  test('an error without a code, a refused repeat, a write after the signal, a producer that died', () => {
    const bad = [
      ...call('a', 10, 'failed', { fields: { code: 'FOREIGN' } }),
      ...call('b', 10, 'failed', { fields: { code: 'IDEMPOTENCY_CONFLICT' } }),
      { ...rig, what: 'wrote', session: 'chat', seq: 1, attempt: 1, ns: 0 },
      { ...rig, what: 'crashed', reason: 'producer ended 1', ns: 0 },
    ]
    expect(answers(world({ ...good, history: bad }))).toHaveLength(4)
  })
})

test('the story of a violation tells its session, the messages around it and the faults of that time', () => {
  const history = [
    ...good.history,
    ...fault('redis-flush', 10.25, 10.25),
    ...fault('worker-kill', 500, 501),
    { ...rig, what: 'start', session: 'chat', seq: 1, attempt: 1, ns: 10.22 * SECOND },
    { ...rig, what: 'start', session: 'other', seq: 1, attempt: 1, ns: 10.22 * SECOND },
  ]
  const tale = taleOf('chat: I8: message 1 waited', world({ ...good, history }))
  expect(tale.split('\n').map((line) => line.replace(/^ *[\d:.]+ {2}/, ''))).toEqual([
    'chat: I8: message 1 waited',
    expect.stringContaining('a enqueue ok'),
    'entry 1: 1.1 epoch 1 turn_started {"process":"P"}',
    expect.stringContaining('rig start 1.1'),
    expect.stringContaining('fault redis-flush'),
    'entry 2: 1.1 epoch 1 turn_ended {"outcome":"completed"}',
  ])
})
