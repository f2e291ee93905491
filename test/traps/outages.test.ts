// Traps of outages: one process without a database, verdicts on who was merely away, and what a wait for a row costs.
import { sql } from 'kysely'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { connectMysql } from '../../src/mysql/connect.ts'
import { Ledger } from '../../src/mysql/ledger.ts'
import { stop } from '../../src/protocol/intake.ts'
import { until } from '../support/eventually.ts'
import { monitorOf } from '../support/monitor.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type Watched, type World } from './world.ts'

let world: World
beforeEach(async () => {
  world = await openWorld()
})
afterEach(() => world.close())

const CLEAN = ['turn_started 1', 'message 1', 'reply 1', 'completed 1']

/** Resolves when so much time has passed. */
const passes = (ms: number) => {
  const end = performance.now() + ms
  return until(() => performance.now() >= end, { what: `${ms} ms` })
}

const subscribers = async ({ worker }: Watched) =>
  (await world.redis.pubsub('NUMSUB', world.keys.processChannel(worker.processId)))[1]

const hears = (watched: Watched) =>
  eventually(async () => (await subscribers(watched)) === 1, 'the worker hears its notices again')

/** Brings the owner back, and then lets the other ask who is there: no verdict outlives the answer. */
async function comesBack(owner: Watched, other: Watched): Promise<void> {
  const look = other.toRedis.hold(/numsub/i)
  await look.seen
  owner.toRedis.up()
  await hears(owner)
  const beat = world.keys.process(owner.worker.processId)
  await eventually(async () => (await world.redis.exists(beat)) === 1, 'it beats')
  look.release()
}

/** It waits for a held answer. */
const PATIENT = { redisTimeoutMs: 8000, renewMs: 10_000 }

const holdsLock = (watched: Watched, id: string) =>
  eventually(async () => {
    const lock = await world.redis.get(world.keys.lock(id))
    return lock !== null && lock.startsWith(`${watched.worker.processId}.`)
  }, 'the worker has its lock')

test('I8 · trap: a worker that reaches Redis but not MySQL takes no work from one that reaches both', async () => {
  const [a, b] = [new Stage(), new Stage()]
  const tunables = { mysqlTimeoutMs: 500, heartbeatTtlMs: 3000, deadAfterMs: 6000 }
  const cutOff = await world.worker(a.handler, tunables)
  await world.worker(b.handler, tunables)
  cutOff.toMysql.down()
  await eventually(async () => {
    const heartbeat = await world.redis.get(world.keys.process(cutOff.worker.processId))
    return heartbeat?.includes('"free":0') === true
  }, 'it offers no slot any more')
  const monitor = await monitorOf(world.redisUrl)
  const ids = Array.from({ length: 40 }, (_, n) => `s${n}`)
  for (const id of ids) await world.client.enqueue(id, 'hello')
  for (const id of ids) await world.done(id)
  monitor.end()
  const tokens = `${cutOff.worker.processId}.`
  const taken = ids.filter((id) =>
    monitor.lines().some((line) => line.includes(`{${id}}:lock`) && line.includes(tokens)),
  )
  // Half of them would be a share. A few may be told to everybody, by a machine too busy to show a fresh heartbeat.
  expect(taken.length).toBeLessThan(ids.length / 4)
  expect([a.turns.length, b.turns.length]).toEqual([0, ids.length])
})

test('I4 · trap: after an outage of Redis that outlived a TTL nobody is judged silent before it could take its lock back', async () => {
  const tunables = { lockTtlMs: 2400, deadAfterMs: 2000, hungAfterMs: 2000 }
  const [a, b] = [new Stage(), new Stage()]
  const owner = await world.worker(a.handler, tunables)
  await world.client.enqueue('s', 'wait')
  await a.began()
  const other = await world.worker(b.handler, tunables)
  // Redis loses the lock; the owner's request to retake it is lost with its connection.
  owner.toRedis.down()
  await world.redis.del(world.keys.lock('s'))
  await world.wake(other.worker, 's')
  await other.says('session.refused')
  other.toRedis.down()
  await passes(tunables.lockTtlMs * 1.2)
  await world.redis.del(world.keys.lock('s'))
  // The other is back first and looks a few times.
  other.toRedis.up()
  await hears(other)
  await passes(300)
  owner.toRedis.up()
  await holdsLock(owner, 's')
  expect(other.saw('session.evicted')).toEqual([])
  expect(a.turn().signal.aborted).toBe(false)
  a.go()
  await world.done('s')
  expect(b.turns).toEqual([])
  expect(await world.story('s')).toEqual(CLEAN)
})

test('I4 · trap: a verdict that a process is dead ends when it comes back, so a later blip takes no turn from it', async () => {
  // It comes back within three seconds, and takes its lock back whenever it gets to it: it is not judged afresh.
  const tunables = { deadAfterMs: 3000, hungAfterMs: 20_000 }
  // An idle lock is anybody's, also the sweep's.
  await world.redis.set(world.keys.tick('sweep'), 'nobody', 'PX', 600_000)
  const [a, b] = [new Stage(), new Stage()]
  const owner = await world.worker(a.handler, tunables)
  const other = await world.worker(b.handler, { ...tunables, ...PATIENT })
  owner.toRedis.down()
  await other.says('process.dead')
  await comesBack(owner, other)
  await world.redis.set(world.keys.lock('s'), `${owner.worker.processId}.x/idle`)
  await world.client.enqueue('s', 'wait')
  await a.began()
  // The owner is away for a moment, and Redis has lost its lock and its heartbeat.
  owner.toRedis.down()
  await world.redis.del(world.keys.lock('s'), world.keys.process(owner.worker.processId))
  await world.wake(other.worker, 's')
  await other.says('session.refused')
  await passes(250)
  owner.toRedis.up()
  await holdsLock(owner, 's')
  await other.says('process.dead')
  expect(other.saw('process.dead')).toHaveLength(1)
  expect(other.saw('session.evicted')).toEqual([])
  expect(a.turn().signal.aborted).toBe(false)
  a.go()
  await world.done('s')
  expect(b.turns).toEqual([])
  expect(await world.story('s')).toEqual(CLEAN)
})

test('I3 · trap: whoever said that a process is dead notices by itself that it is back, and leaves its locks alone', async () => {
  // Nobody calls the roll, and nobody sweeps.
  for (const tick of ['roll-call', 'sweep'])
    await world.redis.set(world.keys.tick(tick), 'nobody', 'PX', 600_000)
  const [a, b] = [new Stage(), new Stage()]
  const owner = await world.worker(a.handler)
  const other = await world.worker(b.handler, PATIENT)
  const { processId } = owner.worker
  owner.toRedis.down()
  await eventually(async () => (await subscribers(owner)) === 0, 'it hears nothing')
  await world.redis.set(world.keys.lock('left'), `${processId}.x`, 'PX', 300_000)
  await world.wake(other.worker, 'left')
  await other.says('process.dead')
  await comesBack(owner, other)
  await world.redis.set(world.keys.lock('s'), `${processId}.x/idle`, 'PX', 300_000)
  await world.client.enqueue('s', 'wait')
  await a.began()
  const ear = world.redis.duplicate()
  const told: string[] = []
  ear.on('message', (_channel, text: string) => void told.push(text))
  await ear.subscribe(world.keys.processChannel(processId))
  await world.wake(other.worker, 's')
  await eventually(() => told.length > 0, 'the owner is told')
  ear.disconnect()
  expect(told[0]).toBe('wake s')
  expect(other.saw('session.refused')).toEqual([])
  a.go()
  await world.done('s')
  expect([a.turns.length, b.turns.length]).toEqual([1, 0])
})

test('I8 · trap: a wait for a row lock that the server ends does not cost the connection', async () => {
  await world.client.enqueue('s', 'hello')
  const trouble: unknown[] = []
  const onTrouble = (error: unknown) => void trouble.push(error)
  // The server ends a wait for a lock after 1 s, before the deadline of the statement.
  const mysql = connectMysql(world.mysqlUrl, { poolSize: 1, timeoutMs: 2000, onTrouble })
  const connection = async () =>
    (await sql<{ id: number }>`SELECT connection_id() AS id`.execute(mysql.db)).rows[0]?.id
  const before = await connection()
  const free = await world.holdRow('s')
  const stopped = new Ledger(mysql, { onTrouble }).commit('s', (draft) => stop(draft, undefined))
  await world.lockWait('butler_sessions')
  await passes(2500)
  await free()
  expect(await stopped).toMatchObject({ through: 1 })
  expect(await connection()).toBe(before)
  await mysql.close()
})
