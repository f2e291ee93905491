// A handler that throws: the same message again, in order, while others move; in the end it has failed.
import { afterEach, expect, test } from 'vitest'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

test('I2 · a failing message is retried before anything behind it runs, and others do not wait for it (QO-06)', async () => {
  const story = await beginStory({ tunables: { concurrency: 1, retryDelaysMs: [700, 700] } })
  const { fleet } = story
  await story.local()
  await story.send('sick', { do: 'fail', times: 2 })
  await story.send('sick', { do: 'echo' })
  await fleet.saw('threw', 'sick')
  // The only slot is free during the wait.
  await story.send('well', { do: 'echo' })
  const well = await fleet.saw('end', 'well')
  const retried = await fleet.saw('end', 'sick', 1, 3)
  expect(well.ns).toBeLessThan(retried.ns)
  await story.settled()
  expect(await story.outcomes('sick')).toEqual(['1 retrying', '1 retrying', '1 completed', '2 completed'])
  await story.end()
})

test('I1 · a message that always fails has failed after its third try, and the session goes on', async () => {
  const story = await beginStory()
  await story.local()
  await story.send('sick', { do: 'fail', times: 99 })
  await story.send('sick', { do: 'echo' })
  await story.settled()
  expect(await story.outcomes('sick')).toEqual(['1 retrying', '1 retrying', '1 failed', '2 completed'])
  await story.end()
})

test('I5 · a stop during the wait before a retry ends the message at once', async () => {
  const story = await beginStory({ tunables: { retryDelaysMs: [60_000] } })
  await story.local()
  await story.send('sick', { do: 'fail', times: 99 })
  await story.fleet.waitFor(async () => (await story.client.inspect('sick')).state === 'retrying')
  await story.stop('sick')
  await story.settled()
  expect(await story.outcomes('sick')).toEqual(['1 retrying', '1 stopped'])
  await story.end()
})

test('I4 · two messages that say the same are two, also when the first one has to be tried again (QO-04)', async () => {
  const story = await beginStory()
  await story.local()
  for (let n = 0; n < 2; n++) await story.send('sick', { do: 'fail', times: 1 })
  await story.settled()
  expect(await story.outcomes('sick')).toEqual(['1 retrying', '1 completed', '2 retrying', '2 completed'])
  await story.end()
})
