// The running attempt's deltas in Redis: appended and published in one step, bounded, and never an older attempt's.
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import type { Server } from '../../src/cli/servers.ts'
import { connectRedis, type RedisClient, type RedisConnection } from '../../src/redis/connect.ts'
import { Keys } from '../../src/redis/keys.ts'
import { appendLive, clearLive, type Chunk, formatChunk, parseChunk, readLive } from '../../src/redis/live.ts'
import { freshPrefix, ownRedis } from '../support/services.ts'
import { eventually } from '../support/eventually.ts'

const ID = 'chat-1'
const LIMITS = { maxDeltas: 100, maxBytes: 100_000, ttlMs: 60_000 }

let server: Server
let connection: RedisConnection
let redis: RedisClient
let keys: Keys

beforeAll(async () => {
  server = await ownRedis()
  const options = { timeoutMs: 2_000, onTrouble: () => undefined, onReady: () => undefined }
  connection = connectRedis(server.url, options)
  redis = connection.commands
})
afterAll(async () => {
  await connection.close()
  await server.stop()
})
beforeEach(() => {
  keys = new Keys(freshPrefix())
})

/** A chunk of deltas `first` to `last`; everything in it follows from the numbers. */
const chunk = (seq: number, attempt: number, first: number, last = first) => ({
  seq,
  attempt,
  epoch: 7,
  deltas: Array.from({ length: last - first + 1 }, (_, at) => ({
    index: first + at,
    after: 2,
    text: `"d${first + at}"`,
  })),
  bytes: last * 30,
})
const append = (draft: ReturnType<typeof chunk>, limits = LIMITS) =>
  appendLive(redis, keys, ID, draft, limits)
const kept = async () =>
  (await readLive(redis, keys, ID)).flatMap(({ seq, attempt, deltas }) =>
    deltas.map(({ index }) => `${seq}/${attempt} ${index}`),
  )

test('what is appended is kept in order, published as it is, and expires', async () => {
  const subscriber = new Redis(server.url)
  const heard: (Chunk | null)[] = []
  subscriber.on('message', (_channel: string, text: string) => heard.push(parseChunk(text)))
  await subscriber.subscribe(keys.sessionChannel(ID))
  expect(await append(chunk(1, 1, 1, 2))).toBe(true)
  expect(await append(chunk(1, 1, 3))).toBe(true)
  expect(await kept()).toEqual(['1/1 1', '1/1 2', '1/1 3'])
  await eventually(() => expect(heard).toHaveLength(2))
  expect(heard).toEqual(await readLive(redis, keys, ID))
  expect(heard[0]?.deltas[1]).toEqual({ index: 2, after: 2, value: 'd2' })
  const ttl = await redis.pttl(keys.live(ID))
  expect(ttl).toBeGreaterThan(50_000)
  subscriber.disconnect()
})

test('a repeated call and an older attempt change nothing and are heard by nobody (SS-13)', async () => {
  await append(chunk(1, 2, 1))
  const subscriber = new Redis(server.url)
  const heard: string[] = []
  subscriber.on('message', (_channel: string, text: string) => heard.push(text))
  await subscriber.subscribe(keys.sessionChannel(ID))
  expect(await append(chunk(1, 2, 1))).toBe(false)
  expect(await append(chunk(1, 1, 5))).toBe(false)
  expect(await clearLive(redis, keys, ID, { seq: 1, attempt: 1 })).toBe(false)
  expect(await kept()).toEqual(['1/2 1'])
  expect(await append(chunk(1, 2, 3))).toBe(true)
  await eventually(() => expect(heard).toEqual([formatChunk(chunk(1, 2, 3))]))
  subscriber.disconnect()
})

test('a newer attempt begins anew, and the end of an attempt removes what it emitted', async () => {
  await append(chunk(1, 1, 1, 5))
  expect(await append(chunk(1, 2, 1))).toBe(true)
  expect(await kept()).toEqual(['1/2 1'])
  expect(await append(chunk(2, 1, 1))).toBe(true)
  expect(await kept()).toEqual(['2/1 1'])
  expect(await clearLive(redis, keys, ID, { seq: 2, attempt: 1 })).toBe(true)
  expect(await redis.exists(keys.live(ID))).toBe(0)
  expect(await clearLive(redis, keys, ID, { seq: 2, attempt: 1 })).toBe(false)
})

test('the oldest go beyond the limits, the newest always stays', async () => {
  for (let n = 1; n <= 30; n += 1) await append(chunk(1, 1, n), { ...LIMITS, maxDeltas: 10 })
  expect(await kept()).toEqual(Array.from({ length: 10 }, (_, n) => `1/1 ${n + 21}`))
  for (let n = 31; n <= 40; n += 1) await append(chunk(1, 1, n), { ...LIMITS, maxBytes: 100 })
  expect((await kept()).length).toBeLessThan(5)
  expect((await kept()).at(-1)).toBe('1/1 40')
  await append(chunk(1, 1, 41, 60), { ...LIMITS, maxDeltas: 1, maxBytes: 1 })
  expect(await kept()).toHaveLength(20)
})

test('what somebody else wrote there is no obstacle', async () => {
  await redis.set(keys.live(ID), 'junk')
  expect(await readLive(redis, keys, ID)).toEqual([])
  expect(await append(chunk(1, 1, 1))).toBe(true)
  await redis.rpush(keys.live(ID), 'junk')
  expect(await kept()).toEqual(['1/1 1'])
  expect(await append(chunk(1, 1, 2))).toBe(true)
  expect(await kept()).toEqual(['1/1 2'])
  await redis.del(keys.live(ID))
  await redis.set(keys.live(ID), 'junk')
  expect(await clearLive(redis, keys, ID, { seq: 1, attempt: 1 })).toBe(true)
})

test.each([
  '',
  'look',
  '1 1 1 1 1 1',
  '1 1 1 1 1 1\n',
  '1 1 1 1 1 1\n{}',
  '1 1 1 1 1 1\nnull',
  '1 1 1 1 1 1\n[]',
  '1 1 1 1 1 1\n[1]',
  '1 1 1 1 1 1\n[[1,0.5,"x"]]',
  '1 1 1 1 1 1\n[["1",0,"x"]]',
  '1 1 1 1 1 2\n[[2,0,"x"],[1,0,"x"]]',
  '-1 1 1 1 1 1\n[[1,0,"x"]]',
  '1 1 1 1 1\n[[1,0,"x"]]',
])('is no chunk: %j (PS-08)', (text) => {
  expect(parseChunk(text)).toBeNull()
})
