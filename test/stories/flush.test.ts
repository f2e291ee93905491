// Redis forgets everything, or remembers something old, in the middle of a turn.
import { afterEach, expect, test } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { beginStory, endStories, type Story } from '../support/story.ts'

afterEach(endStories)

/** Two workers, a turn at its gate and more work waiting behind it and beside it. */
async function busyFleet(): Promise<Story> {
  const story = await beginStory({ own: { redis: true } })
  await story.local()
  await story.local()
  await story.send('chat', { do: 'steps', count: 3, holdAt: 1, gate: 'go' })
  await story.fleet.saw('waiting', 'chat')
  await story.send('chat', { do: 'echo' })
  return story
}

const lockOf = (story: Story) => story.redis.get(story.key('chat', 'lock')).catch(() => null)

async function expectUndisturbed(story: Story): Promise<void> {
  await story.fleet.open('go')
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 completed', '2 completed', '3 completed'])
  await story.end({ noReruns: true })
}

test('I4 · a flush of Redis neither ends nor repeats the running turn, and its lock is taken back', async () => {
  const story = await busyFleet()
  const token = await lockOf(story)
  await story.redis.flushall()
  // Whoever hears of this finds a free lock and must be refused by the row.
  await story.send('chat', { do: 'echo' })
  await eventually(async () => expect(await lockOf(story)).toBe(token))
  await expectUndisturbed(story)
})

test('I4 · a Redis that comes back empty costs nothing: the running turn goes on and everything is found again', async () => {
  const story = await busyFleet()
  const token = await lockOf(story)
  await story.servers.redis?.restart({ empty: true })
  await story.send('chat', { do: 'echo' })
  await eventually(async () => expect(await lockOf(story)).toBe(token))
  await expectUndisturbed(story)
})

test("I4 · a stranger's old lock in place of the running owner's ends nothing, and gives way when it expires", async () => {
  const story = await busyFleet()
  await story.redis.set(story.key('chat', 'lock'), 'OLDPROCESS01.0123456789ABCDEF')
  await story.send('chat', { do: 'echo' })
  await expectUndisturbed(story)
})

test('I2 · queue entries that are missing, doubled, reordered or foreign change nothing about what runs', async () => {
  const story = await busyFleet()
  const queue = story.key('chat', 'queue')
  const [first = ''] = await story.redis.lrange(queue, 0, -1)
  await story.redis.lpush(queue, first, '1:m-old', '999:m-future', 'not a reference', '')
  await story.redis.lpush(story.key('chat', 'processing'), first, 'junk')
  await story.send('chat', { do: 'echo' })
  await expectUndisturbed(story)
})
