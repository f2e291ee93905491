// A spread sample of the crash points, in the time of an ordinary test; `npm run crash-points` plays all.
import { expect, test } from 'vitest'
import { runFolder, services } from '../support/services.ts'
import { parsePoint, runCampaign } from './campaign.ts'

const SAMPLE = [
  'backlog:mysql:6:before',
  'takeover:mysql:4:before',
  'again:redis:3:before',
  'stop:mysql:5:after',
  'turn:mysql:4:after',
  'drain:redis:8:before',
  'retry:mysql:5:before',
  'detach:mysql:8:before',
  'poison:mysql:6:before',
  'arrival:mysql:3:before',
  'back-off:mysql:5:before',
  'dead-letter:mysql:9:before',
]

test('I1 I2 I4 I8 · a worker that is killed at a reply of either store loses, repeats and blocks nothing', async () => {
  const outcomes = await runCampaign({
    ...services(),
    parent: runFolder(),
    lanes: 2,
    only: SAMPLE.map(parsePoint),
    forMs: 15_000,
  })
  const failed = outcomes.filter(({ problems }) => problems.length > 0)
  expect(failed.map(({ name, problems, story }) => [name, ...problems, ...story])).toEqual([])
  expect(outcomes.filter(({ request }) => request !== undefined).length).toBeGreaterThan(0)
}, 60_000)
