import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createClient, createWorker, migrate } from '../../src/index.ts'
import { until } from '../support/eventually.ts'
import { freshDatabase, freshPrefix, services } from '../support/services.ts'

const { redisUrl } = services()
const prefix = freshPrefix()
let database: Awaited<ReturnType<typeof freshDatabase>>

beforeAll(async () => {
  database = await freshDatabase()
  await migrate(database.url)
})
afterAll(() => database.drop())

it('I8 · a worker that stops has let go of its last session, and told somebody, before it hangs up', async () => {
  const connections = { redis: redisUrl, mysql: database.url, prefix, logger: false } as const
  const client = createClient(connections)
  const redis = new Redis(redisUrl)
  const trouble: unknown[] = []
  // Each round stops the worker at another moment of a turn's end.
  for (let round = 0; round < 12; round++) {
    const session = `last-${round}`
    const worker = createWorker({ ...connections, handler: () => 'done' })
    worker.on('redis.trouble', ({ error }) => trouble.push(error))
    await worker.start()
    await client.enqueue(session, 'hello')
    await until(
      async () => {
        const { doneSeq, runningSeq } = await client.inspect(session)
        return doneSeq === 1 || (round % 2 === 0 && runningSeq === 1)
      },
      { everyMs: round },
    )
    await worker.stop()
    expect(await redis.get(`${prefix}:{${session}}:lock`)).toBeNull()
  }
  redis.disconnect()
  await client.close()
  expect(trouble).toEqual([])
}, 60_000)
