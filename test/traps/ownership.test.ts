// Traps of ownership: who may run a session's turns, whatever stalls, is lost or lies between lock and row.
import { afterEach, beforeEach, expect, test } from 'vitest'
import { TO_MYSQL, TO_REDIS } from './line.ts'
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

/** It neither renews nor looks by itself within a test; only what it is told makes it act. */
const UNHURRIED = { renewMs: 10_000, lookMs: 30_000, redisTimeoutMs: 8000, mysqlTimeoutMs: 10_000 }
const lockOf = (id: string) => world.redis.get(world.keys.lock(id))

test('I3 I4 · trap: an acquirer that stalls between lock and row fences no healthy owner', async () => {
  const w1 = await world.worker(one.handler, UNHURRIED)
  const stall = w1.toMysql.hold(TO_MYSQL.lockRows)
  await world.client.enqueue('s', 'wait')
  await stall.seen
  await world.redis.del(world.keys.lock('s')) // as if its lifetime had passed
  const w2 = await world.worker(two.handler)
  await world.wake(w2.worker, 's')
  await two.began()
  const healthy = await lockOf('s')
  stall.release()
  await w1.says('session.refused')
  expect(await lockOf('s')).toBe(healthy)
  two.go()
  await world.done('s')
  expect(one.turns).toHaveLength(0)
  expect(await world.story('s')).toEqual(['turn_started 1', 'message 1', 'reply 1', 'completed 1'])
  expect((await world.row('s')).epoch).toBe(1)
})

test('I3 I8 · trap: a fenced owner leaves no lock behind, and the session goes on at once', async () => {
  const w1 = await world.worker(one.handler, UNHURRIED)
  await world.client.enqueue('s', 'wait')
  await one.began()
  await world.run(
    "UPDATE butler_sessions SET owner = 'Other.x', epoch = 7, running_seq = NULL WHERE id = 's'",
  )
  one.go()
  await w1.says('turn.lost')
  // Its lock would live for 30 s.
  await one.began(2)
  one.go()
  await world.done('s')
  expect(one.turn(2).attempt).toBe(2)
  await w1.says('turn.completed')
  expect(w1.saw('turn.completed')).toHaveLength(1)
})

test('I8 · trap: an idle lock of a frozen process strands no session', async () => {
  await world.worker(one.handler)
  const frozen = world.redis.duplicate()
  await frozen.subscribe(world.keys.processChannel('Frozen'))
  await world.redis.set(world.keys.lock('s'), 'Frozen.token/idle', 'PX', 300_000)
  await world.client.enqueue('s', 'hello')
  await world.done('s')
  frozen.disconnect()
  expect(one.turns).toHaveLength(1)
})

test('I3 · trap: the same epoch issued twice after a fail-over lets no old owner write', async () => {
  await world.worker(one.handler, UNHURRIED)
  await world.client.enqueue('s', 'wait')
  await one.began()
  // The database that takes over has not got the last commits.
  await world.run("DELETE FROM butler_entries WHERE session_id = 's'")
  await world.run(
    "UPDATE butler_sessions SET owner = NULL, running_seq = NULL, epoch = 0, starts = 0, entry_seq = 0 WHERE id = 's'",
  )
  await world.redis.del(world.keys.lock('s'))
  const w2 = await world.worker(two.handler)
  await world.wake(w2.worker, 's')
  await two.began()
  const [old, present] = [one.turn(), two.turn()]
  expect([old.epoch, old.attempt]).toEqual([present.epoch, present.attempt])
  await expect(old.append({ type: 'note', payload: 'old' })).rejects.toMatchObject({ code: 'TURN_LOST' })
  await present.append({ type: 'note', payload: 'present' })
  two.go()
  await world.done('s')
  const notes = (await world.entries('s')).filter(({ type }) => type === 'note')
  expect(notes.map(({ payload }) => payload)).toEqual(['"present"'])
  expect(old.signal.aborted).toBe(true)
})

test('I8 · a session that is dealt to a process which does not act on it is dealt to another one later', async () => {
  const deaf = { ...UNHURRIED, lockTtlMs: 120_000, renewMs: 50_000 }
  const members = [
    { stage: one, of: await world.worker(one.handler, deaf) },
    { stage: two, of: await world.worker(two.handler, deaf) },
  ]
  // It runs at the process that is named first when the fleet is listed: chance decides, so until it does.
  const [first] = await world.redis.smembers(world.keys.processes)
  const [holder, other] = members.toSorted((a) => (a.of.worker.processId === first ? -1 : 1))
  if (!holder || !other) throw new Error('two workers')
  let id = ''
  for (let tries = 1; holder.stage.turns.length === 0; tries++) {
    other.stage.go()
    id = `s${tries}`
    await world.client.enqueue(id, 'deaf')
    await eventually(() => one.turns.length + two.turns.length === tries)
  }
  // It still believes that it runs the session's turn; nobody tells it that it does not.
  const before = other.stage.turns.length
  await world.run(
    'UPDATE butler_sessions SET owner = NULL, running_seq = NULL, epoch = epoch + 1 WHERE id = ?',
    [id],
  )
  await world.redis.del(world.keys.lock(id))
  await other.stage.began(before + 1)
  one.go()
  two.go()
  await world.done(id)
})

test('I8 · trap: a lock taken by a command whose reply was lost does not lock its own session out', async () => {
  const w1 = await world.worker(one.handler)
  await world.client.enqueue('warm', 'so that Redis knows the scripts')
  await w1.says('session.idle')
  const lost = w1.toRedis.loseAnswer(TO_REDIS.lock)
  await world.client.enqueue('s', 'hello')
  await lost
  await world.done('s')
  expect(one.turns).toHaveLength(2)
})

test('I8 I3 · trap: an acquirer that is cut off after its commit leaves a row that another one serves', async () => {
  const w1 = await world.worker(one.handler, UNHURRIED)
  const lost = w1.toMysql.loseAnswer(TO_MYSQL.commit)
  await world.client.enqueue('s', 'wait')
  await lost.then(() => w1.toMysql.down())
  expect((await world.row('s')).owner).toMatch(new RegExp(`^${w1.worker.processId}`))
  await world.redis.del(world.keys.lock('s'))
  const w2 = await world.worker(two.handler)
  await world.wake(w2.worker, 's')
  await two.began()
  w1.toMysql.up()
  await w1.says('session.refused')
  two.go()
  await world.done('s')
  expect(one.turns).toHaveLength(0)
  expect(two.turns.map(({ epoch, attempt }) => [epoch, attempt])).toEqual([[2, 1]])
})

test('I8 I4 · trap: an acquirer whose database answers late has let go by then, and starts nothing', async () => {
  const w1 = await world.worker(one.handler, { lockTtlMs: 3000, mysqlTimeoutMs: 10_000 })
  const late = w1.toMysql.holdAnswer(TO_MYSQL.commit)
  await world.client.enqueue('s', 'hello')
  await late.seen
  await w1.says('session.released')
  expect(w1.saw('turn.started')).toEqual([])
  late.release()
  await world.done('s')
  expect(one.turns.map(({ attempt }) => attempt)).toEqual([1])
  // The row was taken, and by then nobody was there to serve it.
  expect(one.turn().epoch).toBeGreaterThan(1)
})

test('I8 I4 · trap: an acquirer whose lock is answered late starts nothing under a lock that is half over', async () => {
  const w1 = await world.worker(one.handler, { lockTtlMs: 12_000, renewMs: 5900, redisTimeoutMs: 5800 })
  await world.client.enqueue('warm', 'so that Redis knows the scripts')
  await w1.says('session.idle')
  const late = w1.toRedis.holdAnswer(TO_REDIS.lock)
  await world.client.enqueue('s', 'hello')
  await late.seen
  // More than a third of its life is over, and the command has not been given up.
  await eventually(async () => (await world.redis.pttl(world.keys.lock('s'))) < 7900)
  late.release()
  await world.done('s')
  const order = w1.heard.flatMap(({ event, fields }) => (fields['session'] === 's' ? [event] : []))
  expect(order.indexOf('session.released')).toBeGreaterThan(-1)
  expect(order.indexOf('session.released')).toBeLessThan(order.indexOf('turn.started'))
  expect(one.turns.map(({ attempt, epoch }) => [attempt, epoch])).toEqual([
    [1, 1],
    [1, 1],
  ])
})

test('I3 I4 · trap: an idle butler that is called starts nothing before its lock has answered', async () => {
  const w1 = await world.worker(one.handler, UNHURRIED)
  await world.client.enqueue('s', 'first')
  await w1.says('session.idle')
  const w2 = await world.worker(two.handler)
  // It asks both stores at once, and only MySQL answers.
  const lock = w1.toRedis.hold(TO_REDIS.lock)
  const decided = w1.toMysql.holdAnswer(TO_MYSQL.commit)
  await world.client.enqueue('s', 'wait')
  await Promise.all([lock.seen, decided.seen])
  decided.release()
  // An idle lock is anybody's.
  await world.wake(w2.worker, 's')
  await two.began()
  expect(w2.saw('session.refused')).toEqual([])
  lock.release()
  two.go()
  await world.done('s')
  expect([one.turns.length, two.turns.length]).toEqual([1, 1])
  expect(two.turn().attempt).toBe(1)
})

test('I4 · trap: a renewal that is settled after its session turned idle lets no turn start on an unanswered lock', async () => {
  const w1 = await world.worker(one.handler, UNHURRIED)
  await world.client.enqueue('s', 'wait')
  await one.began()
  await world.redis.del(world.keys.lock('s'))
  const { owner } = await world.row('s')
  const settling = w1.toMysql.holdAnswer(TO_MYSQL.owners)
  await world.redis.publish(world.keys.processChannel(w1.worker.processId), `retake s ${owner}`)
  await settling.seen
  one.go()
  await w1.says('session.idle')
  await world.redis.del(world.keys.lock('s')) // as if its lifetime had passed
  const busy = w1.toRedis.hold(TO_REDIS.lock)
  const start = w1.toMysql.hold(TO_MYSQL.lockRows)
  await world.client.enqueue('s', 'hello')
  await Promise.all([busy.seen, start.seen])
  settling.release()
  start.release()
  busy.release()
  await world.done('s')
  expect(w1.saw('session.evicted')).toEqual([])
  expect(one.turns.map(({ attempt }) => attempt)).toEqual([1, 1])
})

test('I8 · trap: a running row whose owner is NULL is matched and served', async () => {
  await world.client.enqueue('s', 'hello')
  await world.run(
    "UPDATE butler_sessions SET running_seq = 1, starts = 1, epoch = 3, owner = NULL WHERE id = 's'",
  )
  await world.worker(one.handler)
  await world.done('s')
  expect(one.turns.map(({ attempt, epoch }) => [attempt, epoch])).toEqual([[2, 4]])
})

test('I4 · trap: a verdict on one turn does not take a later, healthy turn of the same token', async () => {
  const w1 = await world.worker(one.handler, UNHURRIED)
  await world.client.enqueue('s', 'wait 1')
  await world.client.enqueue('s', 'wait 2')
  await one.began()
  // No sweep comes in between.
  const w2 = await world.worker(two.handler, { deadAfterMs: 20_000, mysqlTimeoutMs: 10_000, sweepMs: 60_000 })
  const { owner } = await world.row('s')
  // The first turn's owner is silent and has lost its lock: it is judged.
  const silence = w1.toRedis.hold(/:proc:/)
  await silence.seen
  await world.redis.del(world.keys.lock('s'))
  await world.wake(w2.worker, 's')
  await w2.says('session.refused')
  const verdict = w2.toMysql.hold(TO_MYSQL.lockRows)
  await verdict.seen
  // Before the verdict is carried out, it is back, ends that turn and begins the next.
  await world.redis.set(world.keys.lock('s'), String(owner), 'PX', 30_000)
  silence.release()
  one.go()
  await one.began(2)
  verdict.release()
  await w2.says('session.refused', 2)
  expect(w2.saw('session.evicted')).toHaveLength(0)
  one.go()
  await world.done('s')
  expect(two.turns).toHaveLength(0)
  expect(one.turns.map(({ attempt, epoch }) => [attempt, epoch])).toEqual([
    [1, 1],
    [1, 1],
  ])
})
