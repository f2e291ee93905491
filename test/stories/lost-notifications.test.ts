// Nothing that is published arrives: whatever a notification would have done, the sweep and the look at MySQL do later.
import { afterEach, expect, test } from 'vitest'
import { createClient } from '../../src/index.ts'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

test('I8 · with every notification lost, messages are found by the sweep and stops by the look at the rows (PS-09)', async () => {
  const story = await beginStory({ own: { redis: true } })
  await story.redis.call('ACL', 'SETUSER', 'mute', 'on', '>mute', '~*', '&*', '+@all', '-publish')
  const redisUrl = story.redisUrl.replace('redis://', 'redis://mute:mute@')
  await story.local({ redisUrl })
  await story.local({ redisUrl })
  const { prefix, mysqlUrl: mysql, tunables, fleet } = story
  const client = createClient({ redis: redisUrl, mysql, logger: false, prefix, ...tunables })
  try {
    const sent = await Promise.all(
      ['a', 'b', 'c'].map((id) => client.enqueue(id, { payload: { do: 'hang' } })),
    )
    for (const [index, id] of ['a', 'b', 'c'].entries())
      story.accepted.push({ sessionId: id, ...sent[index]! })
    await Promise.all(['a', 'b', 'c'].map((id) => fleet.saw('start', id)))
    for (const id of ['a', 'b', 'c']) await client.stop(id)
    for (const id of ['a', 'b', 'c'])
      expect(await fleet.saw('signal', id)).toMatchObject({ reason: 'stopped' })
    // A session that is idle here, woken by nothing.
    await story.settled()
    const since = performance.now()
    for (let round = 0; round < 5; round++) {
      const { seq, id } = await client.enqueue('a', { payload: { do: 'echo' } })
      story.accepted.push({ sessionId: 'a', seq, id })
      await story.settled()
    }
    // Each waits for a sweep, or for two: five seconds at most, and the machine may be busy.
    expect(performance.now() - since).toBeLessThan(15_000)
    expect((await story.outcomes('a')).slice(0, 2)).toEqual(['1 stopped', '2 completed'])
  } finally {
    await client.close()
  }
  await story.end({ noReruns: true })
})
