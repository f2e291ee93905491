// Cases of lock and crash recovery from the failures of comparable systems (their ids in the titles), as far as they are
// not traps of their own.
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { now } from '../../src/base/timing.ts'
import { TO_REDIS } from './line.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type World } from './world.ts'

let world: World
let one: Stage
let two: Stage
beforeEach(async () => {
  world = await openWorld()
  one = new Stage()
  two = new Stage()
})
afterEach(() => world.close())

const UNHURRIED = { renewMs: 10_000, lookMs: 30_000, redisTimeoutMs: 8000, mysqlTimeoutMs: 10_000 }
const lockKey = () => world.keys.lock('s')
const lock = () => world.redis.get(lockKey())

test('I3 · a lease that lapsed while another owner came and left is not renewed (LK-02)', async () => {
  const w1 = await world.worker(one.handler, UNHURRIED)
  await world.client.enqueue('s', 'deaf')
  await one.began()
  const old = String((await world.row('s')).owner)
  const silence = w1.toRedis.hold(/:proc:/)
  await silence.seen
  await world.redis.del(lockKey())
  const w2 = await world.worker(two.handler, { deadAfterMs: 20_000 })
  await world.wake(w2.worker, 's')
  await two.began()
  two.go()
  await world.done('s')
  await w2.says('session.idle')
  await world.redis.del(lockKey())
  silence.release()
  await world.redis.publish(world.keys.processChannel(w1.worker.processId), `retake s ${old}`)
  await w1.says('session.lost')
  expect(one.turn().signal.reason).toMatchObject({ code: 'TURN_LOST' })
  await eventually(async () => (await lock()) !== old, 'it lets its lock go')
  one.go()
  await expect(one.turn().append({ type: 'note' })).rejects.toMatchObject({ code: 'TURN_LOST' })
  expect((await world.story('s')).filter((line) => line.startsWith('reply'))).toEqual(['reply 1'])
})

test('I4 · a lock that is deleted or evicted mid-turn is taken back, and the turn goes on (LK-06, RD-07)', async () => {
  const w1 = await world.worker(one.handler)
  await world.client.enqueue('s', 'wait')
  await one.began()
  await world.redis.del(lockKey())
  await w1.says('lock.retaken')
  expect(await lock()).toBe((await world.row('s')).owner)
  expect(one.turn().signal.aborted).toBe(false)
  one.go()
  await world.done('s')
  expect(one.turns).toHaveLength(1)
})

test('I4 · a stranger in the lock of a running turn is reported, not renewed, and the turn goes on (LK-06, LK-10)', async () => {
  const w1 = await world.worker(one.handler)
  await world.client.enqueue('s', 'wait')
  await one.began()
  await world.redis.set(lockKey(), 'Alien.token', 'PX', 20_000)
  await w1.says('session.contested', 3)
  expect(await lock()).toBe('Alien.token')
  expect(await world.redis.pttl(lockKey())).toBeLessThan(20_000 - 500)
  expect(one.turn().signal.aborted).toBe(false)
  one.go()
  await eventually(async () => (await world.row('s')).done_seq === 1)
  expect(one.turns).toHaveLength(1)
})

test('I8 · a living stranger is told of a lock that it has no use for, and gives it back while the turn runs', async () => {
  const w1 = await world.worker(one.handler)
  await world.client.enqueue('s', 'wait')
  await one.began()
  const w2 = await world.worker(two.handler, UNHURRIED)
  // As a command leaves it that arrives after its sender has given up.
  await world.redis.set(lockKey(), `${w2.worker.processId}.stray`, 'PX', 30_000)
  await w1.says('session.contested')
  await eventually(async () => (await lock()) === (await world.row('s')).owner, 'the lock is back')
  one.go()
  await world.done('s')
  expect([one.turns.length, two.turns.length]).toEqual([1, 0])
})

test('I8 · a lock that a dead process left is found by the sweep although nobody has a slot to run into it', async () => {
  const w1 = await world.worker(one.handler, { concurrency: 1 })
  await world.client.enqueue('other', 'wait')
  await one.began()
  await world.redis.set(lockKey(), 'Ghost.token', 'PX', 300_000)
  await world.client.enqueue('s', 'hello')
  await w1.says('process.dead')
  await eventually(async () => (await lock()) === null, 'the lock is free')
  one.go()
  await world.done('s')
  expect(one.turns).toHaveLength(2)
})

test('I3 · a lost session reaches its handler, and the process serves the others (LK-06)', async () => {
  const w1 = await world.worker(one.handler, { lookMs: 30_000 })
  await world.client.enqueue('s', 'wait')
  await world.client.enqueue('other', 'wait')
  await one.began(2)
  await world.run("UPDATE butler_sessions SET owner = 'Alien.token', epoch = epoch + 1 WHERE id = 's'")
  await world.redis.set(lockKey(), 'Alien.token', 'PX', 20_000)
  await w1.says('session.lost')
  expect(w1.saw('session.lost')[0]?.fields).toMatchObject({ session: 's', seq: 1, epoch: 1 })
  const [lost, kept] = one.turns.toSorted((a, b) => b.sessionId.localeCompare(a.sessionId))
  expect(lost?.signal.reason).toMatchObject({ code: 'TURN_LOST' })
  expect(kept?.signal.aborted).toBe(false)
  one.go()
  await world.done('other')
})

test('I3 · a release that arrives late takes no later owner’s lock (LK-09)', async () => {
  const w1 = await world.worker(one.handler, UNHURRIED)
  await world.client.enqueue('s', 'wait')
  await one.began()
  const late = w1.toRedis.hold(TO_REDIS.release)
  await world.run(
    "UPDATE butler_sessions SET owner = 'Other.x', epoch = epoch + 1, running_seq = NULL WHERE id = 's'",
  )
  one.go()
  await late.seen
  await world.redis.del(lockKey())
  const w2 = await world.worker(two.handler)
  await world.wake(w2.worker, 's')
  await two.began()
  const theirs = await lock()
  late.release()
  await eventually(() => w1.saw('turn.lost').length > 0)
  await world.redis.publish(world.keys.processChannel(w1.worker.processId), 'nonsense')
  await w1.says('channel.junk')
  expect(await lock()).toBe(theirs)
  two.go()
  await world.done('s')
})

test('I8 · a handler that never settles loses its turn and its slot, not the session (LK-12, LK-15)', async () => {
  const w1 = await world.worker(one.handler, { concurrency: 1, progressTimeoutMs: 300, stopGraceMs: 100 })
  for (const payload of ['deaf', 'a', 'b']) await world.client.enqueue('s', payload)
  await world.client.enqueue('other', 'c')
  await world.done('s')
  await world.done('other')
  const failed = await world.rows(
    'SELECT session_id, seq, status FROM butler_messages WHERE status IS NOT NULL',
  )
  expect(failed).toEqual([{ session_id: 's', seq: 1, status: 'failed' }])
  await w1.says('turn.timedOut')
  expect(w1.saw('turn.timedOut')).toHaveLength(1)
  one.go()
})

test('I4 · a healthy turn much longer than the TTL is never rescued, whatever the wall clock says (CR-05, EL-03)', async () => {
  const ttl = { lockTtlMs: 1000, heartbeatTtlMs: 400, renewMs: 300 }
  const w1 = await world.worker(one.handler, ttl)
  const others = [await world.worker(two.handler, ttl), await world.worker(two.handler, ttl)]
  await world.client.enqueue('s', 'wait')
  await eventually(() => one.turns.length + two.turns.length === 1)
  await world.client.enqueue('s', 'behind it')
  const began = now()
  vi.useFakeTimers({ toFake: ['Date'] })
  try {
    for (const hours of [1, -1, 24, 0]) {
      vi.setSystemTime(Date.now() + hours * 3_600_000)
      const since = now()
      await eventually(() => now() - since > 800)
      expect(await world.redis.pttl(lockKey())).toBeGreaterThan(0)
    }
  } finally {
    vi.useRealTimers()
  }
  expect(now() - began).toBeGreaterThan(3000)
  expect(one.turns.length + two.turns.length).toBe(1)
  one.go()
  two.go()
  await world.done('s')
  expect(one.turns.length + two.turns.length).toBe(2)
  for (const worker of [w1, ...others]) expect(worker.saw('session.evicted')).toEqual([])
})

test('I4 I8 · a process that dies between its commit and the clean-up leaves no second run (CR-07)', async () => {
  const w1 = await world.worker(one.handler, { redisTimeoutMs: 8000, renewMs: 10_000 })
  await world.client.enqueue('s', 'first')
  const cleanUp = w1.toRedis.hold(TO_REDIS.advance)
  await cleanUp.seen
  expect((await world.row('s')).done_seq).toBe(1)
  w1.toRedis.down()
  w1.toMysql.down()
  await world.worker(two.handler)
  await world.client.enqueue('s', 'second')
  await world.done('s')
  expect(one.turns.map(({ message }) => message.seq)).toEqual([1])
  expect(two.turns.map(({ message, attempt }) => [message.seq, attempt])).toEqual([[2, 1]])
  await eventually(async () => (await world.redis.llen(world.keys.processing('s'))) === 0)
})
