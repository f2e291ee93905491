// MySQL does not answer, or is gone; and both stores at once.
import { afterEach, expect, test } from 'vitest'
import { eventually, sleep, until } from '../support/eventually.ts'
import { type Proxy, startProxy } from '../support/proxy.ts'
import { freeze } from '../support/services.ts'
import { beginStory, endStories } from '../support/story.ts'

let proxy: Proxy | undefined
afterEach(async () => {
  await endStories()
  await proxy?.close()
})

const tunables = { mysqlTimeoutMs: 500, enqueueTimeoutMs: 1500 }

test('I1 · a frozen MySQL fails enqueue and stop within their deadline; a finishing turn commits when it is back (MY-02)', async () => {
  const story = await beginStory({ own: { mysql: true }, tunables })
  const { fleet, client } = story
  await story.local()
  await story.send('chat', { do: 'steps', count: 2, holdAt: 1, gate: 'go' })
  await fleet.saw('waiting', 'chat')

  await freeze(story.servers.mysql)
  const since = performance.now()
  const outcomes = await Promise.allSettled([
    client.enqueue('chat', { payload: { do: 'echo' } }, { idempotencyKey: 'later' }),
    client.stop('chat', { through: 0 }),
    client.inspect('chat'),
  ])
  expect(performance.now() - since).toBeLessThan(10_000)
  for (const outcome of outcomes) {
    expect(outcome).toMatchObject({ status: 'rejected', reason: { name: 'UnavailableError' } })
  }
  await fleet.open('go')
  await fleet.saw('effect', 'chat')
  story.servers.mysql?.kill('SIGCONT')

  // The answer was lost, not necessarily the message: the same key cannot double it.
  await eventually(() => story.send('chat', { do: 'echo' }, { idempotencyKey: 'later' }))
  await story.send('chat', { do: 'echo' }, { idempotencyKey: 'later' })
  await story.settled()
  expect(await story.outcomes('chat')).toEqual(['1 completed', '2 completed'])
  await story.end({ noReruns: true })
})

test('I1 · a MySQL that is killed and recovers has everything that was accepted, and nothing by halves (MY-01)', async () => {
  const story = await beginStory({ own: { mysql: true }, tunables })
  const { fleet } = story
  await story.local()
  await story.local()
  for (let n = 0; n < 5; n++) await story.send(`chat-${n}`, { do: 'steps', count: 3, holdAt: 2, gate: 'go' })
  await Promise.all([0, 1, 2, 3, 4].map((n) => fleet.saw('waiting', `chat-${n}`)))
  story.servers.mysql?.kill('SIGKILL')
  await until(() => story.servers.mysql?.pid === undefined)
  await fleet.open('go')
  await fleet.saw('effect', 'chat-0')
  await story.servers.mysql?.restart()
  await story.settled()
  await story.end({ noReruns: true })
})

test('I3 · with both stores away for longer than a lock lives, running turns are aborted, and run again afterwards', async () => {
  const story = await beginStory({ own: { redis: true, mysql: true }, tunables })
  const { fleet, servers } = story
  await story.local()
  await story.send('chat', { do: 'gate', name: 'go' })
  await fleet.saw('start', 'chat')
  servers.redis?.kill('SIGSTOP')
  servers.mysql?.kill('SIGSTOP')
  expect(await fleet.saw('signal', 'chat')).toMatchObject({ reason: 'lost' })
  await fleet.saw('abort', 'chat')
  servers.redis?.kill('SIGCONT')
  servers.mysql?.kill('SIGCONT')
  await fleet.open('go')
  await story.settled()
  expect((await story.outcomes('chat')).at(-1)).toBe('1 completed')
  await story.end()
})

test('I4 · a MySQL that answers slowly still confirms the running turn while Redis is away', async () => {
  const story = await beginStory({ own: { redis: true } })
  const { fleet } = story
  proxy = await startProxy(story.mysqlUrl)
  await story.local({ mysqlUrl: proxy.url })
  await story.send('chat', { do: 'gate', name: 'go' })
  await fleet.saw('start', 'chat')
  // A look takes longer than the silence that ends a turn; its answer is no silence.
  proxy.delay(250)
  story.servers.redis?.kill('SIGSTOP')
  // An outage of twice the life of a lock.
  await sleep(2 * (story.tunables.lockTtlMs ?? 0))
  expect(fleet.history().filter(({ what }) => what === 'signal')).toEqual([])
  story.servers.redis?.kill('SIGCONT')
  proxy.delay(0)
  await fleet.open('go')
  await story.end({ noReruns: true })
})
