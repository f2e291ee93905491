// A short campaign. The long one is `npm run stop-races`.
import { expect, inject, test } from 'vitest'
import { freshDatabase, runFolder, services } from '../support/services.ts'
import { runCampaign } from './campaign.ts'

test('I5 · in two hundred races nothing runs that was stopped, and nothing is stopped that was not', async () => {
  const database = await freshDatabase()
  try {
    const report = await runCampaign({
      redisUrl: services().redisUrl,
      mysqlUrl: database.url,
      parent: runFolder(),
      code: inject('code'),
      races: 200,
      seed: 4,
      workers: 3,
      lanes: 50,
    })
    expect(report.violations.map(({ problem, story }) => [problem, ...story])).toEqual([])
    expect(report.unknown).toBeLessThan(20)
    expect([report.races, report.stops > 200, report.kills + report.drains > 0]).toEqual([200, true, true])
    expect(Object.keys(report.outcomes)).toEqual(expect.arrayContaining(['never-started', 'aborted']))
  } finally {
    await database.drop()
  }
})
