// Redis cannot be reached: accepting, stopping and finishing go on, only starting waits.
import { afterEach, expect, test } from 'vitest'
import { beginStory, endStories } from '../support/story.ts'
import { until } from '../support/eventually.ts'

afterEach(endStories)

test('I1 · without Redis messages are accepted, stopped and finished; what waits starts when it is back (ST-06)', async () => {
  const story = await beginStory({ own: { redis: true } })
  const { fleet } = story
  await story.local()
  await story.local()
  await story.send('running', { do: 'gate', name: 'go' })
  await story.send('stopped', { do: 'hang' })
  await Promise.all([fleet.saw('start', 'running'), fleet.saw('start', 'stopped')])

  story.servers.redis?.kill('SIGKILL')
  await until(() => story.servers.redis?.pid === undefined)
  await story.send('running', { do: 'echo' })
  await story.send('new', { do: 'echo' })
  expect(await story.stop('stopped')).toMatchObject({ through: 1, running: 1 })
  expect(await fleet.saw('signal', 'stopped')).toMatchObject({ reason: 'stopped' })
  // Longer than a lock lives: MySQL alone keeps the turn.
  const since = performance.now()
  await until(() => performance.now() - since > 3500)
  await fleet.open('go')
  await until(async () => (await story.outcomes('running')).includes('1 completed'))
  await until(async () => (await story.outcomes('stopped')).includes('1 stopped'))
  expect((await story.client.inspect('new')).starts).toBe(0)

  await story.servers.redis?.restart()
  await story.settled()
  expect(await story.outcomes('running')).toEqual(['1 completed', '2 completed'])
  expect(await story.outcomes('new')).toEqual(['1 completed'])
  await story.end({ noReruns: true })
})
