// A worker process is killed in the middle of a turn; a worker that came later takes over.
import { afterEach, expect, test } from 'vitest'
import type { Script } from '../support/probe-handler.ts'
import { beginStory, endStories, type Story } from '../support/story.ts'

afterEach(endStories)

/** One message of `script`, at its closed gate or open call in a process of its own. */
async function underWay(script: Script): Promise<Story> {
  const story = await beginStory({ workers: 1 })
  await story.send('chat', script)
  await story.fleet.waitFor((lines) => lines.find(({ what }) => what === 'waiting'))
  return story
}

const victim = (story: Story) => story.fleet.workers[0]!

test('I8 · a message whose worker is killed mid-turn runs again elsewhere, without its finished steps', async () => {
  const story = await underWay({ do: 'steps', count: 4, holdAt: 2, gate: 'go' })
  const { fleet } = story
  const { processId } = await story.local()
  await story.send('chat', { do: 'echo' })
  await victim(story).kill()
  expect(await fleet.saw('start', 'chat', 1, 2)).toMatchObject({ process: processId })
  await fleet.open('go')
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 lost', '1 completed', '2 completed'])
  const effects = fleet.history().filter(({ what }) => what === 'effect')
  expect(effects.map(({ step, attempt }) => `${step} ${attempt}`)).toEqual([
    'step-0 1',
    'step-1 1',
    'step-2 2',
    'step-3 2',
  ])
  await story.end()
})

test('I4 · a tool call that a killed worker left open gets one interrupted result before the next attempt', async () => {
  const story = await underWay({ do: 'tool', gate: 'go' })
  await victim(story).kill()
  await story.fleet.open('go')
  await story.local()
  await story.settled()
  const entries = await story.transcript('chat')
  expect(entries.map(({ type, callId }) => (callId ? `${type} ${callId}` : type))).toEqual([
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
  expect(entries[3]?.payload).toEqual({ interrupted: true })
  await story.end()
})

test('I5 · a message that is stopped while its dead owner is being replaced does not start again', async () => {
  const story = await underWay({ do: 'gate', name: 'go' })
  await victim(story).kill()
  expect(await story.stop('chat')).toMatchObject({ through: 1, running: 1 })
  await story.send('chat', { do: 'echo' })
  await story.local()
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 lost', '1 stopped', '2 completed'])
  await story.end()
})
