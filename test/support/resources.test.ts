// Whatever the leak check counts is seen when it is made and not seen when it is gone, referenced or not.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { expect, test } from 'vitest'
import { Alarm, Ticker } from '../../src/base/timing.ts'
import { eventually } from './eventually.ts'
import { resources } from './resources.ts'
import { services } from './services.ts'

const CASES: [kind: string, what: string, make: () => () => unknown][] = [
  [
    'Timeout',
    'a timer without reference',
    () => {
      const alarm = new Alarm()
      alarm.set(60_000, () => undefined)
      return () => alarm.clear()
    },
  ],
  [
    'Timeout',
    'a loop',
    () => {
      const ticker = new Ticker({ tick: () => undefined, intervalMs: 60_000, onError: () => undefined })
      ticker.start()
      return () => ticker.stop()
    },
  ],
  [
    'TCPWRAP',
    'a socket',
    () => {
      const socket = connect(Number(new URL(services().redisUrl).port)).unref()
      return () => socket.destroy()
    },
  ],
  [
    'TCPSERVERWRAP',
    'a server',
    () => {
      const server = createServer().listen(0).unref()
      return () => server.close()
    },
  ],
  [
    'PROCESSWRAP',
    'a child process',
    () => {
      const child = spawn('sleep', ['60'], { stdio: 'ignore' })
      child.unref()
      return async () => {
        child.kill()
        await once(child, 'exit')
      }
    },
  ],
]

test.each(CASES)('%s: %s', async (kind, _what, make) => {
  const before = new Set(resources())
  const fresh = () => resources().filter((one) => !before.has(one))
  const end = make()
  await eventually(() => expect(fresh().map((one) => one.kind)).toContain(kind))
  expect(fresh().find((one) => one.kind === kind)?.madeAt).toContain('resources.test.ts')
  await end()
  await eventually(() => expect(fresh()).toEqual([]))
})
