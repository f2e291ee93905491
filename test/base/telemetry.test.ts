// The record of what happened: one line per event, at its level, without payloads.
import { runInNewContext } from 'node:vm'
import pino from 'pino'
import { describe, expect, expectTypeOf, it } from 'vitest'
import { UnavailableError } from '../../src/base/errors.ts'
import { CATALOGUE } from '../../src/base/events.ts'
import type { EventName, Events } from '../../src/base/events.ts'
import { Telemetry } from '../../src/base/telemetry.ts'

type Line = Record<string, unknown>

function recorded(level = 'debug') {
  const lines: Line[] = []
  const logger = pino(
    { level, base: null, timestamp: false },
    { write: (line) => lines.push(JSON.parse(line) as Line) },
  )
  return { telemetry: new Telemetry(logger), lines }
}

const turn = { session: 's', seq: 4, epoch: 2, attempt: 1 }
const levels = { debug: 20, info: 30, warn: 40, error: 50 }

describe('the catalogue', () => {
  it('has a level and a sentence for every event, named subject.happening', () => {
    for (const [name, { level, doc }] of Object.entries(CATALOGUE)) {
      expect(name).toMatch(/^[a-z]+\.[a-z]+([A-Z][a-z]+)*$/)
      expect(levels).toHaveProperty(level)
      expect(doc).toMatch(/^[A-Z].{5,}\.$/)
    }
  })

  it('types the fields of each event', () => {
    expectTypeOf<Events['turn.handedOver']>().toEqualTypeOf<{
      session: string
      seq: number
      epoch: number
      attempt: number
    }>()
    expectTypeOf<Events['session.evicted']['verdict']>().toEqualTypeOf<
      'dead' | 'hung' | 'silent' | 'orphan'
    >()
    const telemetry = new Telemetry()
    // @ts-expect-error: a turn has an epoch
    telemetry.emit('turn.started', { session: 's', seq: 1, attempt: 1 })
    // @ts-expect-error: no such event
    expect(() => telemetry.on('turn.begun', () => {})).toThrow('There is no event "turn.begun"')
    // @ts-expect-error: no payloads
    telemetry.emit('redis.ready', { payload: 'x' })
    telemetry.on('sweep.done', ({ found }) => expectTypeOf(found).toBeNumber())
  })
})

describe('log lines', () => {
  it('are the event and its fields, at the level of the event', () => {
    const { telemetry, lines } = recorded()
    telemetry.emit('turn.started', turn)
    telemetry.emit('worker.started', { process: 'P', concurrency: 100 })
    telemetry.emit('session.lost', { session: 's', epoch: 2, why: 'the row names another owner' })
    telemetry.emit('message.missing', { session: 's', seq: 9 })
    telemetry.emit('retention.pruned', { counts: { messages: 3 } })
    telemetry.emit('redis.ready', {})
    expect(lines).toStrictEqual([
      { level: 20, event: 'turn.started', ...turn },
      { level: 30, event: 'worker.started', process: 'P', concurrency: 100 },
      { level: 40, event: 'session.lost', session: 's', epoch: 2, why: 'the row names another owner' },
      { level: 50, event: 'message.missing', session: 's', seq: 9 },
      { level: 30, event: 'retention.pruned', counts: { messages: 3 } },
      { level: 30, event: 'redis.ready' },
    ])
  })

  it.each(Object.keys(CATALOGUE) as EventName[])('%s is written at its own level', (name) => {
    const { telemetry, lines } = recorded()
    // The fields do not matter here.
    telemetry.emit(name, { session: 's' } as never)
    expect(lines).toStrictEqual([{ level: levels[CATALOGUE[name].level], event: name, session: 's' }])
  })

  it('below the level of the logger are not written', () => {
    const { telemetry, lines } = recorded('warn')
    telemetry.emit('turn.started', turn)
    telemetry.emit('worker.stopped', { process: 'P' })
    telemetry.emit('lock.late', { session: 's', lateMs: 7 })
    expect(lines.map((line) => line['event'])).toStrictEqual(['lock.late'])
  })

  it('cut long texts', () => {
    const { telemetry, lines } = recorded()
    telemetry.emit('channel.junk', { sample: 'x'.repeat(100_000) })
    expect(lines[0]!['sample']).toBe(`${'x'.repeat(500)}...`)
  })

  it.each([undefined, false] as const)(
    'go nowhere without a logger (%s), and listeners still hear',
    (logger) => {
      const telemetry = new Telemetry(logger)
      const heard: unknown[] = []
      telemetry.on('turn.started', (fields) => heard.push(fields))
      telemetry.emit('turn.started', turn)
      expect(heard).toStrictEqual([turn])
    },
  )
})

describe('errors in log lines', () => {
  const logged = (error: unknown, level = 'info') => {
    const { telemetry, lines } = recorded(level)
    telemetry.emit('background.error', { where: 'here', error })
    expect(lines).toHaveLength(1)
    return lines[0]!['error']
  }

  it('keep code, name, message and causes, and nothing else that hangs on them', () => {
    const driver = Object.assign(new Error('connection lost'), {
      code: 'PROTOCOL_CONNECTION_LOST',
      errno: 1,
      sql: 'INSERT secret',
    })
    expect(
      logged(new UnavailableError('MYSQL_UNAVAILABLE', 'MySQL did not answer.', { cause: driver })),
    ).toStrictEqual({
      code: 'MYSQL_UNAVAILABLE',
      name: 'UnavailableError',
      message: 'MySQL did not answer.',
      cause: { code: 'PROTOCOL_CONNECTION_LOST', name: 'Error', message: 'connection lost' },
    })
  })

  it('have their stack at debug', () => {
    const stack = expect.stringContaining('telemetry.test.ts') as unknown
    expect(logged(new TypeError('x'), 'debug')).toStrictEqual({ name: 'TypeError', message: 'x', stack })
  })

  it('end at a few causes, also when they form a ring', () => {
    const ring = new Error('ring')
    ring.cause = ring
    const end = { name: 'Error', message: 'ring' }
    expect(logged(ring)).toStrictEqual({ ...end, cause: { ...end, cause: { ...end, cause: end } } })
  })

  const revoked = Proxy.revocable({}, {})
  revoked.revoke()
  const hostile = Object.defineProperty(new Error('x'), 'message', {
    get: () => {
      throw new Error('again')
    },
  })
  it.each<[string, unknown, unknown]>([
    ['a string', 'boom', { name: 'NotAnError', message: 'boom' }],
    ['undefined', undefined, { name: 'NotAnError', message: 'undefined' }],
    ['null', null, { name: 'NotAnError', message: 'null' }],
    ['a symbol', Symbol('s'), { name: 'NotAnError', message: 'Symbol(s)' }],
    ['an object', { secret: 'payload' }, { name: 'NotAnError', message: '[object Object]' }],
    ['a revoked proxy', revoked.proxy, { name: 'NotAnError', message: 'cannot be read' }],
    ['an error that throws', hostile, { name: 'NotAnError', message: 'cannot be read' }],
    ['a long message', new Error('x'.repeat(9_000)), { name: 'Error', message: `${'x'.repeat(500)}...` }],
    [
      'an error of another realm',
      runInNewContext('new RangeError("far")'),
      { name: 'RangeError', message: 'far' },
    ],
  ])('%s', (_name, error, fields) => {
    expect(logged(error)).toStrictEqual(fields)
  })
})
