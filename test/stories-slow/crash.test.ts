// The times of production: lock 30 s, renewal 10 s, sweep 5 s. A user waits at most five seconds for a dead worker.
import { afterEach, expect, test } from 'vitest'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

test('I8 · with production times a killed worker is replaced within five seconds of its death', async () => {
  const story = await beginStory({ workers: 1, tunables: { lockTtlMs: 30_000 } })
  const { fleet } = story
  await story.send('chat', { do: 'steps', count: 3, holdAt: 1, gate: 'go' })
  await fleet.saw('waiting', 'chat')
  const { processId } = await story.local()
  // A judge must have been listening for longer than the silence it judges.
  await new Promise((resolve) => setTimeout(resolve, 4000))
  const killedAt = Number(process.hrtime.bigint())
  await fleet.workers[0]?.kill()
  const again = await fleet.saw('start', 'chat', 1, 2)
  expect(again.process).toBe(processId)
  expect((again.ns - killedAt) / 1e6).toBeLessThan(5000)
  await fleet.open('go')
  await story.end()
})

test('I8 · with production times a frozen worker is replaced within its lock and two sweeps', async () => {
  const story = await beginStory({ workers: 1, tunables: { lockTtlMs: 30_000 } })
  const { fleet } = story
  await story.send('chat', { do: 'steps', count: 3, holdAt: 1, gate: 'go' })
  await fleet.saw('waiting', 'chat')
  await story.local()
  const frozenAt = Number(process.hrtime.bigint())
  fleet.workers[0]?.freeze()
  const again = await fleet.saw('start', 'chat', 1, 2, { ms: 60_000 })
  // The lock's 30 s, the sweep that finds it, 4 s without a heartbeat, one second for the old owner to notice.
  expect((again.ns - frozenAt) / 1e6).toBeLessThan(42_000)
  await fleet.open('go')
  await story.end()
})

test('I4 · with production times a flush of Redis leaves the running turn alone', async () => {
  const story = await beginStory({ own: { redis: true }, tunables: { lockTtlMs: 30_000 } })
  const { fleet } = story
  await story.local()
  await story.local()
  await story.send('chat', { do: 'gate', name: 'go' })
  await fleet.saw('start', 'chat')
  await story.redis.flushall()
  await story.send('chat', { do: 'echo' })
  await new Promise((resolve) => setTimeout(resolve, 12_000))
  await fleet.open('go')
  await story.settled()
  await story.end({ noReruns: true })
})
