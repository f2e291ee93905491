// More work than slots.
import { afterEach, expect, test } from 'vitest'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

test('I8 · one session with a long backlog does not keep a hundred others waiting (QO-07)', async () => {
  const story = await beginStory({ tunables: { concurrency: 2 } })
  const { fleet } = story
  await story.local()
  await story.send('long', { do: 'gate', name: 'go' })
  await fleet.saw('start', 'long')
  await Promise.all(Array.from({ length: 120 }, () => story.send('long', { do: 'echo' })))
  await Promise.all(Array.from({ length: 100 }, (_, n) => story.send(`short-${n}`, { do: 'echo' })))
  await fleet.open('go')
  await story.settled()
  const ends = fleet.history().filter(({ what }) => what === 'end')
  const lastShort = ends.findLastIndex(({ session }) => session !== 'long')
  // It had its turns in between, and most of them afterwards.
  expect(ends.slice(lastShort).filter(({ session }) => session === 'long').length).toBeGreaterThan(40)
  await story.end({ noReruns: true })
})

test('I8 · a full process gives sessions that wait there to one that has a free slot', async () => {
  // No sweep within the test: giving away is what must do it.
  const story = await beginStory({ tunables: { concurrency: 1, sweepMs: 300_000 } })
  const { fleet } = story
  const full = await story.local()
  await story.send('first', { do: 'gate', name: 'go' })
  await fleet.saw('start', 'first')
  await story.send('second', { do: 'echo' })
  await fleet.waitFor(() => full.stats().waiting === 1)
  const { processId } = await story.local()
  expect(await fleet.saw('start', 'second')).toMatchObject({ process: processId })
  await fleet.open('go')
  await story.end({ noReruns: true })
})
