// Runs around every test file (vitest's setupFiles): no test leaves anything running behind. Connections, servers,
// timers, child processes and listeners of the process must be no more after a test than before it. A file that opens
// something for all its tests is judged when it has closed that, because a pool may grow in any of them.
import { setImmediate as turnOfTheLoop } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest'
import { eventually } from './eventually.ts'

const WATCHED = ['Timeout', 'Immediate', 'TCPSocketWrap', 'TCPServerWrap', 'ProcessWrap'] as const

type Held = Record<(typeof WATCHED)[number] | 'listeners', number>

function held(): Held {
  const active = process.getActiveResourcesInfo()
  const counts = WATCHED.map((kind) => [kind, active.filter((one) => one === kind).length])
  const listeners = process.eventNames().reduce((sum, event) => sum + process.listenerCount(event), 0)
  return { ...Object.fromEntries(counts), listeners } as Held
}

const surplus = (before: Held): string =>
  Object.entries(held())
    .filter(([kind, count]) => count > before[kind as keyof Held])
    .map(([kind, count]) => `${kind}: ${before[kind as keyof Held]} before, ${count} now`)
    .join('; ')

const expectNothingLeft = (before: Held) =>
  eventually(
    async () => {
      // Between two timers of one round, Node counts one too few.
      await turnOfTheLoop()
      expect(surplus(before)).toBe('')
    },
    { what: 'everything to be closed' },
  )

let beforeFile: Held
let beforeTest: Held | undefined
beforeAll(() => {
  // The runner reports with a timer of its own that may be pending or not; it does not last, so it is waited out.
  beforeFile = { ...held(), Timeout: 0 }
})
beforeEach(() => {
  beforeTest = surplus({ ...beforeFile, Timeout: 1 }) === '' ? { ...held(), Timeout: 0 } : undefined
})
afterEach(() => (beforeTest ? expectNothingLeft(beforeTest) : undefined))
afterAll(() => expectNothingLeft(beforeFile))
