// Somebody presses Stop: before, while, after; once, twice, together; and on a handler that does not care.
import { afterEach, expect, test } from 'vitest'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

test('I5 · what is stopped before any worker has seen it never starts; what comes after it does', async () => {
  const story = await beginStory()
  await story.send('chat', { do: 'echo' })
  await story.send('chat', { do: 'echo' })
  expect(await story.stop('chat')).toEqual({ through: 2, running: null })
  await story.send('chat', { do: 'echo' })
  await story.local()
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 stopped', '2 stopped', '3 completed'])
  await story.end({ noReruns: true })
})

test('I5 · two people pressing Stop several times is one stop, and spares what is sent afterwards', async () => {
  const story = await beginStory()
  await story.local()
  await story.local()
  await story.send('chat', { do: 'hang' })
  await story.send('chat', { do: 'echo' })
  await story.fleet.saw('start', 'chat')
  const receipts = await Promise.all([
    story.stop('chat'),
    story.stop('chat'),
    story.stop('chat', { through: 1 }),
  ])
  expect(receipts.map(({ through }) => through)).toEqual([2, 2, 2])
  await story.send('chat', { do: 'echo' })
  await story.settled()
  expect(await story.stop('chat', { through: 2 })).toEqual({ through: 2, running: null })
  await story.send('chat', { do: 'echo' })
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 stopped', '2 stopped', '3 completed', '4 completed'])
  await story.end({ noReruns: true })
})

test('I5 · stops that race with starts in fifty sessions let nothing start below a tombstone', async () => {
  const story = await beginStory()
  await story.local()
  await story.local()
  const sessions = Array.from({ length: 50 }, (_, n) => `chat-${n}`)
  await Promise.all(
    sessions.map(async (session) => {
      await story.send(session, { do: 'sleep', ms: 30 })
      await story.send(session, { do: 'sleep', ms: 30 })
      await story.stop(session)
      await story.send(session, { do: 'echo' })
    }),
  )
  await story.settled()
  for (const session of sessions) expect((await story.outcomes(session)).at(-1)).toBe('3 completed')
  await story.end({ noReruns: true })
})

test('I3 · a handler that ignores Stop is detached: the next message runs, and nothing it still writes is kept', async () => {
  const story = await beginStory()
  const { fleet } = story
  await story.local()
  await story.send('chat', { do: 'deaf', ms: 60_000, gate: 'enough' })
  await story.send('chat', { do: 'deaf', ms: 60_000, gate: 'enough' })
  await fleet.saw('start', 'chat')
  await story.stop('chat', { through: 1 })
  // Both handlers run in this process now, and only the second one's writes count.
  await fleet.saw('start', 'chat', 2)
  await fleet.saw('refused', 'chat', 1)
  const since = fleet.history().length
  await fleet.waitFor((lines) => lines.slice(since).filter(({ what }) => what === 'refused').length > 5)
  await fleet.open('enough')
  await story.settled()
  expect(fleet.history().filter(({ what }) => what === 'wrote')).toEqual([])
  expect(await story.outcomes('chat')).toEqual(['1 stopped', '2 completed'])
  expect(fleet.events('turn.detached').length).toBe(1)
  await story.end({ noReruns: true })
})
