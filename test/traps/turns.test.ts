// Traps of a turn's life: answers that come late or never, writes of an earlier attempt, what a detach leaves behind.
import { afterEach, beforeEach, expect, test } from 'vitest'
import { append } from '../../src/protocol/turn-rules.ts'
import { connectMysql } from '../../src/mysql/connect.ts'
import { Ledger } from '../../src/mysql/ledger.ts'
import { TO_MYSQL, TO_REDIS } from './line.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type World } from './world.ts'

let world: World
let stage: Stage
beforeEach(async () => {
  world = await openWorld()
  stage = new Stage()
})
afterEach(() => world.close())

const CLEAN = ['turn_started 1', 'message 1', 'reply 1', 'completed 1']

test('I5 · trap: a stop that returns while the start is on its way is seen by the start transaction itself', async () => {
  const w1 = await world.worker(stage.handler, { mysqlTimeoutMs: 10_000 })
  const acquire = w1.toMysql.hold(TO_MYSQL.lockRows)
  await world.client.enqueue('s', 'never')
  await acquire.seen
  const start = w1.toMysql.hold(TO_MYSQL.lockRows)
  acquire.release()
  await start.seen
  expect(await world.client.stop('s')).toMatchObject({ through: 1, running: null })
  start.release()
  await world.done('s')
  expect(stage.turns).toHaveLength(0)
  expect(await world.story('s')).toEqual(['message 1', 'stopped 1'])
})

test('I5 · trap: a stop notice between the start’s commit and the handler call is not lost', async () => {
  const w1 = await world.worker(stage.handler, { mysqlTimeoutMs: 10_000, lookMs: 30_000 })
  const start = startsOf(w1)
  const commit = await start.committed
  await world.client.stop('s')
  // What it hears after the notice shows that it has heard the notice.
  await world.redis.publish(world.keys.processChannel(w1.worker.processId), 'nonsense')
  await w1.says('channel.junk')
  commit.release()
  await w1.says('turn.stopped')
  await world.done('s')
  expect(stage.turns).toHaveLength(0)
  expect(await world.story('s')).toEqual(['turn_started 1', 'message 1', 'stopped 1'])
})

test('I5 · trap: a turn whose stop was heard but not looked up yet does not begin its handler', async () => {
  const w1 = await world.worker(stage.handler, { mysqlTimeoutMs: 10_000, lookMs: 30_000 })
  const commit = await startsOf(w1).committed
  const look = w1.toMysql.hold(/select `stop_seq` from `butler_sessions`/i)
  await world.client.stop('s')
  await look.seen
  commit.release()
  await w1.says('turn.started')
  look.release()
  await world.done('s')
  expect(stage.turns).toHaveLength(0)
  expect(await world.story('s')).toEqual(['turn_started 1', 'message 1', 'stopped 1'])
})

/** Holds the answer to the commit of the start of message 1 of `s`. */
function startsOf(w1: Awaited<ReturnType<World['worker']>>) {
  const commit = w1.toMysql.holdAnswer(TO_MYSQL.turnStarted)
  const committed = (async () => {
    await world.client.enqueue('s', 'hello')
    await commit.seen
    await eventually(async () => (await world.row('s')).running_seq === 1)
    return commit
  })()
  return { committed }
}

test.each(['turnStarted', 'turnEnded'] as const)(
  'I4 · trap: a commit whose answer is lost (%s) is not taken for fenced',
  async (which) => {
    const w1 = await world.worker(stage.handler, { mysqlTimeoutMs: 10_000 })
    const lost = w1.toMysql.loseAnswer(TO_MYSQL[which])
    await world.client.enqueue('s', 'hello')
    await lost
    // The row has moved on in what producers may move.
    await world.client.enqueue('s', 'next')
    await world.done('s')
    expect(w1.saw('turn.lost')).toEqual([])
    expect(w1.saw('session.lost')).toEqual([])
    expect(stage.turns.map(({ message, attempt }) => [message.seq, attempt])).toEqual([
      [1, 1],
      [2, 1],
    ])
    expect((await world.story('s')).slice(0, 4)).toEqual(CLEAN)
  },
)

test.each(['turnStarted', 'turnEnded'] as const)(
  'I4 · trap: a commit whose answer is lost (%s) stays in doubt while the next tries fail',
  async (which) => {
    const w1 = await world.worker(stage.handler, { mysqlTimeoutMs: 10_000 })
    const lost = w1.toMysql.loseAnswer(TO_MYSQL[which])
    await world.client.enqueue('s', 'hello')
    await lost.then(() => w1.toMysql.down())
    await w1.says('mysql.trouble', 5)
    w1.toMysql.up()
    await world.done('s')
    expect(w1.saw('turn.lost')).toEqual([])
    expect(stage.turns.map(({ attempt }) => attempt)).toEqual([1])
    expect(await world.story('s')).toEqual(CLEAN)
  },
)

test('I4 · trap: an append whose commit was answered by nobody is written once', async () => {
  const w1 = await world.worker(stage.handler, { mysqlTimeoutMs: 10_000 })
  await world.client.enqueue('s', 'wait')
  await stage.began()
  const lost = w1.toMysql.loseAnswer(/insert into `?butler_entries[\s\S]*note/i)
  const written = stage.turn().append({ type: 'note', payload: 'once' })
  await lost
  expect(await written).toBe(3)
  stage.go()
  await world.done('s')
  expect(await world.story('s')).toEqual(['turn_started 1', 'message 1', 'note 1', 'reply 1', 'completed 1'])
})

test('I3 · trap: a late write of attempt 1 does not land in attempt 2 of the same owner', async () => {
  await world.worker(async (turn) => {
    if (turn.attempt > 1) return stage.handler(turn)
    stage.turns.push(turn)
    throw new Error('first attempt')
  })
  await world.client.enqueue('s', 'wait')
  await stage.began(2)
  const [first, second] = [stage.turn(1), stage.turn(2)]
  await expect(first.append({ type: 'note', payload: 'late' })).rejects.toMatchObject({ code: 'TURN_ENDED' })
  await expect(first.step('late', () => 1)).rejects.toMatchObject({ code: 'TURN_ENDED' })
  // Even one that passed the check in memory meets the row: same owner, same message, another start.
  const { owner, starts } = await world.row('s')
  const mysql = connectMysql(world.mysqlUrl)
  const ledger = new Ledger(mysql, { onTrouble: () => undefined })
  const write = (attempt: number) =>
    ledger.commit('s', (draft) =>
      append(
        draft,
        { owner: String(owner), seq: 1, starts: attempt },
        [{ type: 'late', payload: '1' }],
        draft.row.entrySeq,
      ),
    )
  expect([first.epoch, starts]).toEqual([second.epoch, 2])
  expect(await write(1)).toEqual({ outcome: 'lost' })
  await mysql.close()
  stage.go()
  await world.done('s')
  expect(await world.story('s')).toEqual([
    'turn_started 1',
    'message 1',
    'error 1',
    'retrying 1',
    'turn_started 1',
    'reply 1',
    'completed 1',
  ])
})

test('I4 · trap: an answer older than the turn does not abort it', async () => {
  const w1 = await world.worker(stage.handler, { mysqlTimeoutMs: 10_000 })
  const answer = w1.toMysql.holdAnswer(TO_MYSQL.myRows)
  await answer.seen
  await world.client.enqueue('s', 'wait')
  await stage.began()
  const next = w1.toMysql.hold(TO_MYSQL.myRows)
  answer.release()
  // The next look begins only after that answer has been judged.
  await next.seen
  expect(stage.turn().signal.aborted).toBe(false)
  next.release()
  stage.go()
  await world.done('s')
  expect(await world.story('s')).toEqual(CLEAN)
})

test('I4 · trap: an answer older than the turn’s end releases nothing', async () => {
  const w1 = await world.worker(stage.handler, { mysqlTimeoutMs: 10_000 })
  await world.client.enqueue('s', 'wait')
  await stage.began()
  const answer = w1.toMysql.holdAnswer(TO_MYSQL.myRows)
  await answer.seen
  stage.go()
  await w1.says('session.idle')
  const before = await world.row('s')
  const next = w1.toMysql.hold(TO_MYSQL.myRows)
  answer.release()
  await next.seen
  expect(await world.row('s')).toEqual(before)
  expect(w1.saw('session.evicted')).toEqual([])
  next.release()
})

test.each(['request', 'answer'] as const)(
  'I5 I8 · trap: after a detach whose lock command is lost (%s) the lock carries the older token, and the session goes on',
  async (what) => {
    const w1 = await world.worker(stage.handler, { lookMs: 30_000 })
    await world.client.enqueue('s', 'deaf')
    await stage.began()
    const before = await world.row('s')
    const swap =
      what === 'request'
        ? w1.toRedis.hold(TO_REDIS.swap)
        : { seen: w1.toRedis.loseAnswer(TO_REDIS.swap), release: () => {} }
    await world.client.stop('s')
    await world.client.enqueue('s', 'next')
    await swap.seen
    await world.done('s')
    const after = await world.row('s')
    expect(after.owner).not.toBe(before.owner)
    expect(after.epoch).toBeGreaterThan(before.epoch)
    // The detached handler is still there and can write nothing. What it held up of lock commands arrives only now, on
    // an idle lock, and strands nothing either.
    await w1.says('session.idle')
    swap.release()
    await expect(stage.turn().append({ type: 'note', payload: 'late' })).rejects.toMatchObject({
      code: 'TURN_STOPPED',
    })
    await world.client.enqueue('s', 'wait')
    await stage.began(3)
    expect(await world.redis.get(world.keys.lock('s'))).toBe((await world.row('s')).owner)
    stage.go()
    expect(await world.story('s')).not.toContain('note 1')
    await world.done('s')
  },
)

test('I5 I8 · trap: after a detach in a process that leaves, the lock is given back under its new token', async () => {
  const w1 = await world.worker(stage.handler, { renewMs: 10_000, lookMs: 30_000 })
  await world.client.enqueue('s', 'deaf')
  await stage.began()
  const before = await world.row('s')
  const drained = w1.worker.drain({ graceMs: 10_000 })
  await w1.says('worker.draining')
  await world.client.stop('s')
  await drained
  expect((await world.row('s')).owner).not.toBe(before.owner)
  await w1.says('turn.detached')
  expect(w1.saw('turn.detached')).toHaveLength(1)
  expect(await world.redis.exists(world.keys.lock('s'))).toBe(0)
})
