// Watching while things go wrong: what is published is lost, stores are away, somebody publishes what is late or false.
import { afterEach, expect, test } from 'vitest'
import { Redis } from 'ioredis'
import { createPool } from 'mysql2'
import type { Client, Handler, Turn } from '../../src/index.ts'
import { appendLive, formatChunk } from '../../src/redis/live.ts'
import { type Proxy, startProxy } from '../support/proxy.ts'
import { ownRedis } from '../support/services.ts'
import { eventually, openHouse, signal } from './house.ts'
import { expectConsistent, isEntry, story, watch } from './watching.ts'

const house = openHouse()
const proxies: Proxy[] = []
afterEach(async () => {
  await Promise.all(proxies.splice(0).map((proxy) => proxy.close()))
})
async function proxyTo(url: string): Promise<Proxy> {
  const proxy = await startProxy(url)
  proxies.push(proxy)
  return proxy
}

/** A handler that does what the test tells it, one call at a time, until it is told to end. */
function puppet(): { handler: Handler; turn: () => Promise<Turn>; end: () => void } {
  let current = signal<Turn>()
  let over = signal()
  return {
    handler: async (turn) => {
      current.resolve(turn)
      await over.promise
      ;[current, over] = [signal<Turn>(), signal()]
      return 'done'
    },
    turn: () => current.promise,
    end: () => over.resolve(),
  }
}

const isDelta = (index: number) => (event: { type: string; index?: number }) =>
  event.type === 'delta' && event.index === index

async function begin(client: Client, handler: Handler): Promise<string> {
  const id = house.sessionId()
  await house.worker(handler)
  await client.enqueue(id, 'x')
  return id
}

test('what a turn writes is told, and not left to the next look', async () => {
  const { handler, turn, end } = puppet()
  const id = await begin(house.client(), handler)
  const running = await turn()
  // Its looks come once in five minutes.
  const watched = watch(house.client({ lookMs: 300_000 }), id)
  await watched.until(isEntry('turn_started'))
  await running.append({ type: 'note' })
  await watched.until(isEntry('note'))
  end()
  await watched.until(isEntry('turn_ended'))
  await watched.leave()
})

test('I7 · nothing published is heard: entries come all the same, and the deltas with the next subscription (SS-05)', async () => {
  const proxy = await proxyTo(house.redisUrl)
  const { handler, turn, end } = puppet()
  const client = house.client()
  const id = await begin(client, handler)
  const watched = watch(house.client({ redis: proxy.url }), id)
  ;(await turn()).emit(1)
  await watched.until(isDelta(1))
  proxy.blackhole({ subscribersOnly: true })
  for (const n of [2, 3]) {
    ;(await turn()).emit(n)
    await (await turn()).append({ type: `note-${n}` })
  }
  await watched.until(isEntry('note-3'))
  await watched.until(isDelta(3))
  ;(await turn()).emit(4)
  await watched.until(isDelta(4))
  proxy.blackhole({ subscribersOnly: true })
  end()
  // The end, too, is found without a notification.
  await watched.until((event) => event.type === 'state' && event.state === 'idle')
  expectConsistent(watched.events)
  expect(watched.events.filter(({ type }) => type === 'delta')).toHaveLength(4)
  expect(watched.events.filter(({ type }) => type === 'gap')).toEqual([])
  await watched.leave()
})

test('I7 · a flush of Redis costs the deltas before it, and only newcomers', async () => {
  const server = await ownRedis()
  const options = { redis: server.url }
  const { handler, turn, end } = puppet()
  const client = house.client(options)
  const id = house.sessionId()
  const worker = await house.worker(handler, options)
  await client.enqueue(id, 'x')
  const first = watch(client, id)
  for (const n of [1, 2]) (await turn()).emit(n)
  await first.until(isDelta(2))
  const admin = new Redis(server.url)
  await admin.flushall()
  admin.disconnect()
  ;(await turn()).emit(3)
  await first.until(isDelta(3))
  const second = watch(house.client(options), id)
  await second.until(isDelta(3))
  expect(story(first.events).slice(2)).toEqual(['1/1 1', '1/1 2', '1/1 3'])
  expect(story(second.events).slice(2)).toEqual(['1/1 gap 1-2', '1/1 3'])
  end()
  await Promise.all([first.until(isEntry('turn_ended')), second.until(isEntry('turn_ended'))])
  await Promise.all([first.leave(), second.leave()])
  await house.settled(client, id)
  await worker.stop()
  await client.close()
  await server.stop()
})

test('I7 · Redis away from the worker: nothing fails, what it emits meanwhile is told as a gap', async () => {
  const proxy = await proxyTo(house.redisUrl)
  const { handler, turn, end } = puppet()
  const client = house.client()
  const id = house.sessionId()
  await house.worker(handler, { redis: proxy.url })
  await client.enqueue(id, 'x')
  const watched = watch(client, id)
  const running = await turn()
  running.emit(1)
  await watched.until(isDelta(1))
  proxy.refuse(true)
  await eventually(() => expect(proxy.connections()).toBe(0))
  for (let n = 2; n <= 500; n += 1) running.emit(n)
  await running.append({ type: 'meanwhile' })
  await watched.until(isEntry('meanwhile'))
  proxy.refuse(false)
  let n = 500
  await eventually(() => {
    running.emit((n += 1))
    expect(watched.events.at(-1)?.type).toBe('delta')
  })
  expectConsistent(watched.events)
  const gap = watched.events.find((event) => event.type === 'gap')
  expect(gap).toMatchObject({ seq: 1, attempt: 1, from: 2 })
  end()
  await watched.until(isEntry('turn_ended'))
  await watched.leave()
})

test('I7 · MySQL away from the reader: it waits, with the deltas that need no entry, and goes on', async () => {
  const proxy = await proxyTo(house.url)
  const { handler, turn, end } = puppet()
  const client = house.client()
  const id = await begin(client, handler)
  const cutOff = house.client({ mysql: proxy.url })
  const watched = watch(cutOff, id)
  await watched.until(isEntry('message'))
  proxy.refuse(true)
  const running = await turn()
  running.emit(1)
  await watched.until(isDelta(1))
  await running.append({ type: 'note' })
  running.emit(2)
  end()
  await house.settled(client, id)
  // Somebody who comes now waits too, and may leave.
  const late = cutOff.subscribe(id)
  const waiting = late.next()
  await late.return?.()
  expect(await waiting).toMatchObject({ done: true })
  proxy.refuse(false)
  await watched.until((event) => event.type === 'state' && event.state === 'idle')
  expectConsistent(watched.events)
  const all = ['#1 turn_started', '#2 message', '1/1 1', '#3 note', '1/1 2', '#4 reply', '#5 turn_ended']
  expect(story(watched.events)).toEqual(all)
  await watched.leave()
})

test('I7 · what an attempt that is over still sends, and what nobody of ours sends, is given to nobody (SS-13, PS-08)', async () => {
  const { handler, turn, end } = puppet()
  const client = house.client()
  const id = house.sessionId()
  const attempts: Turn[] = []
  await house.worker(async (one) => {
    attempts.push(one)
    if (one.attempt === 1) throw new Error('again')
    return handler(one)
  })
  await client.enqueue(id, 'x')
  const watched = watch(client, id)
  await turn()
  await watched.until((event) => event.type === 'state' && event.running?.attempt === 2)
  const publish = (text: string) => house.redis.publish(house.keys.sessionChannel(id), text)
  const late = { seq: 1, attempt: 1, epoch: 1, bytes: 30, deltas: [{ index: 1, after: 2, text: '"late"' }] }
  expect(await publish(formatChunk(late))).toBe(1)
  for (const text of ['', 'junk', 'look', '1 1 1 1 1 1\n[]']) await publish(text)
  // Far ahead of its entries: it waits for them, which never come.
  await publish(formatChunk({ ...late, attempt: 2, deltas: [{ index: 9, after: 99, text: '"false"' }] }))
  end()
  await watched.until((event) => event.type === 'state' && event.state === 'idle')
  expect(watched.events.filter(({ type }) => type === 'delta')).toEqual([])
  expect(attempts).toHaveLength(2)
  await watched.leave()
})

test('I7 · a newcomer takes up no reply that is over, whatever is still heard of it before the first look', async () => {
  const client = house.client()
  const id = house.sessionId()
  await house.worker(() => 'done')
  await client.enqueue(id, 'x')
  await house.settled(client, id)
  const heardJunk = signal()
  const logger = { error() {}, info() {}, debug() {}, trace() {}, fatal() {}, isLevelEnabled: () => true }
  const warn = (line: object) => 'sample' in line && heardJunk.resolve()
  const proxy = await proxyTo(house.url)
  const gate = proxy.gate('retry_in')
  const reader = house.client({ mysql: proxy.url, logger: { ...logger, warn } as never })
  const watched = watch(reader, id, { after: 4 })
  await gate.seen
  const channel = house.keys.sessionChannel(id)
  await eventually(async () => expect((await house.redis.pubsub('NUMSUB', channel))[1]).toBe(1))
  const over = { seq: 1, attempt: 1, epoch: 1, bytes: 30, deltas: [{ index: 1, after: 2, text: '"over"' }] }
  await house.redis.publish(channel, formatChunk(over))
  await house.redis.publish(channel, 'junk')
  await heardJunk.promise
  gate.release()
  await client.enqueue(id, 'y')
  await watched.until(isEntry('turn_ended', 2))
  expect(story(watched.events)).toEqual(['#5 turn_started', '#6 message', '#7 reply', '#8 turn_ended'])
  await watched.leave()
})

test('I7 · a delta whose notice was lost alone is found with the next one that is heard', async () => {
  const { handler, turn, end } = puppet()
  const client = house.client()
  const id = await begin(client, handler)
  await turn()
  const watched = watch(client, id)
  await watched.until(isEntry('message'))
  const chunk = (index: number) => {
    return { seq: 1, attempt: 1, epoch: 1, bytes: 30, deltas: [{ index, after: 2, text: `${index}` }] }
  }
  const limits = { maxDeltas: 9, maxBytes: 9999, ttlMs: 60_000 }
  const send = (index: number) => appendLive(house.redis, house.keys, id, chunk(index), limits)
  await send(1)
  await watched.until(isDelta(1))
  await house.redis.rpush(house.keys.live(id), formatChunk(chunk(2)))
  await send(3)
  await watched.until(isDelta(3))
  expect(story(watched.events).slice(2)).toEqual(['1/1 1', '1/1 2', '1/1 3'])
  end()
  await watched.leave()
})

test('I7 · five hundred watchers that come at any moment, with any cursor, see every entry once (SS-06)', async () => {
  const client = house.client()
  const id = house.sessionId()
  const readers = [client, house.client(), house.client(), house.client()]
  const watches: { after: number; watched: ReturnType<typeof watch> }[] = []
  let written = 0
  await house.worker(async (turn) => {
    for (let n = 0; n < 25; n += 1) {
      turn.emit(n)
      if (n % 5 === 0) written = await turn.append({ type: 'note' })
      // One comes before the write is answered, one after: between any two of the reader's own steps.
      const after = Math.floor(Math.random() * (written + 1))
      watches.push({ after, watched: watch(readers[watches.length % 4]!, id, { after }) })
      await new Promise((resolve) => setImmediate(resolve))
    }
    return turn.message.seq === 20 ? { type: 'last' } : 'done'
  })
  for (let n = 0; n < 20; n += 1) await client.enqueue(id, String(n))
  await eventually(() => expect(watches.length).toBe(500), 60_000)
  await house.settled(client, id)
  const all = await house.transcript(client, id)
  // At the very end, too.
  for (const reader of readers) watches.push({ after: 0, watched: watch(reader, id) })
  await Promise.all(
    watches.map(async ({ after, watched }) => {
      await watched.until(isEntry('turn_ended', 20))
      const entries = watched.events.flatMap((event) => (event.type === 'entry' ? [event.entry] : []))
      expect(JSON.stringify(entries)).toBe(JSON.stringify(all.slice(after)))
      expectConsistent(watched.events, after)
      await watched.leave()
    }),
  )
}, 120_000)

test('I9 · a hundred watchers of one session cost one subscription and one read for each entry', async () => {
  const { handler, turn, end } = puppet()
  const client = house.client()
  const id = await begin(client, handler)
  const pool = createPool(house.url)
  let pages = 0
  pool.on('connection', (connection) => {
    const query = connection.query.bind(connection) as (...given: unknown[]) => unknown
    Object.assign(connection, {
      query: (...given: unknown[]) => {
        if (JSON.stringify(given[0]).includes('octet_length')) pages += 1
        return query(...given)
      },
    })
  })
  const reader = house.client({ mysql: pool })
  const watches = Array.from({ length: 100 }, () => watch(reader, id))
  for (const watched of watches) await watched.until(isEntry('message'))
  expect((await house.redis.pubsub('NUMSUB', house.keys.sessionChannel(id)))[1]).toBe(1)
  const before = pages
  expect(before).toBeGreaterThan(0)
  for (let n = 0; n < 10; n += 1) await (await turn()).append({ type: 'note', payload: n })
  for (const watched of watches)
    await watched.until((event) => event.type === 'entry' && event.entry.payload === 9)
  expect(pages - before).toBeLessThanOrEqual(10)
  end()
  for (const watched of watches) await watched.leave()
  await reader.close()
  await new Promise((resolve) => pool.end(resolve))
})
