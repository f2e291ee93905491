// Cases of trouble with the servers themselves: restarts, role changes, lost scripts, deadlocks, a pool that is too
// small, packets that are too large. The numbers are those of the collected failures.
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { resolveTunables } from '../../src/base/options.ts'
import type { Server } from '../../src/cli/servers.ts'
import { connectMysql } from '../../src/mysql/connect.ts'
import { Inbox } from '../../src/mysql/inbox.ts'
import { toSubmission } from '../../src/session/submission.ts'
import { type Proxy, startProxy } from '../support/proxy.ts'
import { ownMysql, ownRedis } from '../support/services.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type World } from './world.ts'

let redis: Server
let mysql: Server
let world: World
let stage: Stage
beforeAll(async () => {
  ;[redis, mysql] = await Promise.all([ownRedis(), ownMysql(['--max-allowed-packet=1M'])])
})
afterAll(() => Promise.all([redis.stop(), mysql.stop()]))
beforeEach(async () => {
  world = await openWorld({ redisUrl: redis.url, mysqlUrl: mysql.url })
  stage = new Stage()
})
afterEach(() => world.close())

const ids = (count: number) => Array.from({ length: count }, (_, index) => `s${index}`)

/** `each` messages to each session, one after the other, all sessions at once. */
async function send(sessions: readonly string[], each: number): Promise<void> {
  const client = world.newClient({ enqueueTimeoutMs: 25_000 })
  await Promise.all(
    sessions.map(async (id) => {
      for (let index = 1; index <= each; index++)
        await client.enqueue(id, `${index}`, { idempotencyKey: `k${index}` })
    }),
  )
}

/** Every message once, in order, and every session at rest. */
async function expectOrder(sessions: readonly string[], each: number): Promise<void> {
  for (const id of sessions) {
    await eventually(async () => (await world.row(id)).done_seq === each, `${id} done`)
    const completed = (await world.story(id)).filter((line) => line.startsWith('completed'))
    expect(completed).toEqual(Array.from({ length: each }, (_, index) => `completed ${index + 1}`))
  }
  const failed = await world.rows('SELECT session_id, seq FROM butler_messages WHERE status IS NOT NULL')
  expect(failed).toEqual([])
}

test('I1 I2 · scripts that vanish under load go unnoticed (RD-02)', async () => {
  // Patient, because a Redis that does nothing but flush is slow.
  const w1 = await world.worker(stage.handler, { renewMs: 10_000, redisTimeoutMs: 8000 })
  let isOver = false
  const flushing = (async () => {
    while (!isOver) await world.redis.script('FLUSH')
  })()
  await send(ids(5), 6)
  await expectOrder(ids(5), 6)
  isOver = true
  await flushing
  expect(stage.turns.every(({ attempt }) => attempt === 1)).toBe(true)
  expect([...w1.saw('redis.trouble'), ...w1.saw('background.error')]).toEqual([])
})

test('I1 I8 · while the primary is a replica nothing is lost, and work resumes when it is one again (RD-05)', async () => {
  await world.worker(stage.handler)
  await world.redis.call('REPLICAOF', '127.0.0.1', '1')
  await send(ids(4), 3)
  await world.redis.call('REPLICAOF', 'NO', 'ONE')
  await expectOrder(ids(4), 3)
  expect(stage.turns).toHaveLength(12)
})

test('I1 I2 I4 · a database that is killed and restarted under load loses and repeats nothing (MY-01)', async () => {
  const w1 = await world.worker(async (turn) => {
    await turn.step('once', () => 1)
    return stage.handler(turn)
  })
  const sent = send(ids(8), 4)
  for (const beginnings of [3, 12]) {
    await stage.began(beginnings)
    mysql.kill('SIGKILL')
    await mysql.restart()
  }
  await sent
  await expectOrder(ids(8), 4)
  expect(w1.saw('turn.lost')).toEqual([])
  expect(stage.turns).toHaveLength(32)
})

test('I1 · a deadlock repeats the whole transaction (MY-04)', async () => {
  await send(['a', 'b'], 1)
  await send(ids(40), 1)
  const troubles: unknown[] = []
  const pool = connectMysql(world.mysqlUrl, { timeoutMs: 8000 })
  const inbox = new Inbox(pool, { queueMax: 100, onTrouble: (error) => troubles.push(error) })
  const other = await world.admin.getConnection()
  await other.beginTransaction()
  // The one that has changed more is spared.
  await other.query("UPDATE butler_sessions SET updated_at = utc_timestamp(3) WHERE id LIKE 's%'")
  await other.query("UPDATE butler_sessions SET updated_at = utc_timestamp(3) WHERE id = 'b'")
  const resolved = resolveTunables()
  const sent = inbox.accept(
    ['a', 'b'].map((id) => toSubmission(id, 'x', {}, resolved)),
    20_000,
  )
  await world.lockWait("'b'")
  await other.query("UPDATE butler_sessions SET updated_at = utc_timestamp(3) WHERE id = 'a'")
  await other.commit()
  other.release()
  expect(await sent).toMatchObject([{ seq: 2 }, { seq: 2 }])
  await pool.close()
  expect(troubles.map(String).join()).toContain('Deadlock')
  expect([(await world.row('a')).inbox_seq, (await world.row('b')).inbox_seq]).toEqual([2, 2])
})

test('I9 · no connection is held across a handler: a pool of 2 runs 50 turns at once (MY-07)', async () => {
  await world.worker(stage.handler, { mysqlPoolSize: 2 })
  for (const id of ids(50)) await world.client.enqueue(id, 'wait')
  await stage.began(50)
  stage.go()
  for (const id of ids(50)) await world.done(id)
  expect(stage.turns).toHaveLength(50)
})

test('I1 · an entry that no packet can carry fails its own message only (MY-11)', async () => {
  await world.worker(
    async (turn) => {
      await stage.handler(turn)
      return turn.sessionId === 's3' ? 'x'.repeat(2_000_000) : 'small'
    },
    { retryDelaysMs: [10] },
  )
  for (const id of ids(20)) await world.client.enqueue(id, 'hello')
  await world.client.enqueue('s3', 'next')
  for (const id of ids(20)) await world.done(id)
  const failed = await world.rows<{ session_id: string; error: string }>(
    'SELECT session_id, seq, error FROM butler_messages WHERE status IS NOT NULL ORDER BY seq',
  )
  expect(failed.map(({ session_id: id }) => id)).toEqual(['s3', 's3'])
  expect(failed[0]?.error).toContain('PAYLOAD_TOO_LARGE')
})

test('I1 · a server that prepares no statements serves us all the same (MY-12)', async () => {
  await world.run('SET GLOBAL max_prepared_stmt_count = 0')
  try {
    await world.worker(stage.handler)
    await send(ids(10), 3)
    await expectOrder(ids(10), 3)
  } finally {
    await world.run('SET GLOBAL max_prepared_stmt_count = 16382')
  }
})

test.each<[string, (proxy: Proxy) => unknown]>([
  ['ended by the server', () => endThreads()],
  ['cut', (proxy) => proxy.cut()],
  ['silent', (proxy) => proxy.blackhole()],
])(
  'I1 · idle connections that are %s since their last use cost a producer no message (MY-09)',
  async (_what, end) => {
    const proxy = await startProxy(world.mysqlUrl)
    try {
      const client = world.newClient({ mysqlTimeoutMs: 1000, enqueueTimeoutMs: 20_000 }, proxy.url)
      const tell = (text: string) => Promise.all(ids(5).map((id) => client.enqueue(id, text)))
      await tell('1')
      await end(proxy)
      expect((await tell('2')).map(({ seq, duplicate }) => [seq, duplicate])).toEqual(
        ids(5).map(() => [2, false]),
      )
      await client.close()
    } finally {
      await proxy.close()
    }
  },
)

/** What a wait_timeout, a restart of a balancer and an operator do. */
async function endThreads(): Promise<void> {
  const threads = await world.rows<{ id: number }>(
    'SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> connection_id()',
  )
  for (const { id } of threads) await world.run(`KILL ${id}`)
}
