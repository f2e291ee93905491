// What happens to the lines between one process and one store, or one server.
import type { Proxy } from '../support/proxy.ts'
import type { Dice } from './dice.ts'
import type { Fault, Heal } from './fault.ts'
import type { Post } from './stage.ts'

const REQUESTS = {
  redis: ['evalsha', 'publish', 'mget', 'pubsub', 'set'],
  mysql: ['commit', 'butler_messages', 'butler_entries', 'running_by', 'for update'],
  http: ['post /v1', 'idempotency-key', '/stop http', 'get /v1', 'last-event-id'],
} as const

export interface Line {
  /** What is at its other end. */
  readonly store: 'redis' | 'mysql' | 'http'
  readonly proxy: Proxy
  /** Of a worker: one of its connections to Redis listens for notifications. */
  readonly ofWorker: boolean
  /** Where the server works that it leads to. */
  readonly post?: Post
}

export const lineFaults: readonly Fault<Line>[] = [
  fault('line-cut', 3, [0, 0], ({ proxy }) => {
    if (proxy.connections() === 0) return false
    proxy.cut()
  }),
  fault('line-hole', 2, [0.1, 1.5], ({ proxy }, dice) => {
    if (proxy.connections() === 0) return false
    proxy.blackhole()
    // Whether the other end hears of the end, or has to find out by itself.
    return dice.chance(0.5) ? () => proxy.cut() : undefined
  }),
  fault('line-refuse', 2, [0.1, 2], ({ proxy }) => {
    proxy.refuse(true)
    return () => proxy.refuse(false)
  }),
  fault('line-slow', 2, [0.2, 2], ({ proxy }, dice) => {
    proxy.delay(dice.between(5, 200), dice.between(0, 150))
    return () => proxy.delay(0)
  }),
  {
    ...fault('line-deaf', 1, [0.1, 1.5], ({ proxy }) => {
      if (proxy.connections() < 2) return false
      proxy.blackhole({ subscribersOnly: true })
    }),
    fits: ({ store, ofWorker }) => store === 'redis' && ofWorker,
  },
  fault('line-swallow', 4, [0.1, 0.5], ({ store, proxy }, dice) => {
    let met = false
    void proxy.swallow(dice.pick(REQUESTS[store])).then(() => (met = true))
    return () => {
      proxy.calm()
      return met
    }
  }),
  fault('line-cut-after', 2, [0, 0.2], ({ proxy }, dice) => {
    if (proxy.connections() === 0) return false
    proxy.cutAfter(dice.between(1, 12))
  }),
  fault('line-gate', 3, [0.1, 1.5], ({ store, proxy }, dice) => {
    const gate = proxy.gate(dice.pick(REQUESTS[store]))
    let met = false
    void gate.seen.then(() => (met = true))
    return () => {
      proxy.calm()
      gate.release()
      return met
    }
  }),
]

function fault(
  name: string,
  weight: number,
  lasts: Fault['lasts'],
  act: (line: Line, dice: Dice) => Heal | false | undefined | void,
): Fault<Line> {
  return { name, weight, lasts, costs: 'target', begin: (_stage, dice, line) => act(line, dice) ?? undefined }
}
