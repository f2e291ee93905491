// What the answer to "why does it not move?" says while the process that runs a turn is killed, or stands still.
import { afterEach, expect, test } from 'vitest'
import type { Explanation, VerdictCode } from '../../src/index.ts'
import { eventually } from '../support/eventually.ts'
import { beginStory, endStories, type Story } from '../support/story.ts'

afterEach(endStories)

const explained = (story: Story, code: VerdictCode): Promise<Explanation> =>
  eventually(async () => {
    const explanation = await story.client.explain('chat')
    expect(explanation.verdict).toMatchObject({ code })
    return explanation
  })

test('a turn whose process was killed has no owner alive, until another takes it over', async () => {
  const story = await beginStory({ workers: 1, mayCrash: true })
  await story.send('chat', { do: 'gate', name: 'go' })
  const { process } = await story.fleet.saw('start', 'chat')
  expect(await explained(story, 'running')).toMatchObject({ owner: { process, alive: true } })
  await story.fleet.byProcess(process).kill()
  const gone = await explained(story, 'owner-gone')
  expect(gone).toMatchObject({
    owner: { process, alive: false, draining: null, pid: null },
    turn: { seq: 1, attempt: 1 },
    processes: [],
  })
  expect(gone.verdict.unblocks).toMatch(/^A worker that is started/)
  await story.local()
  await story.fleet.saw('start', 'chat', 1, 2)
  const { owner, attempts, transitions } = await explained(story, 'running')
  expect(owner?.process).not.toBe(process)
  expect(attempts).toMatchObject({ starts: 2, crashes: 1 })
  expect(transitions.map(({ attempt, outcome }) => [attempt, outcome])).toEqual([
    [1, null],
    [1, 'lost'],
    [2, null],
  ])
  await story.fleet.open('go')
  await story.settled()
  expect((await explained(story, 'idle')).turn).toBeNull()
  await story.end()
})

test('a frozen process is gone as far as anybody sees, and runs on when it wakes', async () => {
  const story = await beginStory({ workers: 1 })
  await story.send('chat', { do: 'gate', name: 'go' })
  const { process } = await story.fleet.saw('start', 'chat')
  const frozen = story.fleet.byProcess(process)
  frozen.freeze()
  expect(await explained(story, 'owner-gone')).toMatchObject({
    session: { runningSeq: 1 },
    owner: { process, alive: false },
  })
  frozen.thaw()
  expect(await explained(story, 'running')).toMatchObject({ owner: { process, alive: true } })
  await story.fleet.open('go')
  await story.settled()
  await story.end()
})
