// What readiness probes are told (HT-10): the truth also when both stores answer a ping and nothing is served, and
// nothing alarming about an outage that everything survives.
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Health } from '../../src/index.ts'
import { Latch, eventually, openWorld, type Watched, type World } from '../traps/world.ts'

let world: World

beforeEach(async () => {
  world = await openWorld()
})
afterEach(() => world.close())

const codes = ({ problems }: Health) => problems.map(({ code }) => code)
/** A grace long enough that nothing counts in this test. */
const LONG = { graceMs: 60_000 }

/** Resolves when the worker says that this is wrong with it. */
const shows = ({ worker }: Watched, code: string) =>
  eventually(() => codes(worker.health({ graceMs: 50 })).includes(code as never), `the problem ${code}`)
const isWell = ({ worker }: Watched) =>
  eventually(() => worker.health({ graceMs: 0 }).ready, 'a worker without problems')

test('a worker is ready while it serves, and not before or after', async () => {
  const [atWork, goOn] = [new Latch('a turn'), new Latch('its end')]
  const one = await world.worker(async () => {
    atWork.open()
    await goOn.opened
  })
  await isWell(one)
  await world.client.enqueue('chat', 'x')
  await atWork.opened
  const before = Date.now()
  const drained = one.worker.drain({ graceMs: 10_000 })
  const health = one.worker.health()
  expect(codes(health)).toEqual(['draining'])
  expect(health.ready).toBe(false)
  expect(Date.parse(health.problems[0]!.since)).toBeGreaterThan(before - 1000)
  goOn.open()
  await drained
  await one.worker.stop()
  expect(codes(one.worker.health())).toEqual(['stopped'])
  expect(() => one.worker.health({ graceMs: -1 })).toThrow('graceMs')
})

test('a worker that has not started says so', async () => {
  const { createWorker } = await import('../../src/index.ts')
  const worker = createWorker({ redis: world.redisUrl, mysql: world.mysqlUrl, handler: () => undefined })
  expect(worker.health()).toMatchObject({ ready: false, problems: [{ code: 'starting' }] })
  await worker.stop()
})

test('it is not ready when nothing is heard any more, although Redis answers (HT-10)', async () => {
  const one = await world.worker(() => undefined)
  await isWell(one)
  const held = Array.from({ length: 300 }, () => one.toRedis.hold(/\r\nsubscribe\r\n/i))
  one.toRedis.cut()
  await shows(one, 'deaf')
  // Its commands get through.
  await eventually(async () => (await world.redis.exists(world.keys.process(one.worker.processId))) === 1)
  await eventually(() => codes(one.worker.health({ graceMs: 50 })).join() === 'deaf', 'nothing but deafness')
  expect(one.worker.health(LONG).ready).toBe(true)
  for (const one of held) one.release()
  one.toRedis.cut()
  await isWell(one)
})

test('it is not ready when its sweep hangs, although both stores answer (HT-10)', async () => {
  const one = await world.worker(() => undefined, { mysqlTimeoutMs: 5000 })
  await isWell(one)
  const sweeps = Array.from({ length: 50 }, () => one.toMysql.holdAnswer(/date_format\(s\.waiting_since/))
  await sweeps[0]!.seen
  await shows(one, 'sweep')
  for (const sweep of sweeps) sweep.release()
  await isWell(one)
})

test.each(['redis', 'mysql'] as const)('an outage of %s counts when it outlasts the grace', async (store) => {
  const one = await world.worker(() => undefined)
  await isWell(one)
  const line = store === 'redis' ? one.toRedis : one.toMysql
  line.down()
  await shows(one, store)
  // A short one is survived by everything: no reason to be taken out of service.
  expect(one.worker.health(LONG)).toEqual({ ready: true, problems: [] })
  line.up()
  await isWell(one)
})

test('locks that are not kept alive are a problem', async () => {
  const [atWork, goOn] = [new Latch('a turn'), new Latch('its end')]
  const one = await world.worker(async () => {
    atWork.open()
    await goOn.opened
  })
  await world.client.enqueue('chat', 'x')
  await atWork.opened
  await isWell(one)
  one.toRedis.down()
  await shows(one, 'renewals')
  await one.says('lock.late')
  one.toRedis.up()
  await isWell(one)
  goOn.open()
})

test('an event loop that stood still is a problem for a while', async () => {
  const one = await world.worker(() => undefined, { renewMs: 1000, lockTtlMs: 10_000 })
  await isWell(one)
  const until = performance.now() + 1800
  while (performance.now() < until);
  await shows(one, 'stalled')
  await isWell(one)
})

test('a client says whether both stores answer', async () => {
  const [redis, mysql] = await Promise.all([world.newLine(world.redisUrl), world.newLine(world.mysqlUrl)])
  const client = world.newClient({}, mysql.url, redis.url)
  const ask = async (graceMs: number) => codes(await client.health({ graceMs }))
  await eventually(async () => (await ask(0)).length === 0, 'both stores')
  mysql.down()
  await eventually(async () => (await ask(0)).join() === 'mysql', 'MySQL away')
  expect(await client.health(LONG)).toEqual({ ready: true, problems: [] })
  mysql.up()
  redis.down()
  await eventually(async () => (await ask(0)).join() === 'redis', 'Redis away')
  redis.up()
  await eventually(async () => (await ask(0)).length === 0, 'both stores again')
  const many = await Promise.all(Array.from({ length: 50 }, () => client.health()))
  expect(many.every(({ ready }) => ready)).toBe(true)
  await expect(client.health({ graceMs: 1.5 })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  await client.close()
  expect(await ask(0)).toEqual(['stopped'])
})
