// Traps of the line: sessions that wait in a full process while others may take them, or may not, and calls that come
// while a butler is on its way from one phase to the next. No sweep mends anything here.
import { afterEach, beforeEach, expect, test } from 'vitest'
import { TO_MYSQL, TO_REDIS } from './line.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type Watched, type World } from './world.ts'

let world: World
let one: Stage
let two: Stage
beforeEach(async () => {
  world = await openWorld()
  one = new Stage()
  two = new Stage()
  await world.redis.set(world.keys.tick('sweep'), 'nobody', 'PX', 600_000)
})
afterEach(() => world.close())

const FULL = { concurrency: 1, renewMs: 1000, lookMs: 30_000, redisTimeoutMs: 900, deadAfterMs: 20_000 }

/** Accepted without a word to anybody. */
const unheard = (id: string, payload: string) =>
  world.newClient({ notifyTimeoutMs: 10 }, world.mysqlUrl, 'redis://127.0.0.1:1').enqueue(id, payload)

const waits = ({ worker }: Watched, count: number) =>
  eventually(() => worker.stats().waiting === count, `${count} in line`)

test('I8 · trap: a verdict that waits in line is not given away, for whoever got the session would have to judge anew', async () => {
  const w1 = await world.worker(one.handler, { ...FULL, renewMs: 10_000, redisTimeoutMs: 8000 })
  const w2 = await world.worker(two.handler, FULL)
  await unheard('s', 'wait')
  await world.wake(w1.worker, 's')
  await one.began()
  // Its owner does nothing any more and has lost its lock. Before its heart stops, the judge's only slot is taken.
  const silence = w1.toRedis.hold(/:proc:/)
  await silence.seen
  await world.redis.set(world.keys.process(w1.worker.processId), 'beats', 'PX', 600_000)
  await world.redis.del(world.keys.lock('s'))
  await world.wake(w2.worker, 's')
  await w2.says('session.refused')
  await unheard('x', 'wait')
  await world.wake(w2.worker, 'x')
  await two.began()
  await world.redis.del(world.keys.process(w1.worker.processId))
  await waits(w2, 1)
  // Now a third process has slots for everything. What comes last leaves, what was judged stays.
  const three = new Stage()
  await world.worker(three.handler, { hungAfterMs: 20_000, deadAfterMs: 20_000 })
  await unheard('y', 'hello')
  await world.wake(w2.worker, 'y')
  await world.done('y')
  await w2.says('session.givenAway')
  expect(w2.saw('session.givenAway').map(({ fields }) => fields['session'])).toEqual(['y'])
  two.go()
  await two.began(2)
  silence.release()
  await w2.says('session.evicted')
  expect(w2.saw('session.evicted').map(({ fields }) => fields['verdict'])).toEqual(['hung'])
  two.go()
  await world.done('s')
  expect(two.turn(2).attempt).toBe(2)
  expect(three.turns.map(({ sessionId }) => sessionId)).toEqual(['y'])
})

test('I10 · trap: a session whose idle lock somebody took while its butler waited in line is no loss to report', async () => {
  const w1 = await world.worker(one.handler, { ...FULL, giveAwayMs: 300_000 })
  await world.client.enqueue('s', 'hello')
  await w1.says('session.idle')
  await world.client.enqueue('x', 'wait')
  await one.began(2)
  await unheard('s', 'wait')
  await world.wake(w1.worker, 's')
  await waits(w1, 1)
  const w2 = await world.worker(two.handler, FULL)
  await world.wake(w2.worker, 's')
  await two.began()
  // When the second renewal begins, the first one has been judged.
  for (let renewals = 0; renewals < 2; renewals += 1) {
    const renewal = w1.toRedis.hold(TO_REDIS.lock)
    await renewal.seen
    renewal.release()
  }
  one.go()
  await waits(w1, 0)
  two.go()
  await world.done('s')
  await world.done('x')
  expect(w1.saw('session.lost')).toEqual([])
  expect([one.turns.length, two.turns.length]).toEqual([2, 1])
})

test('I8 · trap: a session that is lost while it waits in line leaves no lock behind', async () => {
  const w1 = await world.worker(one.handler, { ...FULL, giveAwayMs: 300_000 })
  await world.client.enqueue('s', 'wait')
  await one.began()
  await world.client.enqueue('s', 'hello')
  await world.client.enqueue('x', 'wait')
  await waits(w1, 1)
  one.go()
  await one.began(2)
  await waits(w1, 1)
  // Its lock is missing and is taken back before the row says that it is somebody else's.
  await world.run("UPDATE butler_sessions SET owner = 'Other.x', epoch = epoch + 1 WHERE id = 's'")
  await world.redis.del(world.keys.lock('s'))
  await w1.says('session.lost')
  await eventually(async () => (await world.redis.exists(world.keys.lock('s'))) === 0, 'the lock is free')
  one.go()
  await world.done('s')
  await world.done('x')
  expect(one.turns.map(({ sessionId }) => sessionId)).toEqual(['s', 'x', 's'])
})

test('I8 · trap: a row that names a living process for a turn that it does not run is released by that process', async () => {
  const w1 = await world.worker(one.handler)
  await unheard('s', 'hello')
  await world.run(
    "UPDATE butler_sessions SET owner = ?, epoch = 1, running_seq = 1, starts = 1 WHERE id = 's'",
    [`${w1.worker.processId}.gone`],
  )
  await world.done('s')
  await w1.says('session.evicted')
  expect(w1.saw('session.evicted').map(({ fields }) => fields['verdict'])).toEqual(['orphan'])
  expect(one.turns.map(({ attempt, epoch }) => [attempt, epoch])).toEqual([[2, 2]])
})

test('I8 · trap: a message that its session’s last process does not hear of is told to another one', async () => {
  await world.worker(one.handler)
  await world.redis.set(world.keys.lock('s'), 'Gone.token/idle', 'PX', 300_000)
  await world.client.enqueue('s', 'hello')
  await world.done('s')
  expect(one.turns).toHaveLength(1)
})

test('I8 · trap: a call that comes before a butler knows that it is idle is not forgotten', async () => {
  const w1 = await world.worker(one.handler, { ...FULL, renewMs: 10_000, redisTimeoutMs: 8000 })
  await world.client.enqueue('warm', 'so that Redis knows the scripts')
  await w1.says('session.idle')
  // It takes the reference of what it has done, then it finds nothing and turns the lock idle.
  const taken = w1.toRedis.holdAnswer(TO_REDIS.advance)
  await world.client.enqueue('s', 'first')
  await taken.seen
  const idle = w1.toRedis.holdAnswer(TO_REDIS.advance)
  taken.release()
  await idle.seen
  await eventually(async () => String(await world.redis.get(world.keys.lock('s'))).endsWith('/idle'))
  await world.client.enqueue('s', 'second')
  // What it hears after the call shows that it has heard the call.
  await world.redis.publish(world.keys.processChannel(w1.worker.processId), 'nonsense')
  await w1.says('channel.junk')
  idle.release()
  await world.done('s')
  expect(one.turns).toHaveLength(3)
})

test('I8 · trap: what a process is woken for while it leaves is passed on at once', async () => {
  const w1 = await world.worker(one.handler)
  await world.client.enqueue('s', 'wait')
  await one.began()
  await world.worker(two.handler)
  const drained = w1.worker.drain({ graceMs: 10_000 })
  await w1.says('worker.draining')
  await unheard('y', 'hello')
  await world.wake(w1.worker, 'y')
  await world.done('y')
  one.go()
  await drained
  await world.done('s')
  expect([one.turns.length, two.turns.length]).toEqual([1, 1])
})

test('I4 · trap: a process told to leave takes no turn, also while its sweep hangs', async () => {
  await world.redis.del(world.keys.tick('sweep'))
  const w1 = await world.worker(one.handler)
  await world.client.enqueue('s', 'wait')
  await one.began()
  const sweep = w1.toMysql.hold(/waiting_since. is not null/i)
  await sweep.seen
  const drained = w1.worker.drain({ graceMs: 10_000 })
  await w1.says('worker.draining')
  await world.client.enqueue('s', 'next')
  await unheard('y', 'hello')
  await world.wake(w1.worker, 'y')
  one.go()
  await eventually(async () => (await world.redis.exists(world.keys.lock('s'))) === 0, 'it lets go')
  sweep.release()
  await drained
  expect(one.turns.map(({ message }) => message.payload)).toEqual(['wait'])
  expect(await world.client.inspect('s')).toMatchObject({ state: 'waiting', doneSeq: 1, starts: 0 })
})

test('I8 · trap: a process told to leave while it takes a session starts nothing there, however long its grace', async () => {
  const w1 = await world.worker(one.handler, {
    renewMs: 10_000,
    redisTimeoutMs: 8000,
    mysqlTimeoutMs: 10_000,
  })
  await world.client.enqueue('idle', 'a')
  await w1.says('session.idle')
  const taking = w1.toMysql.hold(TO_MYSQL.lockRows)
  await world.client.enqueue('s', 'a')
  await taking.seen
  await world.worker(two.handler)
  const drained = w1.worker.drain({ graceMs: 10_000 })
  await eventually(async () => (await world.redis.exists(world.keys.lock('idle'))) === 0, 'it lets go')
  taking.release()
  await drained
  await world.done('s')
  expect([...one.turns, ...two.turns].map(({ sessionId }) => sessionId)).toEqual(['idle', 's'])
  expect(two.turns).toHaveLength(1)
})
