// Cases of recovery: whoever takes over from a dead process finds everything, also with keys missing, also when it dies
// half-way itself; and what meets the very end of a turn.
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Entry } from '../../src/index.ts'
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
})
afterEach(() => world.close())

/** It neither renews nor looks by itself within a test; only what it is told makes it act. */
const UNHURRIED = { renewMs: 10_000, lookMs: 30_000, redisTimeoutMs: 8000, mysqlTimeoutMs: 10_000 }
const outcomes = async () =>
  (await world.story('s')).filter((line) => /^(completed|stopped|failed) /.test(line))
const completed = (count: number) => Array.from({ length: count }, (_, index) => `completed ${index + 1}`)

/** As a killed process: nothing of it gets through any more. */
function die({ toRedis, toMysql }: Watched): void {
  toRedis.down()
  toMysql.down()
}

/** A process that dies while message 1 of 3 runs. */
async function deadOwner(): Promise<Watched> {
  const w1 = await world.worker(one.handler, UNHURRIED)
  for (const payload of ['wait', 'b', 'c']) await world.client.enqueue('s', payload)
  await one.began()
  die(w1)
  return w1
}

const KEYS: [string, () => string[]][] = [
  ['its lock', () => [world.keys.lock('s')]],
  ['what it had taken', () => [world.keys.processing('s')]],
  ['the queue', () => [world.keys.queue('s')]],
  ['the list of processes', () => [world.keys.processes]],
  [
    'everything',
    () => [world.keys.lock('s'), world.keys.processing('s'), world.keys.queue('s'), world.keys.processes],
  ],
]

test.each(KEYS)(
  'I1 I8 · a dead owner is replaced although %s is gone, and its session works on (CR-06, CR-11, CR-12, RD-13)',
  async (_what, keys) => {
    const w1 = await deadOwner()
    await world.redis.del(...keys(), world.keys.process(w1.worker.processId))
    await world.worker(two.handler)
    await two.began()
    two.go()
    await world.done('s')
    for (let more = 4; more <= 8; more++) await world.client.enqueue('s', `${more}`)
    await world.done('s')
    expect(two.turns.map(({ message, attempt }) => [message.seq, attempt])).toEqual([
      [1, 2],
      ...[2, 3, 4, 5, 6, 7, 8].map((seq) => [seq, 1]),
    ])
    expect(await outcomes()).toEqual(completed(8))
  },
)

test('I1 · what a dead owner had taken is at the queue’s taking end again before its session goes on', async () => {
  const w1 = await world.worker(one.handler, UNHURRIED)
  for (const payload of ['wait', 'wait', 'c']) await world.client.enqueue('s', payload)
  await one.began()
  one.go()
  await one.began(2)
  const lists = () =>
    Promise.all(
      [world.keys.queue('s'), world.keys.processing('s')].map(async (key) =>
        (await world.redis.lrange(key, 0, -1)).map((reference) => Number.parseInt(reference)),
      ),
    )
  await eventually(async () => JSON.stringify(await lists()) === '[[3,2],[1]]', 'it has taken one')
  die(w1)
  await world.worker(two.handler)
  await two.began()
  expect(await lists()).toEqual([[3, 2, 1], []])
  two.go()
  await world.done('s')
  expect(await outcomes()).toEqual(completed(3))
})

const STEPS: [
  string,
  (w: Watched, how: 'hold' | 'holdAnswer') => { seen: Promise<void>; release(): void },
][] = [
  ['its verdict', (w, how) => w.toMysql[how](TO_MYSQL.lockRows)],
  ['taking the lock', (w, how) => w.toRedis[how](TO_REDIS.lock)],
  ['taking the row', (w, how) => w.toMysql[how](TO_MYSQL.acquired)],
  ['putting back what was taken', (w, how) => w.toRedis[how](TO_REDIS.recover)],
  ['its start', (w, how) => w.toMysql[how](TO_MYSQL.turnStarted)],
]

test.each(
  STEPS.flatMap(([what, at]) => (['hold', 'holdAnswer'] as const).map((how) => [what, how, at] as const)),
)(
  'I1 I2 · a process that dies at %s (%s) while it takes over from a dead one is taken over from in turn (CR-09)',
  async (_what, how, at) => {
    await deadOwner()
    const w2 = await world.worker(two.handler, {
      redisTimeoutMs: 8000,
      renewMs: 10_000,
      mysqlTimeoutMs: 10_000,
    })
    const step = at(w2, how)
    await step.seen
    die(w2)
    // What was on its way arrives.
    step.release()
    const three = new Stage()
    await world.worker(three.handler)
    await three.began()
    three.go()
    await world.done('s')
    await world.client.enqueue('s', 'd')
    await world.done('s')
    expect(three.turns.map(({ message }) => message.seq)).toEqual([1, 2, 3, 4])
    expect(await outcomes()).toEqual(completed(4))
  },
)

test('I4 · an effect whose record was lost is run again by somebody who knows: the attempt, the open call, the same id (CR-08)', async () => {
  const tickets: string[] = []
  let seen: readonly Entry[] = []
  const handler: typeof one.handler = async (turn) => {
    if (turn.attempt > 1) seen = (await world.client.transcript('s')).entries
    await turn.append({ type: 'tool_call', callId: `c${turn.attempt}`, payload: 'open a ticket' })
    tickets.push(`${turn.message.id} ${turn.attempt}`)
    await turn.append({ type: 'tool_result', callId: `c${turn.attempt}`, payload: 'opened' })
  }
  const w1 = await world.worker(handler, UNHURRIED)
  const record = w1.toMysql.hold(/insert into `?butler_entries[\s\S]*tool_result/i)
  const { id } = await world.client.enqueue('s', 'hello')
  await record.seen
  die(w1)
  // The server sees the socket close and undoes what is open.
  const open = await world.rows<{ id: number }>(
    `SELECT trx_mysql_thread_id AS id FROM information_schema.innodb_trx
     JOIN information_schema.processlist ON trx_mysql_thread_id = ID WHERE DB = DATABASE()`,
  )
  for (const { id: thread } of open) await world.run(`KILL ${thread}`)
  await world.worker(handler)
  await world.done('s')
  expect(tickets).toEqual([`${id} 1`, `${id} 2`])
  const calls = seen.filter(({ callId }) => callId === 'c1')
  expect(calls.map(({ type, payload }) => [type, payload])).toEqual([
    ['tool_call', 'open a ticket'],
    ['tool_result', { interrupted: true }],
  ])
})

test.each(['hold', 'holdAnswer'] as const)(
  'I5 · a stop that meets the commit of a turn’s end (%s) leaves one final state, the same for everybody (ST-11)',
  async (how) => {
    const w1 = await world.worker(one.handler, UNHURRIED)
    await world.client.enqueue('s', 'wait')
    await one.began()
    const end = w1.toMysql[how](how === 'hold' ? TO_MYSQL.lockRows : TO_MYSQL.turnEnded)
    one.go()
    await end.seen
    if (how === 'holdAnswer') await eventually(async () => (await world.row('s')).done_seq === 1)
    const receipt = await world.client.stop('s')
    end.release()
    await w1.says('session.idle')
    expect(receipt).toMatchObject({ through: 1, running: how === 'hold' ? 1 : null })
    const [final, ...more] = await outcomes()
    expect(more).toEqual([])
    const [{ status } = {}] = await world.rows<{ status: string | null }>(
      'SELECT status FROM butler_messages',
    )
    expect(final).toBe(`${status ?? 'completed'} 1`)
    if (how === 'holdAnswer') expect(final).toBe('completed 1')
    const event = status === 'stopped' ? 'turn.stopped' : 'turn.completed'
    await w1.says(event)
    expect(w1.saw(event)).toHaveLength(1)
  },
)

test('I5 · stops at about the moment of the end leave each message one final state (ST-11)', async () => {
  await world.worker(one.handler)
  const ids = Array.from({ length: 60 }, (_, n) => `s${n}`)
  for (const id of ids) await world.client.enqueue(id, 'wait')
  await one.began(ids.length)
  one.go()
  await Promise.all(ids.map((id) => world.client.stop(id)))
  await Promise.all(ids.map((id) => world.done(id)))
  for (const id of ids) {
    const ends = (await world.story(id)).filter(
      (line) => line.endsWith(' 1') && /^(completed|stopped)/.test(line),
    )
    const [{ status } = {}] = await world.rows<{ status: string | null }>(
      'SELECT status FROM butler_messages WHERE session_id = ?',
      [id],
    )
    expect(ends).toEqual([`${status ?? 'completed'} 1`])
  }
})

test.each(['lock', 'recover', 'advance'] as const)(
  'I8 · a process told to leave at the moment it takes a message (%s) strands none for the life of a lock (SD-04)',
  async (step) => {
    const w1 = await world.worker(one.handler, UNHURRIED)
    const taking = w1.toRedis.hold(TO_REDIS[step])
    await world.client.enqueue('s', 'a')
    await taking.seen
    await world.client.enqueue('s', 'b')
    await world.worker(two.handler)
    const stopped = w1.worker.stop({ graceMs: 0 })
    await w1.says('worker.draining')
    taking.release()
    await stopped
    await world.done('s')
    expect(await outcomes()).toEqual(completed(2))
    const runs = [...one.turns, ...two.turns].map(({ message }) => `${message.seq}`).toSorted()
    expect(runs).toEqual(['1', '2'])
  },
)
