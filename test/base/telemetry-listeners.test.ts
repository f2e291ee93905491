// Nothing that listens, and no log, can break what reports.
import pino from 'pino'
import { describe, expect, it } from 'vitest'
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

describe('listeners', () => {
  it('hear only their event, in order, until they end it', () => {
    const telemetry = new Telemetry()
    const heard: string[] = []
    const first = telemetry.on('turn.started', ({ seq }) => heard.push(`first ${seq}`))
    telemetry.on('turn.started', ({ seq }) => heard.push(`second ${seq}`))
    telemetry.emit('turn.started', turn)
    telemetry.emit('turn.retrying', { ...turn, delayMs: 5, error: new Error('no') })
    first()
    first()
    telemetry.emit('turn.started', { ...turn, seq: 5 })
    expect(heard).toStrictEqual(['first 4', 'second 4', 'second 5'])
  })

  it('may register the same function twice, and come and go while they are called', () => {
    const telemetry = new Telemetry()
    let calls = 0
    const count = () => void calls++
    const end = telemetry.on('mysql.ready', count)
    telemetry.on('mysql.ready', count)
    telemetry.emit('mysql.ready', {})
    expect(calls).toBe(2)
    end()
    const self = telemetry.on('mysql.ready', () => {
      self()
      telemetry.on('mysql.ready', count)
    })
    telemetry.emit('mysql.ready', {})
    expect(calls).toBe(3)
    telemetry.emit('mysql.ready', {})
    expect(calls).toBe(5)
  })

  it('get the error itself, whole', () => {
    const telemetry = new Telemetry()
    const errors: unknown[] = []
    telemetry.on('redis.trouble', ({ error }) => errors.push(error))
    const error = new Error('x'.repeat(9_000))
    telemetry.emit('redis.trouble', { error })
    expect(errors).toStrictEqual([error])
  })

  it('that throw or reject are logged, and neither the caller nor the others notice', async () => {
    const { telemetry, lines } = recorded('info')
    const heard: number[] = []
    telemetry.on('turn.handedOver', () => {
      throw new Error('broken')
    })
    telemetry.on('turn.handedOver', () => Promise.reject(new Error('late')))
    telemetry.on('turn.handedOver', ({ seq }) => heard.push(seq))
    telemetry.emit('turn.handedOver', turn)
    expect(heard).toStrictEqual([4])
    // Rejections are reported in a microtask.
    await Promise.resolve()
    const broken = (message: string) => ({
      level: 50,
      event: 'background.error',
      where: 'listener of turn.handedOver',
      error: { name: 'Error', message },
    })
    expect(lines.slice(1)).toStrictEqual([broken('broken'), broken('late')])
  })

  it('of background.error that throw do not call themselves for ever', () => {
    const { telemetry, lines } = recorded('info')
    let calls = 0
    telemetry.on('background.error', () => {
      calls++
      throw new Error('again')
    })
    telemetry.emit('background.error', { where: 'here', error: 'x' })
    expect(calls).toBe(1)
    expect(lines).toHaveLength(2)
  })
})

describe('a broken logger', () => {
  it('breaks nothing', () => {
    const broken = () => {
      throw new Error('disk full')
    }
    const logger = { error: broken, warn: broken, info: broken, debug: broken, isLevelEnabled: () => true }
    const telemetry = new Telemetry(logger)
    const heard: string[] = []
    telemetry.on('worker.stopped', ({ process }) => heard.push(process))
    telemetry.emit('worker.stopped', { process: 'P' })
    expect(heard).toStrictEqual(['P'])
  })
})
