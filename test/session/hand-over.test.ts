import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createClient, createWorker, type Handler, migrate, type Worker } from '../../src/index.ts'
import { Keys } from '../../src/redis/keys.ts'
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

/** A fleet in which only notices can be in time, with turns that wait until they are let go or handed over. */
function openFleet(name: string) {
  const own = `${prefix}-${name}`
  const connections = { redis: redisUrl, mysql: database.url, prefix: own, logger: false } as const
  const client = createClient(connections)
  const redis = new Redis(redisUrl)
  const workers: Worker[] = []
  const started: string[] = []
  let go: () => void = () => undefined
  const gone = new Promise<void>((resolve) => (go = resolve))
  const handler =
    (who: string): Handler =>
    async ({ sessionId, signal }) => {
      started.push(`${who} ${sessionId}`)
      const aborted = new Promise((_, reject) =>
        signal.addEventListener('abort', () => reject(signal.reason)),
      )
      await Promise.race([gone, aborted])
    }
  return {
    client,
    redis,
    keys: new Keys(own),
    started,
    go: () => go(),
    async worker(who: string, concurrency: number): Promise<Worker> {
      const late = { lockTtlMs: 30_000, sweepMs: 300_000, giveAwayMs: 300_000, drainGraceMs: 0 }
      const worker = createWorker({ ...connections, ...late, concurrency, handler: handler(who) })
      workers.push(worker)
      await worker.start()
      await until(async () => {
        const beat = await redis.get(this.keys.process(worker.processId))
        const [, hearing] = await redis.pubsub('NUMSUB', this.keys.processChannel(worker.processId))
        return beat !== null && hearing === 1
      })
      return worker
    },
    async close(): Promise<void> {
      go()
      await Promise.all(workers.map((worker) => worker.stop()))
      await client.close()
      redis.disconnect()
    },
  }
}

it('I8 · a full process passes on at once what it is woken for, if somebody else has a free slot', async () => {
  const fleet = openFleet('full')
  const { client, keys, redis, started } = fleet
  const full = await fleet.worker('full', 1)
  await client.enqueue('first', 'x')
  await until(() => started.length === 1)
  await fleet.worker('free', 1)
  // Accepted without a word to anybody, as if the wake that follows were a hand-over's.
  const unheard = createClient({ redis: 'redis://127.0.0.1:1', mysql: database.url, logger: false })
  await unheard.enqueue('second', 'x')
  await unheard.close()
  await redis.publish(keys.processChannel(full.processId), 'wake second')
  await until(() => started.length === 2)
  expect(started).toEqual(['full first', 'free second'])
  await fleet.close()
})

it('I8 · what nobody has a slot for stays where it is, and starts there as soon as a turn ends', async () => {
  const fleet = openFleet('all-full')
  const { client, keys, redis, started } = fleet
  const [one, other] = [await fleet.worker('one', 1), await fleet.worker('other', 1)]
  await client.enqueueMany(['a', 'b'].map((sessionId) => ({ sessionId, message: 'x' })))
  await until(() => started.length === 2)
  const givenAway: string[] = []
  const overloaded: string[] = []
  for (const worker of [one, other]) {
    worker.on('session.givenAway', ({ session }) => givenAway.push(session))
    worker.on('worker.overloaded', ({ process }) => overloaded.push(process))
  }
  // Whatever their heartbeats said last, each of the two says that it is full before it asks the other.
  await redis.publish(keys.processChannel(one.processId), 'wake third')
  await until(() => overloaded.length > 0)
  expect(givenAway.length).toBeLessThanOrEqual(3)
  await client.enqueue('third', 'x')
  fleet.go()
  await until(() => started.length === 3)
  await fleet.close()
})

it('I8 · turns that are handed over together all start at once, however few slots some process has left', async () => {
  const fleet = openFleet('together')
  const { client, started } = fleet
  const leaving = await fleet.worker('leaving', 8)
  const sessions = Array.from({ length: 8 }, (_, n) => `chat-${n}`)
  await client.enqueueMany(sessions.map((sessionId) => ({ sessionId, message: 'x' })))
  await until(() => started.length === 8)
  await fleet.worker('small', 1)
  await fleet.worker('large', 7)
  await leaving.stop()
  await until(() => started.length === 16, { what: 'the second start of all eight' })
  expect(started.filter((line) => line.startsWith('small'))).toHaveLength(1)
  expect(started.filter((line) => line.startsWith('large'))).toHaveLength(7)
  await fleet.close()
})
