// Thousands of conversations in which nothing happens.
import { Redis } from 'ioredis'
import { afterEach, expect, test } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { beginStory, endStories } from '../support/story.ts'
import { monitorOf } from '../support/monitor.ts'

afterEach(endStories)

const SESSIONS = 2000

test('I9 · 2,000 idle sessions cause no Redis command, no SQL statement and no connection (PS-07)', async () => {
  const story = await beginStory({ own: { redis: true, mysql: true } })
  const worker = await story.local()
  await story.send('warm', { do: 'echo' })
  await story.settled()
  const connections = await clientsOf(story.redisUrl)
  const items = Array.from({ length: SESSIONS }, (_, n) => ({
    sessionId: `quiet-${n}`,
    message: { payload: { do: 'echo' } },
  }))
  for (let at = 0; at < SESSIONS; at += 500) await story.client.enqueueMany(items.slice(at, at + 500))
  await story.settled({ ms: 60_000 })
  await story.fleet.waitFor(() => worker.stats().running + worker.stats().waiting === 0)

  await story.sql("set global log_output = 'TABLE'")
  await story.sql('truncate mysql.general_log')
  await story.sql('set global general_log = 1')
  const monitor = await monitorOf(story.redisUrl)
  // Some renewals, looks, sweeps and heartbeats: whatever a session costs would be seen.
  await new Promise((resolve) => setTimeout(resolve, 2500))
  monitor.end()
  const monitored = monitor.lines()
  await story.sql('set global general_log = 0')
  const logged = await story.sql<{ text: string }>(
    'select convert(argument using utf8mb4) as text from mysql.general_log',
  )

  expect(monitored.length).toBeGreaterThan(20)
  expect(monitored.filter((command) => command.includes('quiet-'))).toEqual([])
  expect(logged.filter(({ text }) => text.includes('quiet-'))).toEqual([])
  // One look per process and one sweep per fleet, however many sessions there are.
  expect(logged.filter(({ text }) => text.includes('butler_sessions')).length).toBeLessThan(30)
  expect(monitored.length).toBeLessThan(400)
  await eventually(async () => expect(await clientsOf(story.redisUrl)).toBeLessThanOrEqual(connections))
  const [threads] = await story.sql<{ Value: string }>("show global status like 'Threads_connected'")
  // Two pools of ten at most (the worker's, the client's) and the test's own.
  expect(Number(threads?.Value)).toBeLessThanOrEqual(21)
  await story.end({ noReruns: true })
})

/** Connections to the Redis other than the one that asks. */
async function clientsOf(redisUrl: string): Promise<number> {
  const redis = new Redis(redisUrl)
  try {
    const list = (await redis.call('CLIENT', 'LIST')) as string
    return list.trim().split('\n').length - 1
  } finally {
    redis.disconnect()
  }
}
