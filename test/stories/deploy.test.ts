// A deploy: processes are told to leave while turns run and messages come in. All times are those of production, so that
// whatever waits for a lock to expire or for a sweep is seen to be late.
import { afterEach, expect, test } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

const production = { lockTtlMs: 30_000, drainGraceMs: 300 }

test('I8 · SIGTERM hands a running turn over at once, and its finished steps are not repeated', async () => {
  const story = await beginStory({ workers: 1, tunables: production })
  const { fleet } = story
  const leaving = fleet.workers[0]!
  await story.send('chat', { do: 'steps', count: 3, holdAt: 1, gate: 'go' })
  await fleet.saw('waiting', 'chat')
  await story.send('chat', { do: 'echo' })
  const { processId } = await story.local()
  leaving.terminate()
  expect(await leaving.exited).toBe('0')
  expect(await fleet.saw('start', 'chat', 1, 2)).toMatchObject({ process: processId })
  await fleet.open('go')
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 handed_over', '1 completed', '2 completed'])
  const effects = fleet.history().filter(({ what }) => what === 'effect')
  expect(effects.map(({ step, attempt }) => `${step} ${attempt}`)).toEqual([
    'step-0 1',
    'step-1 2',
    'step-2 2',
  ])
  await story.end()
})

test('I8 · messages that arrive while their owner drains wait quietly and start elsewhere when it lets go', async () => {
  const story = await beginStory({ own: { redis: true }, tunables: { ...production, drainGraceMs: 60_000 } })
  const { fleet } = story
  const leaving = await story.local()
  await story.send('busy', { do: 'gate', name: 'go' })
  await story.send('idle', { do: 'echo' })
  await fleet.saw('start', 'busy')
  await fleet.saw('end', 'idle')
  const { processId } = await story.local()
  const stopped = leaving.stop()
  await story.send('busy', { do: 'echo' })
  await story.send('idle', { do: 'echo' })
  expect(await fleet.saw('start', 'idle', 2)).toMatchObject({ process: processId })
  // Nobody asks again and again for what cannot be had yet (a second in which that would be hundreds of times).
  const published = async () => {
    const stats = await story.redis.info('commandstats')
    return Number(/cmdstat_publish:calls=(\d+)/.exec(stats)?.[1])
  }
  const before = await published()
  await new Promise((resolve) => setTimeout(resolve, 1000))
  expect((await published()) - before).toBeLessThan(50)
  await fleet.open('go')
  await stopped
  expect(await fleet.saw('start', 'busy', 2)).toMatchObject({ process: processId })
  await story.settled()
  await story.end({ noReruns: true })
})

test('I8 · a rolling deploy of three under load loses, reorders and repeats nothing', async () => {
  const story = await beginStory({ tunables: { ...production, drainGraceMs: 100 } })
  const { fleet } = story
  const old = await Promise.all([story.local(), story.local(), story.local()])
  const sessions = Array.from({ length: 12 }, (_, n) => `chat-${n}`)
  let loaded = true
  const load = sessions.map(async (session) => {
    for (let n = 0; loaded; n++) {
      await story.send(session, n % 3 === 0 ? { do: 'steps', count: 3, ms: 40 } : { do: 'echo' })
      await eventually(async () => expect((await story.client.inspect(session)).queueDepth).toBeLessThan(3))
    }
  })
  await fleet.waitFor((lines) => lines.filter(({ what }) => what === 'end').length > 20)
  for (const worker of old) {
    await story.local()
    await worker.stop()
  }
  const done = fleet.history().length
  await fleet.waitFor((lines) => lines.slice(done).filter(({ what }) => what === 'end').length > 20)
  loaded = false
  await Promise.all(load)
  await story.settled()
  const reruns = fleet.history().filter(({ what, attempt = 1 }) => what === 'start' && attempt > 1)
  const handovers = fleet.events('turn.handedOver')
  expect(reruns.length).toBe(handovers.length)
  await story.end()
})

test('I5 · a stop that comes when the old process has left and no new one is there yet is kept for it (ST-02)', async () => {
  const story = await beginStory({ workers: 1, tunables: { ...production, drainGraceMs: 0 } })
  const { fleet } = story
  const leaving = fleet.workers[0]!
  await story.send('chat', { do: 'gate', name: 'never' })
  await story.send('chat', { do: 'echo' })
  await fleet.saw('start', 'chat')
  leaving.terminate()
  expect(await leaving.exited).toBe('0')
  expect(await story.stop('chat')).toMatchObject({ through: 2, running: null })
  await story.send('chat', { do: 'echo' })
  await story.local()
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 handed_over', '1 stopped', '2 stopped', '3 completed'])
  await story.end()
})
