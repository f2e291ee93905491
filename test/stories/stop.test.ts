// Somebody presses Stop: before, while, after; once, twice, together; and on a handler that does not care.
import { afterEach, expect, test } from 'vitest'
import { createClient } from '../../src/index.ts'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

test('I5 · what is stopped before any worker has seen it never starts; what comes after it does', async () => {
  const story = await beginStory()
  await story.send('chat', { do: 'echo' })
  await story.send('chat', { do: 'echo' })
  expect(await story.stop('chat')).toMatchObject({ through: 2, running: null })
  await story.send('chat', { do: 'echo' })
  await story.local()
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 stopped', '2 stopped', '3 completed'])
  await story.end({ noReruns: true })
})

test('I5 · many people pressing Stop several times is one stop, and spares what is sent afterwards (ST-04, ST-10)', async () => {
  const story = await beginStory()
  await story.local()
  await story.local()
  await story.send('chat', { do: 'hang' })
  await story.send('chat', { do: 'echo' })
  await story.fleet.saw('start', 'chat')
  const receipts = await Promise.all(
    Array.from({ length: 20 }, (_, n) => story.stop('chat', n % 2 ? { through: 1 } : {})),
  )
  expect(receipts.map(({ through }) => through)).toEqual(receipts.map(() => 2))
  await story.send('chat', { do: 'echo' })
  await story.settled()
  // Of what is over, while the next one runs.
  await story.send('chat', { do: 'gate', name: 'go' })
  await story.fleet.saw('start', 'chat', 4)
  expect(await story.stop('chat', { through: 2 })).toMatchObject({ through: 2, running: null })
  await story.fleet.open('go')
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

test('I3 · a handler that ignores Stop is detached: the next message runs, and nothing it still writes is kept (ST-07)', async () => {
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

test('I5 · a stop takes effect on a hundred waiting messages at once, not after the turn in front of them (ST-13)', async () => {
  const story = await beginStory()
  await story.local()
  await story.send('chat', { do: 'hang' })
  await story.fleet.saw('start', 'chat')
  await Promise.all(Array.from({ length: 100 }, () => story.send('chat', { do: 'echo' })))
  await story.stop('chat')
  await story.fleet.saw('signal', 'chat')
  expect(await story.client.queue('chat')).toEqual([])
  await story.send('chat', { do: 'echo' })
  await story.settled()
  expect(await story.outcomes('chat')).toEqual([
    ...Array.from({ length: 101 }, (_, n) => `${n + 1} stopped`),
    '102 completed',
  ])
  await story.end({ noReruns: true })
})

test('I5 · the turn of a process that dies before it is stopped is fenced, and quiet once that is known', async () => {
  const story = await beginStory({ workers: 1 })
  await story.send('chat', { do: 'hang' })
  const { process } = await story.fleet.saw('start', 'chat')
  await story.local()
  story.fleet.byProcess(process).freeze()
  const stopping = story.stop('chat', { waitMs: 30_000 })
  await story.fleet.byProcess(process).kill()
  const receipt = await stopping
  expect(receipt).toMatchObject({ running: 1, quiet: true, outcomes: [{ seq: 1, outcome: 'fenced' }] })
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 lost', '1 stopped'])
  await story.end({ noReruns: true })
})

test('I5 · a producer that goes away stops nothing; somebody else’s stop does (ST-09)', async () => {
  const story = await beginStory()
  await story.local()
  const { redisUrl: redis, mysqlUrl: mysql, prefix } = story
  const producer = createClient({ redis, mysql, prefix, logger: false })
  const { seq, id } = await producer.enqueue('chat', {
    payload: { do: 'steps', count: 2, holdAt: 1, gate: 'go' },
  })
  story.accepted.push({ sessionId: 'chat', seq, id })
  await story.fleet.saw('waiting', 'chat')
  await producer.close()
  expect(story.fleet.history().filter(({ what }) => what === 'signal')).toEqual([])
  expect(await story.client.inspect('chat')).toMatchObject({ state: 'running' })
  await story.stop('chat')
  expect(await story.fleet.saw('signal', 'chat')).toMatchObject({ reason: 'stopped' })
  await story.end({ noReruns: true })
})
