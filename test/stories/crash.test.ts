// A worker process is killed in the middle of a turn.
import { afterEach, expect, test } from 'vitest'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

test('I8 · a message whose worker is killed mid-turn runs again elsewhere, without its finished steps', async () => {
  const story = await beginStory({ workers: 2 })
  const { fleet } = story
  await story.send('chat', { do: 'steps', count: 4, holdAt: 2, gate: 'go' })
  await story.send('chat', { do: 'echo' })
  const first = await fleet.waitFor((lines) =>
    lines.find(({ what, step }) => what === 'effect' && step === 'step-1'),
  )
  await fleet.byProcess(first.process).kill()
  const again = await fleet.saw('start', 'chat', 1, 2)
  expect(again.process).not.toBe(first.process)
  await fleet.open('go')
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 lost', '1 completed', '2 completed'])
  const effects = fleet.history().filter(({ what, session }) => what === 'effect' && session === 'chat')
  expect(effects.map(({ step, attempt }) => `${step} ${attempt}`)).toEqual([
    'step-0 1',
    'step-1 1',
    'step-2 2',
    'step-3 2',
  ])
  await story.end()
})

test('I4 · a tool call that a killed worker left open gets one interrupted result before the next attempt', async () => {
  const story = await beginStory({ workers: 2, mayCrash: true })
  await story.send('chat', { do: 'tool', crash: 'between' })
  await story.settled()
  const types = (await story.transcript('chat')).map(({ type, callId }) =>
    callId ? `${type} ${callId}` : type,
  )
  expect(types).toEqual([
    'turn_started',
    'message',
    'tool_call call-1',
    'tool_result call-1',
    'turn_ended',
    'turn_started',
    'tool_call call-2',
    'tool_result call-2',
    'reply',
    'turn_ended',
  ])
  expect((await story.transcript('chat'))[3]?.payload).toEqual({ interrupted: true })
  await story.end()
})
