// A message that takes its process down with it, again and again, and the sessions that happen to run beside it.
import { afterEach, expect, test } from 'vitest'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

test('I1 · a message that kills three processes fails; bystanders finish and its session goes on (CR-02)', async () => {
  const story = await beginStory({ workers: 1, mayCrash: true })
  const { fleet } = story
  const bystanders = ['by-1', 'by-2', 'by-3']
  for (const session of bystanders)
    await story.send(session, { do: 'steps', count: 2, holdAt: 1, gate: 'go' })
  await Promise.all(bystanders.map((session) => fleet.saw('waiting', session)))
  await story.send('poison', { do: 'bomb' })
  await story.send('poison', { do: 'echo' })

  // As a supervisor would: a new process for each that died, until three have.
  for (let died = 1; died <= 3; died++) {
    await fleet.workers.at(-1)?.exited
    // Their locks have expired by the time the next one looks: it must still find that their owner is dead, not hung.
    await story.redis.del(...['poison', ...bystanders].map((session) => story.key(session, 'lock')))
    if (died === 2) await fleet.open('go')
    await fleet.spawn()
  }
  await story.settled()
  expect(await story.outcomes('poison')).toEqual(['1 lost', '1 lost', '1 lost', '1 failed', '2 completed'])
  for (const session of bystanders) {
    const outcomes = await story.outcomes(session)
    expect(outcomes.at(-1)).toBe('1 completed')
    expect(outcomes.filter((outcome) => outcome === '1 lost').length).toBeLessThanOrEqual(2)
  }
  expect(fleet.workers.filter(({ end }) => end === 'SIGABRT').length).toBe(3)
  expect(fleet.events('turn.failed').map(({ fields }) => fields)).toMatchObject([
    { session: 'poison', seq: 1 },
  ])
  await story.end()
})
