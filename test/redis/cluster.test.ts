// Every primitive through an ioredis Cluster, on a cluster of one node: that all keys of a step share a slot,
// and that nothing relies on pipelines or multi-key reads across slots.
import { Cluster, Redis } from 'ioredis'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { freePort } from '../../src/cli/probes.ts'
import type { Server } from '../../src/cli/servers.ts'
import { connectRedis, type RedisConnection } from '../../src/redis/connect.ts'
import * as fleet from '../../src/redis/fleet.ts'
import { Keys } from '../../src/redis/keys.ts'
import * as live from '../../src/redis/live.ts'
import * as lock from '../../src/redis/lock.ts'
import * as queue from '../../src/redis/queue.ts'
import { Listener, Publisher } from '../../src/redis/wake.ts'
import { ownRedis } from '../support/services.ts'
import { eventually } from '../support/eventually.ts'

const MINE = 'P1.aaaaaaaaaaaaaaaa'
const LATER = 'P1.bbbbbbbbbbbbbbbb'
const TTL = 30_000
const IDS = ['a', 'b', 'c', 'd']

let server: Server
let theirs: Cluster
let connection: RedisConnection
const keys = new Keys('butler')

beforeAll(async () => {
  server = await ownRedis([
    '--cluster-enabled',
    'yes',
    '--cluster-announce-ip',
    '127.0.0.1',
    '--cluster-port',
    String(await freePort()),
  ])
  const admin = new Redis(server.url)
  await admin.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383')
  await eventually(async () => expect(await admin.call('CLUSTER', 'INFO')).toContain('cluster_state:ok'), {
    ms: 20_000,
  })
  admin.disconnect()
  theirs = new Cluster([{ host: '127.0.0.1', port: server.port }], { lazyConnect: true, scaleReads: 'slave' })
  connection = connectRedis(theirs, {
    timeoutMs: 2_000,
    onTrouble: () => undefined,
    onReady: () => undefined,
  })
})
afterAll(async () => {
  await connection.close()
  theirs.disconnect()
  await server.stop()
})

test('locks', async () => {
  const redis = connection.commands
  expect(connection.cluster).toBe(true)
  expect(await lock.acquire(redis, keys, 'a', MINE, TTL)).toEqual({ acquired: true })
  expect(await lock.acquire(redis, keys, 'a', LATER, TTL)).toEqual({ acquired: false, holder: MINE })
  expect(await lock.swap(redis, keys, 'a', MINE, LATER, TTL)).toBe(true)
  expect(await lock.toBusy(redis, keys, 'a', LATER, TTL)).toBe(true)
  const locks = IDS.map((id) => ({ id, token: LATER }))
  expect(await lock.renewMany(redis, keys, locks, TTL)).toEqual(['held', 'retaken', 'retaken', 'retaken'])
  expect(await lock.readMany(redis, keys, [...IDS, 'x'])).toEqual([LATER, LATER, LATER, LATER, null])
  await redis.lpush(keys.lock('x'), 'junk')
  expect(await lock.readMany(redis, keys, ['x', 'a'])).toEqual([null, LATER])
  expect(await lock.release(redis, keys, 'a', LATER)).toBe(true)
  expect(await lock.releaseMany(redis, keys, locks)).toEqual([false, true, true, true])
})

test('queues, and one broken session among several (RD-09)', async () => {
  const redis = connection.commands
  const options = { idleMs: TTL, more: false }
  await lock.acquire(redis, keys, 'a', MINE, TTL)
  await redis.set(keys.queue('b'), 'junk')
  const pushed = await queue.pushMany(
    redis,
    keys,
    IDS.map((id) => ({ id, reference: '1:m' })),
  )
  expect(pushed).toEqual([MINE, expect.any(Error), null, null])
  expect(await queue.advance(redis, keys, 'a', MINE, options)).toMatchObject({ reference: '1:m' })
  expect(await queue.recover(redis, keys, 'a', MINE)).toMatchObject({ count: 1 })
  expect(await queue.depth(redis, keys, 'a')).toEqual({ queue: 1, processing: 0 })
  expect(await queue.advance(redis, keys, 'a', MINE, options)).toMatchObject({ reference: '1:m' })
  expect(await queue.advance(redis, keys, 'a', MINE, options)).toMatchObject({ outcome: 'idle' })
})

test('fleet', async () => {
  const redis = connection.commands
  const value = { version: 1, kinds: ['*'], free: 1, draining: false }
  for (const processId of ['P1', 'P2', 'P3']) {
    await fleet.beat(redis, keys, processId, value, TTL, { join: true })
  }
  expect([...(await fleet.members(redis, keys)).values()]).toEqual([value, value, value])
  expect((await fleet.look(redis, keys, ['P1', 'Gone'])).get('P1')).toEqual({
    subscribed: false,
    beating: true,
  })
  expect(await fleet.pickMember(redis, keys, { not: 'P1' })).toMatch(/^P[23]$/)
  expect(await fleet.elect(redis, keys, 'tick', 'P1', TTL)).toBe(true)
  expect(await fleet.elect(redis, keys, 'tick', 'P2', TTL)).toBe(false)
  await fleet.leave(redis, keys, 'P1')
  expect((await fleet.members(redis, keys)).size).toBe(2)
})

test('deltas, and what watchers are told', async () => {
  const redis = connection.commands
  const subscriber = connection.subscriber()
  const heard: string[] = []
  subscriber.on('message', (channel: string, text: string) => heard.push(`${channel} ${text}`))
  await subscriber.connect()
  await subscriber.subscribe(...IDS.map((id) => keys.sessionChannel(id)))
  const draft = { seq: 1, attempt: 1, epoch: 1, bytes: 9, deltas: [{ index: 1, after: 2, text: '"x"' }] }
  const limits = { maxDeltas: 9, maxBytes: 9999, ttlMs: TTL }
  const appended = await Promise.all(IDS.map((id) => live.appendLive(redis, keys, id, draft, limits)))
  expect(appended).toEqual([true, true, true, true])
  expect(await live.readLive(redis, keys, 'a')).toMatchObject([{ deltas: [{ index: 1, value: 'x' }] }])
  await new Publisher(redis, keys).changed(IDS)
  await eventually(() => expect(heard).toHaveLength(8))
  expect(await live.clearLive(redis, keys, 'a', draft)).toBe(true)
  subscriber.disconnect()
})

test('notifications arrive over a connection to one node, also after that was killed', async () => {
  const publisher = new Publisher(connection.commands, keys)
  const heard: string[] = []
  const onSubscribed = vi.fn()
  const listener = new Listener({
    keys,
    processId: 'P1',
    connect: connection.subscriber,
    pingMs: 200,
    onWake: (ids) => heard.push(ids.join(' ')),
    onStop: (id, through) => heard.push(`${id} ${through}`),
    onRetake: () => undefined,
    onJunk: () => undefined,
    onSubscribed,
    onTrouble: () => undefined,
  })
  listener.start()
  await eventually(() => expect(onSubscribed).toHaveBeenCalledTimes(1))
  await publisher.wakeProcess('P1', ['a', 'b'])
  await eventually(() => expect(heard).toEqual(['a b']))
  const admin = new Redis(server.url)
  await admin.call('CLIENT', 'KILL', 'TYPE', 'pubsub')
  admin.disconnect()
  await eventually(() => expect(onSubscribed).toHaveBeenCalledTimes(2))
  await publisher.stop('P1', 'a', 3)
  await eventually(() => expect(heard).toEqual(['a b', 'a 3']))
  await listener.stop()
})

test('a flushed script cache and a restart go by', async () => {
  const redis = connection.commands
  const admin = new Redis(server.url)
  await admin.script('FLUSH')
  admin.disconnect()
  expect(await lock.renewMany(redis, keys, [{ id: 'z', token: MINE }], TTL)).toEqual(['retaken'])
  await server.restart()
  await eventually(
    async () =>
      expect(await lock.renewMany(redis, keys, [{ id: 'z', token: MINE }], TTL)).toEqual(['retaken']),
    { ms: 20_000 },
  )
})
