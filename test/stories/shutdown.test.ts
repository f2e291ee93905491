// A process is told to leave while a store is frozen: it cannot hand its turn over in order, and leaves all the same.
import { afterEach, expect, test } from 'vitest'
import { freeze } from '../support/services.ts'
import { beginStory, endStories } from '../support/story.ts'

afterEach(endStories)

test.each([
  ['Redis', ['redis']],
  ['MySQL', ['mysql']],
  ['both', ['redis', 'mysql']],
] as const)(
  'I8 · SIGTERM ends a process although %s does not answer, and its session goes on afterwards (SD-05)',
  async (_what, stores) => {
    const story = await beginStory({
      workers: 2,
      own: { redis: true, mysql: true },
      tunables: { mysqlTimeoutMs: 500, enqueueTimeoutMs: 1500 },
    })
    const { fleet, servers } = story
    await story.send('chat', { do: 'steps', count: 2, holdAt: 1, gate: 'go' })
    const { process } = await fleet.saw('waiting', 'chat')
    const busy = fleet.byProcess(process)
    const [idle] = fleet.except(busy)
    for (const store of stores) await freeze(servers[store])
    const since = performance.now()
    for (const member of [busy, idle!]) member.terminate()
    expect(await Promise.all([busy.exited, idle!.exited])).toEqual(['0', '0'])
    // Half a second of grace, five to hand over, and the deadlines of both stores.
    expect(performance.now() - since).toBeLessThan(30_000)
    for (const store of stores) servers[store]?.kill('SIGCONT')
    await fleet.open('go')
    await story.local()
    await story.settled()
    expect((await story.outcomes('chat')).at(-1)).toBe('1 completed')
    await story.end()
  },
)
