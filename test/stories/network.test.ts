// A slow and lossy network between two workers and both stores: answers are late, out of step, or never come although
// the request was executed.
import { afterEach, expect, test } from 'vitest'
import { sleep } from '../support/eventually.ts'
import { type Proxy, startProxy } from '../support/proxy.ts'
import { beginStory, endStories } from '../support/story.ts'

const proxies: Proxy[] = []
afterEach(async () => {
  await endStories()
  await Promise.all(proxies.splice(0).map((proxy) => proxy.close()))
})

async function proxied(url: string): Promise<Proxy> {
  const proxy = await startProxy(url)
  proxies.push(proxy)
  return proxy
}

test('I4 · answers that are late or lost repeat nothing, lose nothing and change no order', async () => {
  // Lost answers cost heartbeats, too; who is judged here is not the point.
  const story = await beginStory({
    tunables: {
      heartbeatTtlMs: 3000,
      deadAfterMs: 3000,
      hungAfterMs: 4000,
      redisTimeoutMs: 400,
      mysqlTimeoutMs: 2000,
    },
  })
  const paths = await Promise.all(
    [story.redisUrl, story.redisUrl, story.mysqlUrl, story.mysqlUrl].map(proxied),
  )
  const [redis1, redis2, mysql1, mysql2] = paths as [Proxy, Proxy, Proxy, Proxy]
  await story.local({ redisUrl: redis1.url, mysqlUrl: mysql1.url })
  await story.local({ redisUrl: redis2.url, mysqlUrl: mysql2.url })
  for (const proxy of paths) proxy.delay(2, 15)
  let swallowed = 0
  let over: () => void = () => {}
  const end = new Promise<'over'>((resolve) => (over = () => resolve('over')))
  // One lost answer after the other on each path, with time in between for something to succeed.
  const trouble = async (proxy: Proxy, request: string) => {
    while ((await Promise.race([proxy.swallow(request), end])) !== 'over') {
      swallowed += 1
      if ((await Promise.race([sleep(400), end])) === 'over') return
    }
  }
  const troubles = [
    ...[redis1, redis2].map((proxy) => trouble(proxy, 'evalsha')),
    ...[mysql1, mysql2].map((proxy) => trouble(proxy, 'commit')),
  ]
  const sessions = Array.from({ length: 6 }, (_, n) => `chat-${n}`)
  // As long as it takes: without messages there are no answers to lose.
  for (let round = 0; round < 15 || (swallowed < 30 && round < 200); round++) {
    await Promise.all(
      sessions.map((session) =>
        story.send(session, round % 2 ? { do: 'echo' } : { do: 'steps', count: 2, ms: 5 }),
      ),
    )
    await sleep(150)
  }
  expect(swallowed).toBeGreaterThanOrEqual(30)
  over()
  await Promise.all(troubles)
  await story.settled()
  await story.end({ noReruns: true })
})

test.each([
  ['slow, but in time', 100, true],
  ['slower than any deadline', 350, false],
])(
  'I3 I4 · a process whose way to Redis is %s runs its turn to the end, or loses it once and for good (RD-16)',
  async (_what, ms, isInTime) => {
    const story = await beginStory()
    const { fleet } = story
    const redis = await proxied(story.redisUrl)
    await story.local({ redisUrl: redis.url })
    await story.send('chat', { do: 'gate', name: 'go' })
    await fleet.saw('start', 'chat')
    redis.delay(ms)
    await story.local()
    for (let n = 0; n < 5; n++) await story.send(`other-${n}`, { do: 'echo' })
    // Longer than a lock lives.
    await sleep(1.5 * (story.tunables.lockTtlMs ?? 0))
    await fleet.open('go')
    await story.settled()
    const starts = fleet.history().filter(({ what, session }) => what === 'start' && session === 'chat')
    expect(starts.length).toBeLessThanOrEqual(isInTime ? 1 : 2)
    await story.end({ noReruns: isInTime })
  },
)
