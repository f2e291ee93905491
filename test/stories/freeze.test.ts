// A worker process is frozen for longer than its lock lives, is replaced, and then goes on as if nothing had happened.
import { afterEach, expect, test } from 'vitest'
import { eventually, sleep } from '../support/eventually.ts'
import { monitorOf } from '../support/monitor.ts'
import { beginStory, endStories, type Story } from '../support/story.ts'

afterEach(endStories)

/** A handler that keeps writing, whatever its signal says, in a process that is frozen now. */
async function frozenWriter(): Promise<{ story: Story; frozen: Story['fleet']['workers'][0] }> {
  const story = await beginStory({ workers: 1 })
  const frozen = story.fleet.workers[0]!
  await story.send('chat', { do: 'deaf', ms: 60_000, gate: 'enough' })
  await story.fleet.saw('start', 'chat')
  await eventually(async () => expect((await story.transcript('chat')).length).toBeGreaterThan(3))
  frozen.freeze()
  return { story, frozen }
}

test('I3 · a frozen owner that wakes up writes nothing, is told so, and leaves the new owner its lock (SS-13)', async () => {
  const { story, frozen } = await frozenWriter()
  const { fleet } = story
  const { processId } = await story.local()
  expect(await fleet.saw('start', 'chat', 1, 2)).toMatchObject({ process: processId })
  const lock = await story.redis.get(story.key('chat', 'lock'))
  frozen.thaw()
  const theirs = (what: string) => (lines: ReturnType<typeof fleet.history>) =>
    lines.find((line) => line.what === what && line.process === frozen.processId)
  expect(await fleet.waitFor(theirs('signal'))).toMatchObject({ reason: 'lost' })
  expect(await fleet.waitFor(theirs('refused'))).toMatchObject({ attempt: 1 })
  expect(await story.redis.get(story.key('chat', 'lock'))).toBe(lock)
  expect(fleet.history().filter(({ what }) => what === 'wrote')).toEqual([])
  await fleet.open('enough')
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 lost', '1 completed'])
  await story.end()
})

test('I8 · a stale lock of a replaced owner goes when that owner wakes up, and the session goes on', async () => {
  const { story, frozen } = await frozenWriter()
  const { fleet } = story
  const stale = await story.redis.get(story.key('chat', 'lock'))
  expect(stale).toContain(frozen.processId)
  // Without its lock the frozen one is judged by its heartbeat.
  await story.redis.del(story.key('chat', 'lock'))
  const worker = await story.local()
  await fleet.saw('start', 'chat', 1, 2)
  await fleet.open('enough')
  await story.settled()
  await worker.stop()
  // As an old copy of Redis would bring it back.
  await story.redis.set(story.key('chat', 'lock'), String(stale))
  frozen.thaw()
  await eventually(async () => expect(await story.redis.get(story.key('chat', 'lock'))).not.toBe(stale))
  await story.send('chat', { do: 'echo' })
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 lost', '1 completed', '2 completed'])
  await story.end()
})

test('I3 I8 · a process with forty sessions that slept for long owns none of them when it wakes, and storms nobody (EL-07)', async () => {
  // A time of which no part is a round number.
  const story = await beginStory({ workers: 1, own: { redis: true }, tunables: { lockTtlMs: 3113 } })
  const { fleet } = story
  const sleeper = fleet.workers[0]!
  const sessions = Array.from({ length: 40 }, (_, n) => `chat-${n}`)
  for (const session of sessions) await story.send(session, { do: 'gate', name: 'go' })
  await Promise.all(sessions.map((session) => fleet.saw('start', session)))
  sleeper.freeze()
  await story.local()
  await Promise.all(sessions.map((session) => fleet.saw('start', session, 1, 2, { ms: 40_000 })))
  const monitor = await monitorOf(story.redisUrl)
  sleeper.thaw()
  await fleet.waitFor(
    (lines) =>
      lines.filter(({ what, process }) => what === 'signal' && process === sleeper.processId).length === 40,
  )
  monitor.end()
  // Each lock is renewed by both, and what a script does counts too.
  const spent = monitor.lines().filter((line) => line.includes('chat-')).length
  expect(spent / sessions.length).toBeLessThan(200)
  await fleet.open('go')
  await story.settled()
  const starts = fleet.history().filter(({ what }) => what === 'start')
  expect(starts).toHaveLength(80)
  for (const session of sessions) expect(await story.outcomes(session)).toEqual(['1 lost', '1 completed'])
  await story.end()
})

test('I4 · a process that gets a tenth of its time keeps its lease and its turn (EL-02)', async () => {
  const story = await beginStory({ workers: 1, tunables: { hungAfterMs: 6000 } })
  const { fleet } = story
  const starved = fleet.workers[0]!
  await story.send('chat', { do: 'gate', name: 'go' })
  await fleet.saw('start', 'chat')
  await story.local()
  const over = performance.now() + 9000
  while (performance.now() < over) {
    starved.freeze()
    await sleep(270)
    starved.thaw()
    await sleep(30)
  }
  await fleet.open('go')
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 completed'])
  await story.end({ noReruns: true })
})
