// Notifications over real connections: who hears what, what is junk, and a listener that is always there
// again.
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { now } from '../../src/base/timing.ts'
import type { Server } from '../../src/cli/servers.ts'
import { connectRedis, type RedisConnection } from '../../src/redis/connect.ts'
import { Keys } from '../../src/redis/keys.ts'
import { Subscription } from '../../src/redis/subscription.ts'
import { Listener, Publisher, type ListenerOptions } from '../../src/redis/wake.ts'
import { freshPrefix, ownRedis } from '../support/services.ts'
import { startProxy } from './proxy.ts'
import { eventually } from '../support/eventually.ts'

const P = 'ProcessMine1'

let server: Server
let connection: RedisConnection
let publisher: Publisher
let keys: Keys
const stops: (() => Promise<unknown>)[] = []

const connectTo = (url: string) =>
  connectRedis(url, { timeoutMs: 10_000, onTrouble: () => undefined, onReady: () => undefined })

beforeAll(async () => {
  server = await ownRedis()
  connection = connectTo(server.url)
})
afterAll(async () => {
  await connection.close()
  await server.stop()
})
beforeEach(() => {
  keys = new Keys(freshPrefix())
  publisher = new Publisher(connection.commands, keys)
})
afterEach(async () => {
  for (const stop of stops.splice(0).toReversed()) await stop()
})

/** Everything a listener heard, in order, as text. */
async function listen(overrides: Partial<ListenerOptions> = {}) {
  const heard: string[] = []
  const troubles: unknown[] = []
  let subscriptions = 0
  const listener = new Listener({
    keys,
    processId: P,
    connect: connection.subscriber,
    pingMs: 200,
    onWake: (ids, { directed }) => heard.push(`wake ${ids.join(' ')} ${directed ? 'directed' : 'general'}`),
    onStop: (id, through) => heard.push(`stop ${id} ${through}`),
    onRetake: (id, owner) => heard.push(`retake ${id} ${owner}`),
    onJunk: (sample) => heard.push(`junk ${sample}`),
    onSubscribed: () => (subscriptions += 1),
    onTrouble: (error) => troubles.push(error),
    ...overrides,
  })
  stops.push(() => listener.stop())
  listener.start()
  const subscribed = (times: number) => eventually(() => expect(subscriptions).toBeGreaterThanOrEqual(times))
  return { listener, heard, troubles, subscribed, subscriptions: () => subscriptions }
}

test('each notification arrives with its kind, and the publisher learns who heard it', async () => {
  const { heard, subscribed } = await listen()
  await subscribed(1)
  expect(await publisher.wakeProcess(P, ['a', 'b:1'])).toBe(1)
  expect(await publisher.wakeAll(['c'])).toBe(1)
  expect(await publisher.stop(P, 'a', 17)).toBe(1)
  expect(await publisher.retake(P, 'a', 'ProcessMine1.aaaa')).toBe(1)
  expect(await publisher.wakeProcess('ProcessGone1', ['a'])).toBe(0)
  expect(await publisher.wakeProcess(P, [])).toBe(0)
  await eventually(() =>
    expect(heard).toEqual([
      'wake a b:1 directed',
      'wake c general',
      'stop a 17',
      'retake a ProcessMine1.aaaa',
    ]),
  )
})

test('a wake for very many sessions is split', async () => {
  const { heard, subscribed } = await listen()
  await subscribed(1)
  const ids = Array.from({ length: 1_001 }, (_, n) => `s-${n}`)
  expect(await publisher.wakeAll(ids)).toBe(1)
  await eventually(() => expect(heard).toHaveLength(3))
  expect(heard.flatMap((line) => line.split(' ').slice(1, -1))).toEqual(ids)
})

test('two prefixes on one Redis hear nothing of each other (PS-06)', async () => {
  const { subscribed } = await listen()
  await subscribed(1)
  const stranger = new Publisher(connection.commands, new Keys(freshPrefix()))
  expect(await stranger.wakeAll(['a'])).toBe(0)
  expect(await stranger.wakeProcess(P, ['a'])).toBe(0)
})

test('a session’s watchers hear its events', async () => {
  const heard: string[] = []
  const onSubscribed = vi.fn()
  const subscription = new Subscription({
    connect: connection.subscriber,
    channels: [],
    pingMs: 200,
    onMessage: (channel, text) => heard.push(`${channel} ${text}`),
    onSubscribed,
    onTrouble: () => undefined,
  })
  stops.push(() => subscription.stop())
  const channel = keys.sessionChannel('a')
  await expect(subscription.add(channel)).rejects.toThrow('no subscriber connection')
  subscription.start()
  await eventually(() => expect(onSubscribed).toHaveBeenCalled())
  await subscription.add(keys.sessionChannel('b'))
  await publisher.changed(['a', 'nobody', 'b'])
  await eventually(() => expect(heard).toEqual([`${channel} look`, `${keys.sessionChannel('b')} look`]))
  await subscription.remove(channel)
  await publisher.changed(['a', 'b'])
  await eventually(() => expect(heard.slice(2)).toEqual([`${keys.sessionChannel('b')} look`]))
})

describe('junk (PS-08)', () => {
  test.each<[string, string | Buffer]>([
    ['nothing', ''],
    ['spaces', '   '],
    ['an unknown verb', 'dance a'],
    ['a verb alone', 'wake'],
    ['a stop without a number', 'stop a'],
    ['a stop with more', 'stop a 1 2'],
    ['a stop with a strange number', 'stop a 1e9'],
    ['a stop with a number too large', 'stop a 9999999999999999'],
    ['a stop of no session', 'stop . 1'],
    ['a retake without an owner', 'retake a'],
    ['a retake with a strange owner', 'retake a b'],
    ['invalid UTF-8', Buffer.from([0xff, 0xfe, 0x20, 0xff])],
    ['NUL', '\u0000'],
    ['10 MB', `wake ${'x'.repeat(10_000_000)}`],
    ['2 MB of valid ids', `wake ${'abc '.repeat(500_000)}`],
  ])('%s is ignored and reported', async (_title, message) => {
    const { heard, subscribed } = await listen()
    await subscribed(1)
    await connection.commands.publish(keys.processChannel(P), message)
    await publisher.wakeProcess(P, ['after'])
    await eventually(() => expect(heard).toEqual([expect.stringMatching(/^junk /), 'wake after directed']))
    expect(heard[0]?.length).toBeLessThan(120)
  })

  test('the valid ids of a wake count all the same; stop and retake are for one process only', async () => {
    const { heard, subscribed } = await listen()
    await subscribed(1)
    await connection.commands.publish(keys.wakeChannel, 'wake a b/c .. d')
    await connection.commands.publish(keys.wakeChannel, 'stop a 1')
    await eventually(() => expect(heard).toEqual(['junk b/c', 'wake a d general', 'junk stop a 1']))
  })

  test('a callback that throws is trouble, and the next notification arrives', async () => {
    let calls = 0
    const { troubles, subscribed } = await listen({
      onWake: () => {
        calls += 1
        throw new Error(`no ${calls}`)
      },
    })
    await subscribed(1)
    await publisher.wakeProcess(P, ['a'])
    await publisher.wakeProcess(P, ['a'])
    await eventually(() => expect(troubles).toEqual([new Error('no 1'), new Error('no 2')]))
  })
})

describe('it is always there again', () => {
  test('after its connection was killed (PS-02)', async () => {
    const { heard, listener, subscribed } = await listen()
    await subscribed(1)
    const first = listener.upSinceMs()
    expect(first).toBeLessThanOrEqual(now())
    await connection.commands.call('CLIENT', 'KILL', 'TYPE', 'pubsub')
    await subscribed(2)
    expect(listener.upSinceMs()).toBeGreaterThan(first ?? 0)
    expect(await publisher.wakeProcess(P, ['a'])).toBe(1)
    await eventually(() => expect(heard).toEqual(['wake a directed']))
  })

  test('after a Redis restart, and while it is down it says so', async () => {
    const own = await ownRedis()
    const other = connectTo(own.url)
    stops.push(() => own.stop())
    stops.push(() => other.close())
    const { listener, troubles, subscribed } = await listen({ connect: other.subscriber })
    await subscribed(1)
    await own.stop()
    await eventually(() => expect(listener.upSinceMs()).toBeNull())
    await eventually(() => expect(troubles.length).toBeGreaterThan(2))
    await own.restart({ empty: true })
    await subscribed(2)
    expect(listener.upSinceMs()).not.toBeNull()
  })

  test('when its connection looks healthy but nothing gets through (PS-03)', async () => {
    const proxy = await startProxy(server.port)
    const through = connectTo(`redis://127.0.0.1:${proxy.port}`)
    stops.push(() => proxy.close())
    stops.push(() => through.close())
    const { heard, subscribed } = await listen({ connect: through.subscriber })
    await subscribed(1)
    proxy.blackhole()
    await subscribed(2)
    await publisher.wakeProcess(P, ['a'])
    await eventually(() => expect(heard).toEqual(['wake a directed']))
  })

  test('when Redis was down from the start', async () => {
    const own = await ownRedis()
    await own.stop()
    const other = connectTo(own.url)
    stops.push(() => own.stop())
    stops.push(() => other.close())
    const { listener, subscribed, troubles } = await listen({ connect: other.subscriber })
    await eventually(() => expect(troubles.length).toBeGreaterThan(1))
    expect(listener.upSinceMs()).toBeNull()
    await own.restart()
    await subscribed(1)
  })

  test.each([2, 3] as const)('a quiet connection is kept, with protocol %d', async (protocol) => {
    const recipe = new Redis(server.url, { protocol, lazyConnect: true })
    const other = connectRedis(recipe, {
      timeoutMs: 1_000,
      onTrouble: () => undefined,
      onReady: () => undefined,
    })
    stops.push(() => other.close())
    const ping = vi.spyOn(Redis.prototype, 'ping')
    const { heard, subscribed, subscriptions, troubles } = await listen({
      pingMs: 50,
      connect: other.subscriber,
    })
    await subscribed(1)
    await eventually(() => expect(ping.mock.calls.length).toBeGreaterThan(5))
    ping.mockRestore()
    await publisher.wakeProcess(P, ['a'])
    await eventually(() => expect(heard).toEqual(['wake a directed']))
    expect(subscriptions()).toBe(1)
    expect(troubles).toEqual([])
    recipe.disconnect()
  })
})

describe('start and stop', () => {
  test('stop before start, twice, start twice, and again', async () => {
    const { listener, subscribed, subscriptions } = await listen()
    listener.start()
    await subscribed(1)
    await Promise.all([listener.stop(), listener.stop()])
    await listener.stop()
    expect(listener.upSinceMs()).toBeNull()
    expect(await publisher.wakeProcess(P, ['a'])).toBe(0)
    listener.start()
    await subscribed(2)
    expect(subscriptions()).toBe(2)
    expect(await publisher.wakeProcess(P, ['a'])).toBe(1)
  })

  test('stop in the middle of connecting, many times', async () => {
    const { listener, troubles } = await listen()
    for (let n = 0; n < 50; n += 1) {
      listener.start()
      await listener.stop()
    }
    expect(troubles).toEqual([])
    await eventually(async () => expect(await publisher.wakeProcess(P, ['a'])).toBe(0))
  })
})
