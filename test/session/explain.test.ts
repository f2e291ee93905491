// Why a session does not move: each situation made on real servers, and what the answer says of it.
import { hostname } from 'node:os'
import { sql } from 'kysely'
import { createPool } from 'mysql2/promise'
import { expect, test } from 'vitest'
import type { Client, Explanation, VerdictCode } from '../../src/index.ts'
import { freeze, ownRedis } from '../support/services.ts'
import { lineTo } from '../traps/line.ts'
import { aborted, eventually, failure, FAST, openHouse, signal } from './house.ts'

const house = openHouse()

/** Asks until the answer has this code; what is asked for has happened, and may only not be seen yet. */
const explained = (client: Client, id: string, code: VerdictCode): Promise<Explanation> =>
  eventually(async () => {
    const explanation = await client.explain(id)
    expect(explanation.verdict).toMatchObject({ code })
    return explanation
  })

test('an idle session has nothing to do, and its history and its owner are told', async () => {
  const client = house.client()
  const id = house.sessionId()
  const worker = await house.worker(() => 'secret')
  for (const text of ['secret 1', 'secret 2']) await client.enqueue(id, text)
  await house.settled(client, id)
  const { processId } = worker
  // The lock turns idle after the row, and a heartbeat tells of free slots when it comes.
  const explanation = await eventually(async () => {
    const told = await client.explain(id)
    expect(told).toMatchObject({
      verdict: { code: 'idle' },
      session: { id, state: 'idle', inboxSeq: 2, doneSeq: 2, waitsFor: null },
      owner: { process: processId, alive: true, draining: false, host: hostname(), pid: process.pid },
      lock: { kind: 'idle', process: processId, ofOwner: true, leftMs: expect.any(Number) },
      queue: { waiting: 0, first: [] },
      turn: null,
      attempts: null,
      processes: [{ process: processId, free: 100, kinds: ['*'], pid: process.pid }],
    })
    return told
  })
  expect(explanation.transitions.map(({ seq, attempt, outcome }) => [seq, attempt, outcome])).toEqual([
    [1, 1, null],
    [1, 1, 'completed'],
    [2, 1, null],
    [2, 1, 'completed'],
  ])
  // A token is nobody's business, and no payload is in it.
  const { owner } = await client.inspect(id)
  expect(JSON.stringify(explanation)).not.toContain(owner)
  expect(JSON.stringify(explanation)).not.toContain('secret')
})

test('a running turn is told with what it last did; behind it messages wait', async () => {
  const client = house.client()
  const id = house.sessionId()
  const [begun, go] = [signal(), signal()]
  const worker = await house.worker(async (turn) => {
    await turn.step('look', () => ({ secret: 1 }))
    await turn.append({ type: 'thought', payload: 'secret' })
    begun.resolve()
    await go.promise
  })
  await client.enqueue(id, 'secret')
  await begun.promise
  for (let n = 0; n < 12; n++) await client.enqueue(id, { kind: 'note', payload: 'secret' })
  await client.withdraw(id, 3)
  const explanation = await explained(client, id, 'running')
  expect(explanation).toMatchObject({
    session: { state: 'running', runningSeq: 1 },
    owner: { process: worker.processId, alive: true },
    lock: { kind: 'busy', process: worker.processId, ofOwner: true },
    turn: {
      seq: 1,
      attempt: 1,
      since: expect.any(String),
      lastEntry: { type: 'thought', stepKey: null },
      lastStep: { type: 'step', stepKey: 'look' },
    },
    attempts: { seq: 1, found: true, starts: 1, failures: 0, stopped: false, suspect: false },
  })
  expect(explanation.queue.waiting).toBe(12)
  expect(explanation.queue.first.map(({ seq }) => seq)).toEqual([2, 4, 5, 6, 7, 8, 9, 10, 11, 12])
  expect(explanation.queue.first[0]).toEqual({
    seq: 2,
    kind: 'note',
    version: 1,
    ageMs: expect.any(Number),
  })
  expect(JSON.stringify(explanation)).not.toContain('secret')
  const { lastEntry, ageMs } = explanation.turn!
  expect(lastEntry!.ageMs).toBeGreaterThanOrEqual(0)
  expect(ageMs).toBeGreaterThanOrEqual(lastEntry!.ageMs)
  go.resolve()
  await client.stop(id)
})

test('the rows are of one moment, whatever is committed in between', async () => {
  const id = house.sessionId()
  const line = await lineTo(house.url)
  const [client, other] = [house.client({ mysql: line.url }), house.client()]
  try {
    await other.enqueue(id, 'x')
    const held = line.hold(/from `butler_messages`/)
    const asked = client.explain(id)
    await held.seen
    await other.enqueue(id, 'y')
    await other.stop(id, { through: 1 })
    const worker = await house.worker(() => 'done')
    await house.settled(other, id)
    await worker.stop()
    held.release()
    expect(await asked).toMatchObject({
      session: { inboxSeq: 1, stopSeq: 0 },
      attempts: { seq: 1, found: true },
      queue: { waiting: 1, first: [{ seq: 1 }] },
      transitions: [],
    })
  } finally {
    await line.close()
  }
})

test('ages are by the database’s clock', async () => {
  const client = house.client()
  const id = house.sessionId()
  await client.enqueue(id, 'x')
  const ago = sql`utc_timestamp(3) - interval 90 minute`
  await sql`update butler_messages set created_at = ${ago} where session_id = ${id}`.execute(house.mysql.db)
  const { at, queue } = await client.explain(id)
  const { rows } = await sql<{ now: Date }>`select utc_timestamp(3) as now`.execute(house.mysql.db)
  expect(queue.first[0]!.ageMs / 60_000).toBeCloseTo(90, 0)
  expect(Math.abs(Date.parse(at) - rows[0]!.now.getTime())).toBeLessThan(20_000)
})

test('a stopped turn that has not ended is stopping', async () => {
  const client = house.client()
  const id = house.sessionId()
  const [begun, go] = [signal(), signal()]
  await house.worker(
    async (turn) => {
      begun.resolve()
      await aborted(turn.signal)
      await go.promise
    },
    { stopGraceMs: 60_000 },
  )
  await client.enqueue(id, 'x')
  await client.enqueue(id, 'y')
  await begun.promise
  await client.stop(id)
  expect(await explained(client, id, 'stopping')).toMatchObject({
    session: { stopSeq: 2 },
    queue: { waiting: 0, first: [] },
    attempts: { stopped: true },
  })
  go.resolve()
  await house.settled(client, id)
})

test('a failed message is put off, until when is told', async () => {
  const client = house.client({ maxCrashes: 2 })
  const id = house.sessionId()
  await house.worker(() => Promise.reject(new Error('secret')), { retryDelaysMs: [60_000] })
  await client.enqueue(id, 'x')
  const { attempts, verdict, transitions } = await explained(client, id, 'backing-off')
  expect(attempts).toMatchObject({ failures: 1, starts: 1, suspect: false, retryAt: expect.any(String) })
  expect(attempts!.retryInMs).toBeGreaterThan(30_000)
  expect(verdict.why).toMatch(/ for another (?:[3-5]\d|60) s\.$/)
  expect(transitions.map(({ outcome }) => outcome)).toEqual([null, 'retrying'])
  await sql`update butler_sessions set crashes = 1 where id = ${id}`.execute(house.mysql.db)
  expect((await client.explain(id)).attempts).toMatchObject({ crashes: 1, suspect: true })
})

test('a message that nobody can run says what it asks for; the fleet is listed', async () => {
  const client = house.client()
  const [unheard, newer] = [house.sessionId(), house.sessionId()]
  await client.enqueue(unheard, { kind: 'unheard', payload: 'x' })
  await client.enqueue(newer, { kind: 'chat', payload: 'x' }, {})
  expect((await client.explain(unheard)).verdict.code).toBe('nobody-there')
  await sql`update butler_messages set version = 2 where session_id = ${newer}`.execute(house.mysql.db)
  const worker = await house.worker(undefined, { handlers: { chat: () => 'done' } })
  expect((await explained(client, unheard, 'no-capable-process')).verdict.why).toContain('kind unheard')
  const told = await explained(client, newer, 'no-capable-process')
  expect(told.verdict.why).toContain('version 2')
  expect(told).toMatchObject({ processes: [], queue: { first: [{ seq: 1, kind: 'chat', version: 2 }] } })
  const fleet = await eventually(async () => {
    const processes = await client.fleet()
    expect(processes).toHaveLength(1)
    return processes
  })
  expect(fleet[0]).toEqual({
    process: worker.processId,
    host: hostname(),
    pid: process.pid,
    kinds: ['chat'],
    version: 1,
    // It has a look at each of them in a slot.
    free: expect.any(Number),
    draining: false,
    ageMs: expect.any(Number),
  })
  expect(fleet[0]!.ageMs).toBeLessThanOrEqual(FAST.lockTtlMs / 10)
})

test('when all that can are full, it waits for a slot', async () => {
  const client = house.client()
  const [id, other] = [house.sessionId(), house.sessionId()]
  const [begun, go] = [signal(), signal()]
  await house.worker(
    async () => {
      begun.resolve()
      await go.promise
    },
    { concurrency: 1 },
  )
  await client.enqueue(other, 'x')
  await begun.promise
  await client.enqueue(id, 'x')
  expect(await explained(client, id, 'all-full')).toMatchObject({ processes: [], lock: { kind: 'none' } })
  go.resolve()
  await house.settled(client, id)
  expect((await client.explain(id)).verdict.code).toBe('idle')
})

test('a stranger’s lock is in the way, whoever it is; one that is no string is not', async () => {
  const client = house.client()
  const id = house.sessionId()
  const key = house.keys.lock(id)
  await client.enqueue(id, 'x')
  await house.redis.set(key, 'Stranger.token', 'PX', 60_000)
  const stranger = await client.explain(id)
  expect(stranger).toMatchObject({
    verdict: { code: 'lock-held-by-stranger' },
    owner: null,
    lock: { kind: 'busy', process: 'Stranger', ofOwner: false },
  })
  expect(stranger.lock!.leftMs).toBeGreaterThan(30_000)
  await house.redis.set(key, 'no token at all')
  expect(await client.explain(id)).toMatchObject({
    verdict: { code: 'lock-held-by-stranger' },
    lock: { kind: 'busy', process: null, leftMs: null },
  })
  await house.redis.set(key, 'Stranger.token/idle', 'PX', 60_000)
  expect(await client.explain(id)).toMatchObject({
    verdict: { code: 'nobody-there' },
    lock: { kind: 'idle', process: 'Stranger' },
  })
  await house.redis.del(key)
  await house.redis.lpush(key, 'junk')
  expect(await client.explain(id)).toMatchObject({
    verdict: { code: 'nobody-there' },
    lock: { kind: 'unreadable', process: null },
  })
})

test('a message whose row is missing asks for no handler', async () => {
  const client = house.client()
  const id = house.sessionId()
  const worker = await house.worker(undefined, { handlers: { other: () => 'done' } })
  await client.enqueue(id, { kind: 'unheard', payload: 'x' })
  await explained(client, id, 'no-capable-process')
  // A living process holds it, so nobody else passes over what is missing.
  await house.redis.set(house.keys.lock(id), `${worker.processId}.else`, 'PX', 60_000)
  await sql`delete from butler_messages where session_id = ${id}`.execute(house.mysql.db)
  expect(await explained(client, id, 'waiting-for-owner')).toMatchObject({
    attempts: { seq: 1, found: false },
    queue: { waiting: 1, first: [] },
    processes: [{ process: worker.processId }],
  })
  await house.redis.del(house.keys.lock(id))
  await house.settled(client, id)
  expect((await client.explain(id)).transitions.at(-1)).toMatchObject({ outcome: 'missing' })
})

test('a deleted session is not there; of a new life the old one’s history is not told', async () => {
  const client = house.client()
  const id = house.sessionId()
  await expect(client.explain(id)).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' })
  const worker = await house.worker(() => 'done')
  await client.enqueue(id, 'x')
  await house.settled(client, id)
  await worker.stop()
  await client.delete(id)
  await expect(client.explain(id)).rejects.toMatchObject({ name: 'NotFoundError', code: 'SESSION_NOT_FOUND' })
  await client.enqueue(id, 'y')
  expect(await client.explain(id)).toMatchObject({
    session: { inboxSeq: 2 },
    queue: { first: [{ seq: 2 }] },
    transitions: [],
  })
})

test('a frozen Redis is said to be away, and everything of MySQL is told all the same', async () => {
  const server = await ownRedis()
  const client = house.client({ redis: server.url })
  const [id, idle, running] = [house.sessionId(), house.sessionId(), house.sessionId()]
  const [begun, go] = [signal(), signal()]
  try {
    await house.worker(
      async (turn) => {
        if (turn.message.kind !== 'wait') return
        begun.resolve()
        await go.promise
      },
      { redis: server.url, lockTtlMs: 60_000, redisTimeoutMs: 400 },
    )
    await client.enqueue(idle, 'x')
    await house.settled(client, idle)
    await client.enqueue(running, { kind: 'wait', payload: 'x' })
    await begun.promise
    await freeze(server)
    await client.enqueue(id, 'x')
    const told = await client.explain(id)
    expect(told).toMatchObject({
      verdict: { code: 'redis-unreachable' },
      queue: { waiting: 1, first: [{ seq: 1 }] },
      attempts: { seq: 1, found: true },
      lock: null,
      processes: null,
    })
    expect(await client.explain(idle)).toMatchObject({ verdict: { code: 'idle' }, lock: null })
    const away = await client.explain(running)
    expect(away).toMatchObject({
      verdict: { code: 'running' },
      owner: { process: expect.any(String), alive: null, draining: null, host: null, pid: null },
      turn: { seq: 1, attempt: 1 },
    })
    expect(away.verdict.why).toContain('Redis does not answer')
    expect(await failure(client.fleet())).toMatchObject({ code: 'REDIS_UNAVAILABLE' })
  } finally {
    server.kill('SIGCONT')
    go.resolve()
    await house.settled(client, running).catch(() => undefined)
    await house.close()
    await server.stop()
  }
})

test('over a pool of the caller’s it leaves no transaction behind', async () => {
  const pool = createPool({ uri: house.url, connectionLimit: 1, timezone: 'Z' })
  const client = house.client({ mysql: pool })
  const id = house.sessionId()
  try {
    await client.enqueue(id, 'x')
    expect((await client.explain(id)).verdict.code).toBe('nobody-there')
    await expect(client.explain('nobody')).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' })
    // The one connection is in no snapshot any more, and may write.
    await house.client().enqueue(id, 'y')
    expect(await client.enqueue(id, 'z')).toMatchObject({ seq: 3 })
    expect((await client.explain(id)).queue.first.map(({ seq }) => seq)).toEqual([1, 2, 3])
  } finally {
    await client.close()
    await pool.end()
  }
})

test('without MySQL there is no answer', async () => {
  const client = house.client({ mysql: 'mysql://root@127.0.0.1:9/none', mysqlTimeoutMs: 500 })
  expect(await failure(client.explain('any'))).toMatchObject({
    name: 'UnavailableError',
    code: 'MYSQL_UNAVAILABLE',
  })
})
