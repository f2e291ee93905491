// Whether a test left something running behind. `watchLeaks()` once per file compares what keeps the test's process
// alive before and after each test; `clientsOf()` counts the connections that a Redis has.
import { Redis } from 'ioredis'
import { afterEach, beforeEach, expect } from 'vitest'
import { eventually } from './eventually.ts'

/** Kinds of things that a closed client or worker must not leave behind. */
const WATCHED = ['Timeout', 'TCPSocketWrap', 'TCPServerWrap', 'Immediate'] as const

type Count = Record<(typeof WATCHED)[number], number>

function resources(): Count {
  const active = process.getActiveResourcesInfo()
  return Object.fromEntries(
    WATCHED.map((kind) => [kind, active.filter((one) => one === kind).length]),
  ) as Count
}

/** Call outside of tests: after each, sockets, servers and timers must be no more than before it. */
export function watchLeaks(): void {
  let before: Count
  let listeners: number
  beforeEach(() => {
    before = resources()
    listeners = signalListeners()
  })
  afterEach(async () => {
    await eventually(() => {
      const after = resources()
      for (const kind of WATCHED) expect(after[kind], kind).toBeLessThanOrEqual(before[kind])
      expect(signalListeners(), 'listeners of the process').toBeLessThanOrEqual(listeners)
    })
  })
}

const signalListeners = () =>
  process.eventNames().reduce((sum, event) => sum + process.listenerCount(event), 0)

/** Connections to the Redis other than the one that asks. */
export async function clientsOf(redisUrl: string): Promise<number> {
  const redis = new Redis(redisUrl)
  try {
    const list = (await redis.call('CLIENT', 'LIST')) as string
    return list.trim().split('\n').length - 1
  } finally {
    redis.disconnect()
  }
}
