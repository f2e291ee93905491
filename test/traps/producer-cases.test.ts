// Cases of producers: one that dies or loses an answer anywhere between its call and the notification, several that send
// the same thing, one that sends too much or under strange names.
import { afterEach, beforeEach, expect, test } from 'vitest'
import { TO_MYSQL } from './line.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type World } from './world.ts'

let world: World
let stage: Stage
beforeEach(async () => {
  world = await openWorld()
  stage = new Stage()
})
afterEach(() => world.close())

const PUSH = /:queue\r\n/
const ran = () => stage.turns.map(({ message }) => message.payload)

/** A producer behind lines of its own. */
async function producer() {
  const [toMysql, toRedis] = await Promise.all([world.newLine(world.mysqlUrl), world.newLine(world.redisUrl)])
  const client = world.newClient(
    { mysqlTimeoutMs: 8000, redisTimeoutMs: 4000, renewMs: 10_000 },
    toMysql.url,
    toRedis.url,
  )
  return { client, toMysql, toRedis }
}

test.each(['as they were pushed', 'lost'])(
  'I2 · messages run in the order of their commits, with references that come in another order and are %s (QO-08)',
  async (what) => {
    const slow = await producer()
    for (let pair = 0; pair < 3; pair++) {
      const push = slow.toRedis.hold(PUSH)
      const first = slow.client.enqueue('s', `${2 * pair + 1}`)
      await push.seen
      await world.client.enqueue('s', `${2 * pair + 2}`)
      push.release()
      await first
    }
    const queue = world.keys.queue('s')
    await eventually(async () => (await world.redis.llen(queue)) === 6, 'all references')
    const order = (await world.redis.lrange(queue, 0, -1)).map((reference) => reference.split(':')[0])
    expect(order).toEqual(['5', '6', '3', '4', '1', '2'])
    if (what === 'lost') await world.redis.del(queue)
    await world.worker(stage.handler)
    await world.done('s')
    expect(ran()).toEqual(['1', '2', '3', '4', '5', '6'])
  },
)

test('I1 · a flood is refused beyond the limit, what was accepted is kept, and Redis holds no more than that (QO-11)', async () => {
  const client = world.newClient({ queueMax: 50 })
  const sent = await Promise.allSettled(
    Array.from({ length: 1000 }, (_, n) => client.enqueue('s', `${n} ${'x'.repeat(1000)}`)),
  )
  const accepted = sent.filter(({ status }) => status === 'fulfilled')
  const refused = sent.filter(({ status }) => status === 'rejected')
  expect([accepted.length, refused.length]).toEqual([50, 950])
  expect(refused[0]).toMatchObject({ reason: { name: 'RefusedError', code: 'QUEUE_FULL' } })
  expect(await world.redis.llen(world.keys.queue('s'))).toBeLessThanOrEqual(50)
  expect(Number(await world.redis.memory('USAGE', world.keys.queue('s')))).toBeLessThan(10_000)
  await world.worker(stage.handler)
  await world.done('s')
  expect(stage.turns).toHaveLength(50)
})

test('I1 I6 · a producer that dies after its commit and before its push is found, and the repeat is no second message (PI-02)', async () => {
  const dying = await producer()
  const push = dying.toRedis.hold(PUSH)
  void dying.client.enqueue('s', 'hello', { idempotencyKey: 'k' })
  await push.seen
  dying.toRedis.down()
  dying.toMysql.down()
  expect(await world.redis.exists(world.keys.queue('s'))).toBe(0)
  await world.worker(stage.handler)
  await world.done('s')
  expect(await world.client.enqueue('s', 'hello', { idempotencyKey: 'k' })).toMatchObject({
    seq: 1,
    duplicate: true,
  })
  expect(ran()).toEqual(['hello'])
})

test('I4 · a push whose answer was lost is handled once (PI-03)', async () => {
  const { client, toRedis } = await producer()
  const lost = toRedis.loseAnswer(PUSH)
  const sent = client.enqueue('s', 'hello')
  await lost
  expect(await sent).toMatchObject({ seq: 1, duplicate: false })
  await client.enqueue('s', 'next')
  await world.worker(stage.handler)
  await world.done('s')
  expect(stage.turns.map(({ message, attempt }) => [message.seq, attempt])).toEqual([
    [1, 1],
    [2, 1],
  ])
})

test.each([
  ['before its commit', false],
  ['after its commit', true],
])(
  'I6 · a key of a producer that died %s keeps nobody waiting: the repeat is the one message (PI-04)',
  async (_when, isCommitted) => {
    const dying = await producer()
    const commit = isCommitted ? undefined : dying.toMysql.hold(TO_MYSQL.commit)
    const seen = commit?.seen ?? dying.toMysql.loseAnswer(TO_MYSQL.commit)
    dying.client.enqueue('s', 'hello', { idempotencyKey: 'k' }).catch(() => undefined)
    await seen
    dying.toMysql.down()
    // Its socket closes, and the server undoes what is open.
    if (!isCommitted) {
      const open = await world.rows<{ id: number }>(
        `SELECT trx_mysql_thread_id AS id FROM information_schema.innodb_trx
         JOIN information_schema.processlist ON trx_mysql_thread_id = ID WHERE DB = DATABASE()`,
      )
      for (const { id } of open) await world.run(`KILL ${id}`)
    }
    const again = await world.client.enqueue('s', 'hello', { idempotencyKey: 'k' })
    expect(again).toMatchObject({ seq: 1, duplicate: isCommitted })
    await world.worker(stage.handler)
    await world.done('s')
    expect(ran()).toEqual(['hello'])
  },
)

test('I6 · a child that reports and dies, and reports again when it is run again, has reported once (PI-06)', async () => {
  const reports: boolean[] = []
  const handler: typeof stage.handler = async (turn) => {
    if (turn.sessionId === 'child') {
      const options = { idempotencyKey: `child ${turn.message.id}`, source: 'agent' } as const
      reports.push((await world.client.enqueue('parent', 'report', options)).duplicate)
    }
    return stage.handler(turn)
  }
  const w1 = await world.worker(handler)
  await world.client.enqueue('child', 'wait')
  await eventually(() => reports.length === 1, 'the first report')
  await world.done('parent')
  w1.toRedis.down()
  w1.toMysql.down()
  await world.worker(handler)
  await eventually(() => reports.length === 2, 'the second report')
  stage.go()
  await world.done('child')
  await world.done('parent')
  expect(reports).toEqual([false, true])
  expect(stage.turns.filter(({ sessionId }) => sessionId === 'parent')).toHaveLength(1)
})

test('I6 · an automation that fires in two deployments sends one message per planned time (PI-07)', async () => {
  const deployments = [world.newClient(), world.newClient()]
  const planned = Array.from(
    { length: 20 },
    (_, n) => `digest 2024-02-29T${10 + (n % 10)}:${n < 10 ? 0 : 3}0`,
  )
  const fire = (client: (typeof deployments)[0]) =>
    planned.map((time) => client.enqueue('s', 'digest', { idempotencyKey: time, source: 'automation' }))
  const sent = await Promise.all(deployments.flatMap(fire))
  expect(sent.filter(({ duplicate }) => !duplicate)).toHaveLength(20)
  await world.worker(stage.handler)
  await world.done('s')
  expect(stage.turns).toHaveLength(20)
})

test('I2 · names that mean something to JavaScript or look like our keys are sessions like any other (HT-03)', async () => {
  const ids = [
    '__proto__',
    'constructor',
    'toString',
    'a',
    'a:b',
    'a:processing',
    'a:lock',
    'proc:x',
    '-',
    '@',
  ]
  const foreign = `${world.prefix}:elsewhere`
  await world.redis.set(foreign, 'untouched')
  await world.worker(stage.handler)
  for (const id of ids) await world.client.enqueue(id, id)
  for (const id of ids) await world.done(id)
  expect(stage.turns.map(({ sessionId, message }) => `${sessionId} ${message.seq}`).toSorted()).toEqual(
    ids.map((id) => `${id} 1`).toSorted(),
  )
  expect(stage.turns.every(({ sessionId, message }) => sessionId === message.payload)).toBe(true)
  expect(await world.redis.get(foreign)).toBe('untouched')
  await world.redis.del(foreign)
})

test('I1 · a payload of very many members is refused, and writes nothing (PE-05)', async () => {
  const wide = Object.fromEntries(Array.from({ length: 200_000 }, (_, n) => [`k${n}`, n]))
  await expect(world.client.enqueue('s', { payload: wide })).rejects.toMatchObject({
    code: 'PAYLOAD_TOO_LARGE',
  })
  expect(await world.rows('SELECT id FROM butler_sessions')).toEqual([])
})
