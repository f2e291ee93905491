// What the proxy promises to the stories, against a real Redis.
import { Redis } from 'ioredis'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { eventually } from './eventually.ts'
import { type Proxy, startProxy } from './proxy.ts'
import { freshPrefix, services } from './services.ts'

let proxy: Proxy
let client: Redis
let direct: Redis
const key = freshPrefix()

beforeEach(async () => {
  proxy = await startProxy(services().redisUrl)
  const options = { retryStrategy: () => 20, maxRetriesPerRequest: 0, autoResendUnfulfilledCommands: false }
  client = new Redis(proxy.url, options).on('error', () => undefined)
  direct = new Redis(services().redisUrl)
  await client.set(key, '0', 'EX', 60)
})
afterEach(async () => {
  client.disconnect()
  direct.disconnect()
  await proxy.close()
})

test('a swallowed answer belongs to a request that was executed', async () => {
  const swallowed = proxy.swallow('incr')
  await expect(client.incr(key)).rejects.toThrow()
  await swallowed
  expect(await direct.get(key)).toBe('1')
  await eventually(async () => expect(await client.get(key)).toBe('1'))
})

test('a gate holds a request until it is released, and what was sent behind it', async () => {
  const gate = proxy.gate('incr')
  const [first, second] = [client.incr(key), client.get(key)]
  await gate.seen
  expect(await direct.get(key)).toBe('0')
  gate.release()
  expect(await Promise.all([first, second])).toEqual([1, '1'])
})

test('a cut, a count of answers and a refusal end connections; new ones work when they may', async () => {
  proxy.cutAfter(2)
  expect(await client.incr(key)).toBe(1)
  await client.incr(key).catch(() => undefined)
  await eventually(async () => expect(await client.get(key)).toBe('2'))
  proxy.refuse(true)
  await expect(client.get(key)).rejects.toThrow()
  proxy.refuse(false)
  await eventually(async () => expect(await client.get(key)).toBe('2'))
})

test('a blackhole for subscribers leaves other connections alone', async () => {
  const subscriber = new Redis(proxy.url)
  const heard: string[] = []
  subscriber.on('message', (_channel, text) => heard.push(text))
  await subscriber.subscribe(key)
  await client.publish(key, 'before')
  await eventually(() => expect(heard).toEqual(['before']))
  proxy.blackhole({ subscribersOnly: true })
  expect(await client.publish(key, 'after')).toBe(1)
  expect(await client.get(key)).toBe('0')
  expect(heard).toEqual(['before'])
  subscriber.disconnect()
})

test('an aimed proxy leads to another server, a calm one does nothing any more', async () => {
  await client.set(key, '7')
  const other = await startProxy(services().redisUrl)
  proxy.aim(other.url)
  proxy.cut()
  await eventually(async () => expect(await client.get(key)).toBe('7'))
  expect(other.connections()).toBe(1)
  proxy.refuse(true)
  void proxy.swallow('incr')
  proxy.calm()
  await eventually(async () => expect(await client.incr(key)).toBe(8))
  await other.close()
})
