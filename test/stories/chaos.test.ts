// Connections are killed at random, in both stores, while a fleet works.
import { afterEach, test } from 'vitest'
import { beginStory, endStories } from '../support/story.ts'
import { until } from '../support/eventually.ts'

afterEach(endStories)

const KILLS = 40
const PATIENCE = { ms: 20_000, what: 'messages and kills to alternate' }

test('I4 · killing connections at random for a while loses, reorders and repeats nothing (RD-12, EL-06)', async () => {
  // Lost connections are no reason for a verdict; only the heartbeat of a process that is really away is.
  const story = await beginStory({
    own: { redis: true, mysql: true },
    tunables: { heartbeatTtlMs: 3000, deadAfterMs: 3000, hungAfterMs: 4000 },
  })
  await story.local()
  await story.local()
  let [rounds, kills, sent] = [0, 0, 0]
  const load = Array.from({ length: 8 }, async (_, n) => {
    for (let message = 0; kills < KILLS; message++) {
      const key = `${n}-${message}`
      const script = message % 3 === 0 ? { do: 'steps' as const, count: 3, ms: 20 } : { do: 'echo' as const }
      // Whatever the outage, the same key may be sent again.
      await story.send(`chat-${n}`, script, { idempotencyKey: key })
      sent += 1
      // A few for each round of kills: more would only make the story longer.
      await until(() => kills >= KILLS || message < 3 * (rounds + 1), PATIENCE)
    }
  })
  while (kills < KILLS) {
    const clients = String(await story.redis.client('LIST')).match(/id=\d+(?=.*name=session-butler)/g) ?? []
    const victim = clients[Math.floor(Math.random() * clients.length)]?.slice(3)
    if (victim) kills += Number(await story.redis.client('KILL', 'ID', victim))
    const threads = await story.sql<{ id: number }>(
      "select id from information_schema.processlist where user = 'root' and id <> connection_id()",
    )
    const thread = threads[Math.floor(Math.random() * threads.length)]
    if (thread && Math.random() < 0.5) await story.sql('kill ?', [thread.id]).catch(() => undefined)
    // Something succeeds in between: one kill after the other would only show that nothing works. After the last one
    // nobody may have anything left to send.
    const before = sent
    rounds += 1
    await until(() => sent > before || kills >= KILLS, PATIENCE)
  }
  await Promise.all(load)
  await story.settled()
  await story.end({ noReruns: true })
})
