// An operator or a restore removed rows that the session's numbers still count.
import { afterEach, expect, test } from 'vitest'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

test('I1 · a message whose row is gone is recorded as missing, loudly, and the session goes on', async () => {
  const story = await beginStory()
  const { fleet } = story
  await story.local()
  await story.send('chat', { do: 'gate', name: 'go' })
  await fleet.saw('start', 'chat')
  for (let n = 0; n < 3; n++) await story.send('chat', { do: 'echo' })
  await story.sql("delete from butler_messages where session_id = 'chat' and seq in (2, 3)")
  await fleet.open('go')
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 completed', '2 missing', '3 missing', '4 completed'])
  expect(fleet.events('message.missing').map(({ fields }) => fields)).toMatchObject([
    { session: 'chat', seq: 2 },
    { session: 'chat', seq: 3 },
  ])
  await story.end({ noReruns: true, missing: ['chat 2', 'chat 3'] })
})
