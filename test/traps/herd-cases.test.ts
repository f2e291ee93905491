// Cases of many at once, and of a Redis that answers but refuses: processes that race for one session, everything that
// waited for an outage to end, a server that is busy, loading, full or has changed its password.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import type { Server } from '../../src/cli/servers.ts'
import { monitorOf } from '../support/monitor.ts'
import { ownRedis } from '../support/services.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type World } from './world.ts'

let server: Server
let world: World
let stage: Stage
beforeAll(async () => {
  const permitted = ['--enable-debug-command', 'yes', '--enable-protected-configs', 'yes']
  // Before version 7 nothing of this needed a permission, and the words were unknown.
  server = await ownRedis(permitted).catch(() => ownRedis())
})
afterAll(() => server.stop())
beforeEach(async () => {
  world = await openWorld({ redisUrl: server.url })
  stage = new Stage()
})
afterEach(() => world.close())

/** Nobody is judged here, and nobody looks in vain. */
const CALM = {
  heartbeatMs: 1000,
  heartbeatTtlMs: 5000,
  deadAfterMs: 20_000,
  hungAfterMs: 20_000,
  sweepMs: 5000,
  redisTimeoutMs: 3000,
  renewMs: 10_000,
}

test('I3 · of ten processes that are all woken for one message, one starts it, and the others spend little on it (LK-13)', async () => {
  const workers = await Promise.all(Array.from({ length: 10 }, () => world.worker(stage.handler, CALM)))
  const ids = Array.from({ length: 20 }, (_, round) => `round-${round}`)
  const monitor = await monitorOf(server.url)
  for (const id of ids) {
    await world.client.enqueue(id, 'hello')
    await world.redis.publish(world.keys.wakeChannel, `wake ${id}`)
    await Promise.all(workers.map(({ worker }) => world.wake(worker, id)))
    await world.done(id)
  }
  monitor.end()
  expect(stage.turns.map(({ sessionId, attempt }) => `${sessionId} ${attempt}`)).toEqual(
    ids.map((id) => `${id} 1`),
  )
  const commands = monitor.lines().filter((line) => line.includes('round-'))
  // Also counted is what scripts do.
  expect(commands.length / ids.length).toBeLessThan(workers.length * 20)
})

test('I1 I8 · what was sent during an outage is worked off within the slots there are, and nobody storms back (PS-05)', async () => {
  let [running, most] = [0, 0]
  const handler = async () => {
    most = Math.max(most, (running += 1))
    await new Promise((resolve) => setTimeout(resolve, 5))
    running -= 1
  }
  await world.worker(handler, { ...CALM, sweepMs: 300, concurrency: 10 })
  await world.worker(handler, { ...CALM, sweepMs: 300, concurrency: 10 })
  server.kill('SIGKILL')
  await eventually(() => server.pid === undefined, 'the end')
  const ids = Array.from({ length: 500 }, (_, n) => `s${n}`)
  await world.client.enqueueMany(ids.map((sessionId) => ({ sessionId, message: 'hello' })))
  await server.restart()
  for (const id of ids) await world.done(id)
  expect(most).toBeLessThanOrEqual(20)
  const [, received] = /total_connections_received:(\d+)/.exec(await world.redis.info('stats')) ?? []
  expect(Number(received)).toBeLessThan(40)
})

/** Makes the server refuse, until what it resolves with is called. */
type Refusal = (admin: Redis) => Promise<() => Promise<unknown>>

const busy: Refusal = async (admin) => {
  await admin.config('SET', 'lua-time-limit', '20')
  const spinner = new Redis(server.url)
  spinner.on('error', () => undefined)
  spinner.eval('while true do end', 0).catch(() => undefined)
  await eventually(
    () =>
      admin.ping().then(
        () => false,
        (error) => String(error).includes('BUSY'),
      ),
    'BUSY',
  )
  return async () => {
    await admin.script('KILL')
    spinner.disconnect()
  }
}

const misconfigured: Refusal = async (admin) => {
  const [, before] = (await admin.config('GET', 'dir')) as string[]
  const folder = await mkdtemp(join(tmpdir(), 'butler-gone-'))
  await admin.config('SET', 'dir', folder)
  await rm(folder, { recursive: true })
  await admin.config('SET', 'save', '3600 1000000')
  await admin.bgsave()
  await eventually(
    () =>
      admin.set('probe', '1').then(
        () => false,
        (error) => String(error).includes('MISCONF'),
      ),
    'MISCONF',
  )
  return async () => {
    await admin.config('SET', 'save', '')
    await admin.config('SET', 'dir', before!)
  }
}

const loading: Refusal = async (admin) => {
  await admin.config('SET', 'loading-process-events-interval-bytes', '1024')
  const fill = admin.pipeline()
  for (let n = 0; n < 200; n++) fill.set(`fill-${n}`, 'x'.repeat(1000), 'EX', 60)
  await fill.exec()
  await admin.config('SET', 'key-load-delay', '10000')
  const other = new Redis(server.url)
  const reloaded = other.call('DEBUG', 'RELOAD')
  await eventually(
    () =>
      admin.ping().then(
        () => false,
        (error) => String(error).includes('LOADING'),
      ),
    'LOADING',
  )
  return async () => {
    await admin.config('SET', 'key-load-delay', '0').catch(() => undefined)
    await reloaded
    other.disconnect()
    await admin.config('SET', 'key-load-delay', '0')
  }
}

test.each<[string, Refusal]>([
  ['BUSY', busy],
  ['MISCONF', misconfigured],
  ['LOADING', loading],
])(
  'I1 I4 · a Redis that says %s for a while costs no turn and no message, and is not stormed (RD-08)',
  async (_what, refuse) => {
    const admin = new Redis(server.url, { enableReadyCheck: false })
    // The refusals outlast the lock: from then on only MySQL confirms the turn.
    const w1 = await world.worker(stage.handler, { lockTtlMs: 1000 })
    await world.client.enqueue('s', 'wait')
    await stage.began()
    const relent = await refuse(admin)
    await w1.says('redis.trouble', 3)
    await world.client.enqueue('s', 'next')
    await world.client.enqueue('other', 'new')
    const troubles = w1.saw('redis.trouble').length
    const since = performance.now()
    await eventually(() => performance.now() - since > 2000)
    expect(w1.saw('redis.trouble').length - troubles).toBeLessThan(400)
    expect(stage.turn().signal.aborted).toBe(false)
    await relent()
    stage.go()
    await world.done('s')
    await world.done('other')
    expect(stage.turns.map(({ attempt }) => attempt)).toEqual([1, 1, 1])
    admin.disconnect()
  },
)

test('I8 · a process that Redis has no connection left for waits at its ease and serves when there is one (RD-11)', async () => {
  const w1 = await world.worker(stage.handler)
  const [, before] = (await world.redis.config('GET', 'maxclients')) as string[]
  await world.redis.config('RESETSTAT')
  // Those that are connected stay so.
  await world.redis.config('SET', 'maxclients', '1')
  const two = new Stage()
  const late = world.worker(two.handler)
  await world.client.enqueue('s', 'hello')
  await world.done('s')
  expect(stage.turns).toHaveLength(1)
  await eventually(
    async () => /rejected_connections:[1-9]/.test(await world.redis.info('stats')),
    'a refusal',
  )
  await world.redis.config('SET', 'maxclients', before!)
  const w2 = await late
  const troubles = w2.saw('redis.trouble').length
  expect(troubles).toBeGreaterThan(0)
  expect(troubles).toBeLessThan(300)
  await w1.worker.stop({ graceMs: 0 })
  await world.client.enqueue('s', 'next')
  await world.done('s')
  expect(two.turns).toHaveLength(1)
})

test('I1 I8 · credentials that are changed are told as such, and all goes on when they fit again (RD-15)', async () => {
  const admin = new Redis(server.url)
  const user = (password: string) =>
    admin.call('ACL', 'SETUSER', 'butler', 'resetpass', `>${password}`, 'on', '~*', '&*', '+@all')
  await user('old')
  const theirs = await openWorld({ redisUrl: server.url.replace('redis://', 'redis://butler:old@') })
  try {
    const w1 = await theirs.worker(stage.handler)
    await theirs.client.enqueue('s', 'wait')
    await stage.began()
    await user('new')
    await admin.client('KILL', 'USER', 'butler')
    await eventually(
      () => w1.saw('redis.trouble').some(({ fields }) => String(fields['error']).includes('WRONGPASS')),
      'WRONGPASS',
    )
    await theirs.client.enqueue('s', 'next')
    const troubles = w1.saw('redis.trouble').length
    const since = performance.now()
    await eventually(() => performance.now() - since > 1000)
    expect(w1.saw('redis.trouble').length - troubles).toBeLessThan(200)
    expect(JSON.stringify(w1.heard)).not.toContain('old@')
    await user('old')
    stage.go()
    await theirs.done('s')
    expect(stage.turns.map(({ attempt }) => attempt)).toEqual([1, 1])
  } finally {
    await theirs.close()
    admin.disconnect()
  }
})
