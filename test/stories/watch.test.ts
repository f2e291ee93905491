// Watching a session whose worker process is killed or frozen in mid-reply.
import { afterEach, expect, test } from 'vitest'
import type { WatchEvent } from '../../src/index.ts'
import { expectConsistent, isEntry, story as lines, watch } from '../session/watching.ts'
import { beginStory, endStories, type Story } from '../support/story.ts'

afterEach(endStories)

/** A worker process that streams and writes, whatever its signal says, and somebody who watches. */
async function streaming(): Promise<{ story: Story; watched: ReturnType<typeof watch> }> {
  const story = await beginStory({ workers: 1 })
  await story.send('chat', { do: 'deaf', ms: 60_000, gate: 'enough' })
  const watched = watch(story.client, 'chat')
  await watched.until((event) => event.type === 'delta' && event.index === 3)
  return { story, watched }
}

const attempts = (events: readonly WatchEvent[]) =>
  events.flatMap((event) => (event.type === 'delta' ? [event.attempt] : []))

test('I7 · a crash in mid-reply is a boundary, and the next attempt streams behind it (CR-10)', async () => {
  const { story, watched } = await streaming()
  await story.fleet.workers[0]!.kill()
  await story.local()
  await watched.until((event) => event.type === 'delta' && event.attempt === 2 && event.index === 3)
  const newcomer = watch(story.client, 'chat')
  await newcomer.until((event) => event.type === 'delta')
  expect(attempts(newcomer.events)).toEqual([2])
  await story.fleet.open('enough')
  await Promise.all([watched.until(isEntry('reply')), newcomer.until(isEntry('reply'))])
  await story.settled()
  for (const one of [watched, newcomer]) {
    await one.until((event) => event.type === 'state' && event.state === 'idle')
    expectConsistent(one.events)
    expect(lines(one.events).filter((line) => line.includes('turn_'))).toHaveLength(4)
    await one.leave()
  }
  await story.end()
})

test('I7 · a frozen owner that wakes up streams to nobody any more (SS-13)', async () => {
  const { story, watched } = await streaming()
  const [frozen] = story.fleet.workers
  frozen!.freeze()
  await story.local()
  await watched.until((event) => event.type === 'delta' && event.attempt === 2)
  frozen!.thaw()
  await story.fleet.waitFor((notes) =>
    notes.find(({ what, process }) => what === 'refused' && process === frozen!.processId),
  )
  await story.fleet.open('enough')
  await watched.until(isEntry('reply'))
  await watched.until((event) => event.type === 'state' && event.state === 'idle')
  expectConsistent(watched.events)
  await watched.leave()
  await story.settled()
  await story.end()
})
