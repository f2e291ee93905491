// A worker's subscription looks healthy, but nothing arrives any more.
import { afterEach, expect, test } from 'vitest'
import { Keys } from '../../src/redis/keys.ts'
import { eventually, until } from '../support/eventually.ts'
import { beginStory, endStories } from '../support/story.ts'
import { type Proxy, startProxy } from '../support/proxy.ts'

let proxy: Proxy | undefined
afterEach(async () => {
  await endStories()
  await proxy?.close()
})

test('I5 · a stop reaches a worker whose subscription went silent, and the subscription is replaced (PS-03)', async () => {
  const story = await beginStory({ own: { redis: true } })
  const { fleet, redis } = story
  const subscribers = async () =>
    String(await redis.call('CLIENT', 'LIST', 'TYPE', 'PUBSUB')).match(/\bid=\d+/g) ?? []
  proxy = await startProxy(story.redisUrl)
  await story.local({ redisUrl: proxy.url })
  await story.send('chat', { do: 'hang' })
  await fleet.saw('start', 'chat')
  const silent = await subscribers()
  expect(silent).toHaveLength(1)
  proxy.blackhole({ subscribersOnly: true })
  await story.stop('chat')
  expect(await fleet.saw('signal', 'chat')).toMatchObject({ reason: 'stopped' })
  await eventually(async () => {
    const [now, ...more] = await subscribers()
    expect(more).toEqual([])
    expect(now).toMatch(/id/)
    expect(now).not.toBe(silent[0])
  })
  await story.send('chat', { do: 'echo' })
  await story.settled()
  await story.send('other', { do: 'hang' })
  await fleet.saw('start', 'other')
  await story.stop('other')
  expect(await fleet.saw('signal', 'other')).toMatchObject({ reason: 'stopped' })
  await story.end({ noReruns: true })
})

test('I8 · a process that read too slowly and was cut off by Redis hears again, and what it missed is found (PS-04)', async () => {
  const story = await beginStory({ workers: 1, own: { redis: true } })
  const { fleet, redis, prefix } = story
  const slow = fleet.workers[0]!
  await redis.config('SET', 'client-output-buffer-limit', 'pubsub 1mb 1mb 1')
  await story.send('chat', { do: 'echo' })
  await story.settled()
  const keys = new Keys(prefix)
  const channel = keys.processChannel(slow.processId)
  const hears = async () => Number((await redis.pubsub('NUMSUB', channel))[1]) === 1
  slow.freeze()
  const missed = `wake ${'x'.repeat(500_000)}`
  await until(async () => {
    await redis.publish(channel, missed)
    return !(await hears())
  })
  await story.send('chat', { do: 'echo' })
  slow.thaw()
  await story.settled()
  await until(hears)
  expect(await story.outcomes('chat')).toEqual(['1 completed', '2 completed'])
  await story.end()
})
