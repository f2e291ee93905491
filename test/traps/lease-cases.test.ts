// Cases of leases: commands that come late, connections that are replaced, identities that recur, and what a drain does
// to a lock.
import { afterEach, beforeEach, expect, test } from 'vitest'
import { monitorOf } from '../support/monitor.ts'
import { TO_REDIS } from './line.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type World } from './world.ts'
import { now } from '../../src/base/timing.ts'

let world: World
let one: Stage
let two: Stage
beforeEach(async () => {
  world = await openWorld()
  one = new Stage()
  two = new Stage()
})
afterEach(() => world.close())

const SHORT = { lockTtlMs: 2000, renewMs: 500, heartbeatTtlMs: 400 }
const lock = () => world.redis.get(world.keys.lock('s'))
const isHeld = async () => (await world.redis.pttl(world.keys.lock('s'))) > 0

/** Looks until so much time has passed; the lock must be there at every look. */
async function expectHeld(ms: number): Promise<void> {
  const since = now()
  await eventually(async () => {
    expect(await isHeld()).toBe(true)
    return now() - since > ms
  })
}

test('I8 · a lock command that arrives after its sender gave up leaves no lock that nobody serves (LK-04)', async () => {
  const w1 = await world.worker(one.handler)
  await world.client.enqueue('warm', 'so that Redis knows the scripts')
  await w1.says('session.idle')
  const late = w1.toRedis.hold(TO_REDIS.lock)
  await world.client.enqueue('s', 'hello')
  await late.seen
  await world.done('s')
  await eventually(async () => String(await lock()).endsWith('/idle'), 'idle')
  // It finds an idle lock and takes it, although its butler rests and will not renew it.
  const monitor = await monitorOf(world.redisUrl)
  late.release()
  await eventually(() => monitor.lines().some((line) => line.includes(world.keys.lock('s'))), 'it arrived')
  monitor.end()
  await world.client.enqueue('s', 'next')
  await world.done('s')
  expect(one.turns.slice(1).map(({ message, attempt }) => [message.seq, attempt])).toEqual([
    [1, 1],
    [2, 1],
  ])
})

test('I4 · renewals go on after lost connections and after an outage shorter than the lease (LK-07)', async () => {
  const patient = { ...SHORT, deadAfterMs: 20_000, hungAfterMs: 20_000 }
  const w1 = await world.worker(one.handler, patient)
  await world.client.enqueue('s', 'wait')
  await one.began()
  await world.worker(two.handler, patient)
  const isRenewed = async () => (await world.redis.pttl(world.keys.lock('s'))) > 1700
  for (let kills = 0; kills < 3; kills++) {
    w1.toRedis.cut()
    await eventually(async () => !(await isRenewed()), 'the lease runs')
    await eventually(isRenewed, 'the lease is renewed')
  }
  w1.toRedis.down()
  await eventually(async () => (await world.redis.pttl(world.keys.lock('s'))) < 1000, 'half of it is over')
  w1.toRedis.up()
  await eventually(isRenewed, 'the lease is renewed')
  await expectHeld(SHORT.lockTtlMs * 1.5)
  one.go()
  await world.done('s')
  expect([one.turns.length, two.turns.length]).toEqual([1, 0])
})

test('I3 I8 · a process of the same host and pid is another one: it takes over by a verdict, as another owner (LK-14)', async () => {
  const w1 = await world.worker(one.handler)
  await world.client.enqueue('s', 'wait')
  await one.began()
  const { owner } = await world.row('s')
  w1.toRedis.down()
  w1.toMysql.down()
  const w2 = await world.worker(two.handler)
  await two.began()
  expect(w2.worker.processId).not.toBe(w1.worker.processId)
  await w2.says('session.evicted')
  expect(w2.saw('session.evicted').map(({ fields }) => fields['owner'])).toEqual([owner])
  expect((await world.row('s')).owner).not.toBe(owner)
  expect([two.turn().attempt, two.turn().epoch]).toEqual([2, 2])
  w1.toMysql.up()
  await expect(one.turn().append({ type: 'note' })).rejects.toMatchObject({ code: 'TURN_LOST' })
  two.go()
  await world.done('s')
})

test('I4 · a draining process keeps its lease for as long as its turn may go on (SD-01)', async () => {
  const w1 = await world.worker(one.handler, SHORT)
  await world.client.enqueue('s', 'wait')
  await one.began()
  await world.worker(two.handler, SHORT)
  const drained = w1.worker.drain({ graceMs: 20_000 })
  await w1.says('worker.draining')
  await expectHeld(SHORT.lockTtlMs * 2)
  expect(one.turn().signal.aborted).toBe(false)
  one.go()
  await drained
  await world.done('s')
  expect([one.turns.length, two.turns.length]).toEqual([1, 0])
})

test('I1 · a turn that sends messages while its process drains sends them, also to its own session (SD-09)', async () => {
  const w1 = await world.worker(async (turn) => {
    await one.handler(turn)
    for (const id of ['s', 'other']) await world.client.enqueue(id, `from ${turn.message.seq}`)
  })
  await world.client.enqueue('s', 'wait')
  await one.began()
  const stopped = w1.worker.stop({ graceMs: 20_000 })
  await w1.says('worker.draining')
  one.go()
  await stopped
  await world.worker(two.handler)
  await world.done('s')
  await world.done('other')
  expect(one.turns).toHaveLength(1)
  expect(two.turns.map(({ sessionId, message }) => `${sessionId} ${message.seq}`).toSorted()).toEqual([
    'other 1',
    's 2',
  ])
})
