// Traps of Redis: commands that arrive late or twice, lists that are moved the wrong way, a flush in the middle of a turn.
import { connect } from 'node:net'
import { createInterface } from 'node:readline'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import type { Server } from '../../src/cli/servers.ts'
import { tokenOf } from '../../src/redis/lock.ts'
import { advance, formatReference, pushMany, recover } from '../../src/redis/queue.ts'
import { ownRedis } from '../support/services.ts'
import { TO_REDIS } from './line.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type World } from './world.ts'

let server: Server
let world: World
let one: Stage
let two: Stage
beforeAll(async () => {
  server = await ownRedis()
})
afterAll(() => server.stop())
beforeEach(async () => {
  world = await openWorld({ redisUrl: server.url })
  one = new Stage()
  two = new Stage()
})
afterEach(() => world.close())

/** It neither renews nor looks by itself within a test; only what it is told makes it act. */
const UNHURRIED = { lockTtlMs: 120_000, renewMs: 50_000, lookMs: 30_000, redisTimeoutMs: 8000 }
const lockOf = (id: string) => world.redis.get(world.keys.lock(id))

/** Every command the server executes from now on, as text; over a plain socket, which has no opinion on replies. */
async function record(): Promise<{ lines: string[]; end: () => void }> {
  const lines: string[] = []
  const socket = connect(server.port, '127.0.0.1', () => socket.write('MONITOR\r\n'))
  createInterface(socket).on('line', (line) => void lines.push(line))
  await eventually(() => lines.length > 0, 'the monitor')
  return { lines, end: () => socket.destroy() }
}

test('I3 I8 · trap: a late busy → idle command does not mark a running session idle', async () => {
  const w1 = await world.worker(one.handler)
  await world.client.enqueue('s', 'first')
  await w1.says('session.idle')
  // It thinks that nothing is left and says so; its words arrive when the next turn has long begun.
  const late = w1.toRedis.hold(TO_REDIS.advance)
  await world.client.enqueue('s', 'second')
  await late.seen
  const token = String(await lockOf('s'))
  await world.client.enqueue('s', 'wait')
  await one.began(3)
  // What was pushed is gone, so that it finds nothing left.
  await world.redis.del(world.keys.queue('s'))
  const { lines, end } = await record()
  late.release()
  await eventually(
    () => lines.some((line) => line.includes(token) && line.includes(':processing')),
    'it arrived',
  )
  end()
  expect(await lockOf('s')).toBe((await world.row('s')).owner)
  const w2 = await world.worker(two.handler)
  await world.wake(w2.worker, 's')
  one.go()
  await world.done('s')
  expect(two.turns).toHaveLength(0)
  expect(one.turns.map(({ attempt }) => attempt)).toEqual([1, 1, 1])
})

test('I2 I4 · trap: a move whose reply was lost does not take the next message in its place', async () => {
  const w1 = await world.worker(one.handler)
  await world.client.enqueue('warm', 'so that Redis knows the scripts')
  await w1.says('session.idle')
  for (const payload of ['wait 1', '2', '3']) await world.client.enqueue('s', payload)
  await one.began(2)
  const lost = w1.toRedis.loseAnswer(TO_REDIS.advance)
  one.go()
  await lost
  await world.done('s')
  expect(one.turns.slice(1).map(({ message, attempt }) => [message.seq, attempt])).toEqual([
    [1, 1],
    [2, 1],
    [3, 1],
  ])
})

test('I2 · trap: what an earlier owner took goes back to the end from which it is taken (QO-03)', async () => {
  const { redis, keys } = world
  await redis.set(keys.lock('s'), 'P.token', 'PX', 30_000)
  const push = (seq: number) =>
    pushMany(redis, keys, [{ id: 's', reference: formatReference({ seq, id: `m-${seq}` }) }])
  for (const seq of [1, 2, 3]) await push(seq)
  // As LMOVE queue processing RIGHT LEFT leaves it, by an owner that took two and died.
  for (let taken = 0; taken < 2; taken++)
    await redis.lmove(keys.queue('s'), keys.processing('s'), 'RIGHT', 'LEFT')
  await push(4)
  expect(await recover(redis, keys, 's', 'P.token')).toMatchObject({ outcome: 'recovered', count: 2 })
  const order: string[] = []
  for (;;) {
    const step = await advance(redis, keys, 's', 'P.token', { idleMs: 30_000, more: true })
    if (step.outcome !== 'taken') break
    order.push(step.reference)
  }
  expect(order).toEqual(['1:m-1', '2:m-2', '3:m-3', '4:m-4'])
})

test('I4 · trap: after a flush a second worker does not start the message that runs', async () => {
  const w1 = await world.worker(one.handler, UNHURRIED)
  await world.client.enqueue('s', 'wait')
  await one.began()
  const w2 = await world.worker(two.handler)
  await world.redis.flushall()
  await world.wake(w2.worker, 's')
  await w2.says('session.refused')
  await w1.says('lock.retaken')
  expect(await lockOf('s')).toBe((await world.row('s')).owner)
  one.go()
  await world.done('s')
  expect([one.turns.length, two.turns.length]).toEqual([1, 0])
  expect(await world.story('s')).toEqual(['turn_started 1', 'message 1', 'reply 1', 'completed 1'])
})

test('I8 · trap: after a flush a process whose connections never broke is a member of the fleet again', async () => {
  const { worker } = await world.worker(one.handler)
  await world.redis.flushall()
  await eventually(
    async () => (await world.redis.sismember(world.keys.processes, worker.processId)) === 1,
    'it is back',
  )
})

/** W1 runs a turn and does nothing else: no heartbeat, no answer to a request. Then Redis is flushed, and W2 looks. */
async function busyThroughFlush(hungAfterMs: number) {
  const w1 = await world.worker(one.handler, UNHURRIED)
  await world.client.enqueue('s', 'wait')
  await one.began()
  const w2 = await world.worker(two.handler, { hungAfterMs, deadAfterMs: 20_000 })
  const busy = w1.toRedis.hold(/:proc:/)
  await busy.seen
  await world.redis.flushall()
  const { lines, end } = await record()
  await world.wake(w2.worker, 's')
  await w2.says('session.refused')
  return { w1, w2, busy, asked: () => lines.filter((line) => /"retake s /.test(line)).length, end }
}

test('I4 · trap: an event loop that is busy right after a flush is not taken for hung', async () => {
  const { w1, w2, busy, asked, end } = await busyThroughFlush(20_000)
  await eventually(() => asked() >= 6, 'six requests to take the lock back')
  end()
  busy.release()
  await w1.says('lock.retaken')
  one.go()
  await world.done('s')
  expect(w2.saw('session.evicted')).toEqual([])
  expect([one.turns.length, two.turns.length]).toEqual([1, 0])
})

test('I8 I3 · a process that stays silent after a flush for longer than that is taken for hung, and fenced', async () => {
  const { w2, busy, end } = await busyThroughFlush(400)
  await two.began()
  end()
  await w2.says('session.evicted')
  expect(w2.saw('session.evicted').map(({ fields }) => fields['verdict'])).toEqual(['hung'])
  await expect(one.turn().append({ type: 'note', payload: 'late' })).rejects.toMatchObject({
    code: 'TURN_LOST',
  })
  busy.release()
  two.go()
  await world.done('s')
  expect(tokenOf(String(await lockOf('s')))).toMatch(new RegExp(`^${w2.worker.processId}`))
  expect(await world.story('s')).toEqual([
    'turn_started 1',
    'message 1',
    'lost 1',
    'turn_started 1',
    'reply 1',
    'completed 1',
  ])
})
