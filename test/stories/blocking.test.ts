// A handler blocks its process's event loop for longer than a lock lives, while another worker is alive.
import { afterEach, expect, test } from 'vitest'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

test('I3 · a turn that blocks its process is superseded, and so are those beside it; what it does afterwards is refused, and the stall is reported (EL-01)', async () => {
  const story = await beginStory({ workers: 1 })
  const { fleet } = story
  const blocked = fleet.workers[0]!
  const beside = Array.from({ length: 10 }, (_, n) => `beside-${n}`)
  for (const session of beside) await story.send(session, { do: 'gate', name: 'enough' })
  await Promise.all(beside.map((session) => fleet.saw('start', session)))
  await story.send('chat', { do: 'block', gate: 'enough' })
  await fleet.saw('start', 'chat')
  await story.send('chat', { do: 'echo' })
  const rescuer = await fleet.spawn()
  expect(await fleet.saw('start', 'chat', 1, 2, { ms: 25_000 })).toMatchObject({ process: rescuer.processId })
  await Promise.all(beside.map((session) => fleet.saw('start', session, 1, 2, { ms: 25_000 })))
  await fleet.open('enough')
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 lost', '1 completed', '2 completed'])
  await fleet.waitFor(() =>
    fleet.events('worker.stalled').some(({ process }) => process === blocked.processId),
  )
  await fleet.waitFor(() => fleet.events('turn.lost').some(({ process }) => process === blocked.processId))
  await story.send('chat', { do: 'echo' })
  await story.end()
})
