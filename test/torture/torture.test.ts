// A short campaign with every kind of fault. The long one is `npm run torture`.
import { expect, test } from 'vitest'
import { kindsOf, runCampaign } from './campaign.ts'
import { KINDS } from './lanes.ts'
import { WAYS } from './way.ts'

test.each(WAYS)(
  'I1 I2 I3 I4 I5 I6 I7 I8 I9 I10 · twenty seconds through %s break no invariant',
  async (through) => {
    const short = { ttlMs: 3000, workers: 3, forMs: 20_000, faultsMax: 100 }
    const report = await runCampaign({ ...short, seed: 21, through })
    expect(report.violations.map(({ tale, problem }) => tale || problem)).toEqual([])
    expect(Object.keys(report.faults).length).toBeGreaterThan(5)
    expect(report.turns).toBeGreaterThan(50)
    // Each rule has something to say about such a time, or there was nothing of its kind.
    expect(report.judged['completions']?.judged).toBeGreaterThan(50)
    expect(report.judged['watched']?.judged).toBeGreaterThan(50)
    expect(report.watched.breaks).toBeGreaterThan(5)
  },
)

test('every fourth round is calm, every other fourth one mild, and a choice of kinds is kept to', () => {
  const has = (seed: number, kind: string) => kindsOf(seed, KINDS).includes(kind)
  expect([0, 1, 2, 3].map((seed) => has(seed, 'worker-kill'))).toEqual([false, true, false, true])
  expect([0, 1, 2, 3].map((seed) => has(seed, 'redis-kill'))).toEqual([false, true, true, true])
  expect([0, 1, 2, 3].map((seed) => has(seed, 'lock-deleted'))).toEqual([true, true, true, true])
  expect(kindsOf(4, ['worker-kill', 'lock-deleted'])).toEqual(['lock-deleted'])
  expect(kindsOf(4, ['worker-kill'])).toEqual(['worker-kill'])
})

test('the same seed gives the same orders', async () => {
  const { orders } = await import('./orders.ts')
  const first = (seed: number) => {
    const made = orders(seed, 'p0g0', { sessions: ['a', 'b'] })
    return Array.from({ length: 200 }, () => made.next().value)
  }
  expect(first(1)).toEqual(first(1))
  expect(first(1)).not.toEqual(first(2))
})
