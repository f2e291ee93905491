// Traps of a stop that meets a failing turn: the message has its final state at once, not after the wait for its next
// attempt, which is a minute here.
import { setImmediate } from 'node:timers/promises'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { connectMysql } from '../../src/mysql/connect.ts'
import { Ledger } from '../../src/mysql/ledger.ts'
import { stop } from '../../src/protocol/intake.ts'
import { TO_MYSQL } from './line.ts'
import { Stage } from './stage.ts'
import { eventually, Latch, openWorld, type World } from './world.ts'

let world: World
let stage: Stage
beforeEach(async () => {
  world = await openWorld()
  stage = new Stage()
})
afterEach(() => world.close())

const SLOW_RETRY = { retryDelaysMs: [60_000], mysqlTimeoutMs: 10_000 }
const FAILED = ['turn_started 1', 'message 1', 'error 1', 'retrying 1']

test('I5 · trap: a stop that meets a failing turn after its end was committed, but before that was answered, ends the wait', async () => {
  const w1 = await world.worker(stage.handler, SLOW_RETRY)
  const answer = w1.toMysql.holdAnswer(TO_MYSQL.turnEnded)
  await world.client.enqueue('s', 'fail')
  await answer.seen
  await eventually(async () => (await world.row('s')).failures === 1, 'the failure is committed')
  expect(await world.client.stop('s')).toMatchObject({ through: 1, running: null })
  // What it hears after the notice shows that it has heard the notice.
  await world.redis.publish(world.keys.processChannel(w1.worker.processId), 'nonsense')
  await w1.says('channel.junk')
  answer.release()
  await world.done('s')
  expect(await world.story('s')).toEqual([...FAILED, 'stopped 1'])
  expect(stage.turns).toHaveLength(1)
})

test('I5 · trap: a stop that meets a failing turn before its end is committed leaves no attempt to wait for', async () => {
  const w1 = await world.worker(stage.handler, { ...SLOW_RETRY, lookMs: 30_000 })
  const started = w1.toMysql.holdAnswer(TO_MYSQL.turnStarted)
  await world.client.enqueue('s', 'fail')
  await started.seen
  await eventually(async () => (await world.row('s')).running_seq === 1, 'the start is committed')
  const end = w1.toMysql.hold(TO_MYSQL.lockRows)
  started.release()
  await end.seen
  expect(await world.client.stop('s')).toMatchObject({ through: 1, running: 1 })
  end.release()
  await world.done('s')
  expect(await world.story('s')).toEqual(['turn_started 1', 'message 1', 'stopped 1'])
  expect(stage.turns).toHaveLength(1)
})

test.each([true, false])(
  'I5 · trap: a stop of a message that waits for its next attempt ends the wait (its notice is heard: %s)',
  async (heard) => {
    // Without the notice it is the sweep that ends the wait.
    const w1 = await world.worker(stage.handler, heard ? { ...SLOW_RETRY, sweepMs: 60_000 } : SLOW_RETRY)
    await world.client.enqueue('s', 'fail')
    await w1.says('turn.retrying')
    if (heard) await world.client.stop('s')
    else {
      const mysql = connectMysql(world.mysqlUrl)
      const ledger = new Ledger(mysql, { onTrouble: () => undefined })
      await ledger.commit('s', (draft) => stop(draft, undefined))
      await mysql.close()
    }
    await world.done('s')
    expect(await world.story('s')).toEqual([...FAILED, 'stopped 1'])
    expect(stage.turns).toHaveLength(1)
  },
)

test('I5 · a stop that meets a failing turn at any moment gives its message its final state without a further attempt', async () => {
  const fail = new Map<string, Latch>()
  const w1 = await world.worker(async ({ sessionId }) => {
    await fail.get(sessionId)?.opened
    throw new Error('failed')
  }, SLOW_RETRY)
  const ids = Array.from({ length: 30 }, (_, round) => `s${round}`)
  for (const [round, id] of ids.entries()) {
    const latch = new Latch(`the failure of ${id}`)
    fail.set(id, latch)
    await world.client.enqueue(id, 'hello')
    await w1.says('turn.started', round + 1)
    // Either comes first, by so many turns of the event loop that the other has got a little further each time.
    let stopped: Promise<unknown> | undefined
    const steps = [() => void (stopped = world.client.stop(id)), () => latch.open()]
    const [first, second] = round % 2 ? steps : steps.reverse()
    first?.()
    for (let turns = 0; turns < round; turns++) await setImmediate()
    second?.()
    await stopped
  }
  await Promise.all(ids.map((id) => world.done(id)))
  expect(w1.saw('turn.started')).toHaveLength(ids.length)
})
