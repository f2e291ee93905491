// A short campaign with every kind of fault. The long one is `npm run torture`.
import { expect, test } from 'vitest'
import { runCampaign } from './campaign.ts'

test('I1 I2 I3 I4 I5 I6 I8 I9 I10 · twenty seconds of torture break no invariant', async () => {
  const report = await runCampaign({ seed: 20, ttlMs: 3000, workers: 3, forMs: 20_000, faultsMax: 100 })
  expect(report.violations.map(({ tale, problem }) => tale || problem)).toEqual([])
  expect(Object.keys(report.faults).length).toBeGreaterThan(5)
  expect(report.turns).toBeGreaterThan(50)
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
