// Runs around every test file (vitest's setupFiles): no test leaves anything running behind. Whatever the process holds
// (resources.ts) after a test it held before, and listeners of the process are no more. A file that opens something
// for all its tests is judged when it has closed that, because a pool may grow in any of them.
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest'
import { eventually } from './eventually.ts'
import { resources } from './resources.ts'

interface Held {
  readonly resources: ReadonlySet<object>
  readonly listeners: number
}

const held = (): Held => ({
  resources: new Set(resources()),
  listeners: process.eventNames().reduce((sum, event) => sum + process.listenerCount(event), 0),
})

function surplus(before: Held): string[] {
  const { listeners } = held()
  return [
    ...resources()
      .filter((one) => !before.resources.has(one))
      .map(({ kind, madeAt }) => `${kind} made at ${madeAt}`),
    ...(listeners > before.listeners ? [`${listeners - before.listeners} listeners of the process`] : []),
  ]
}

const expectNothingLeft = (before: Held) =>
  eventually(() => expect(surplus(before)).toEqual([]), { what: 'everything to be closed' })

let beforeFile: Held
let beforeTest: Held | undefined
beforeAll(() => {
  beforeFile = held()
})
beforeEach(() => {
  beforeTest = surplus(beforeFile).length === 0 ? held() : undefined
})
afterEach(async () => {
  if (!beforeTest) return
  try {
    await expectNothingLeft(beforeTest)
  } catch (error) {
    // Told once: the tests that follow are judged by what they leave themselves.
    beforeFile = held()
    throw error
  }
})
afterAll(() => expectNothingLeft(beforeFile))
