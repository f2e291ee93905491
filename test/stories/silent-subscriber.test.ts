// A worker's subscription looks healthy, but nothing arrives any more.
import { afterEach, expect, test } from 'vitest'
import { beginStory, endStories } from '../support/story.ts'
import { type Proxy, startProxy } from '../support/proxy.ts'

let proxy: Proxy | undefined
afterEach(async () => {
  await endStories()
  await proxy?.close()
})

test('I5 · a stop reaches a worker whose subscription went silent, and the subscription is replaced', async () => {
  const story = await beginStory()
  const { fleet } = story
  proxy = await startProxy(story.redisUrl)
  await story.local({ redisUrl: proxy.url })
  await story.send('chat', { do: 'hang' })
  await fleet.saw('start', 'chat')
  proxy.blackhole({ subscribersOnly: true })
  await story.stop('chat')
  expect(await fleet.saw('signal', 'chat')).toMatchObject({ reason: 'stopped' })
  await story.send('chat', { do: 'echo' })
  await story.settled()
  // Without a sweep in between this one would only be heard by a new subscription.
  await story.send('other', { do: 'hang' })
  await fleet.saw('start', 'other')
  await story.stop('other')
  expect(await fleet.saw('signal', 'other')).toMatchObject({ reason: 'stopped' })
  await story.end({ noReruns: true })
})
