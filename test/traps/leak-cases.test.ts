// Cases of what outlives its use: renewals of a lock that was released, sessions in memory, timers, sockets, a process
// that does not end by itself; and times that no timer can hold.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { afterEach, expect, test } from 'vitest'
import { DEFAULTS } from '../../src/base/options.ts'
import { createClient, createWorker } from '../../src/index.ts'
import { sleep } from '../support/eventually.ts'
import { type Proxy, startProxy } from '../support/proxy.ts'
import { services } from '../support/services.ts'
import { eventually, openWorld, type World } from './world.ts'

let world: World | undefined
let proxy: Proxy | undefined
afterEach(async () => {
  await world?.close()
  await proxy?.close()
  world = proxy = undefined
})

test('I9 · hundreds of sessions that came and went leave no lock that is renewed, no butler, no timer and no socket (LK-05, EL-05)', async () => {
  proxy = await startProxy(services().redisUrl)
  proxy.delay(0, 20)
  const at = (world = await openWorld({ redisUrl: proxy.url }))
  const w1 = await at.worker(
    async ({ signal }) => {
      await sleep(Math.random() * 60, undefined, { signal })
    },
    { lockTtlMs: 1000, renewMs: 300, heartbeatTtlMs: 400, idleReleaseMs: 1000, deadAfterMs: 20_000 },
  )
  const ids = Array.from({ length: 300 }, (_, n) => `s${n}`)
  await Promise.all(
    ids.map(async (id, n) => {
      await at.client.enqueue(id, 'hello')
      if (n % 2 === 0) await at.client.stop(id)
    }),
  )
  for (const id of ids) await at.done(id)
  await eventually(() => w1.worker.stats().sessions === 0, 'no butler')
  const locks = async () => (await at.redis.keys(`${at.prefix}:*:lock`)).length
  await eventually(async () => (await locks()) === 0, 'no lock')
  expect(w1.saw('background.error')).toEqual([])
})

test('I9 · a program that closes what it opened ends by itself (EL-05)', async () => {
  const at = (world = await openWorld())
  const source = new URL('../../src/index.ts', import.meta.url).href
  const program = `
    import { createClient, createWorker } from ${JSON.stringify(source)}
    const connections = ${JSON.stringify({ redis: at.redisUrl, mysql: at.mysqlUrl, prefix: at.prefix, logger: false })}
    const client = createClient(connections)
    const worker = createWorker({ ...connections, handler: () => 'done' })
    await worker.start()
    const done = new Promise((resolve) => worker.on('session.idle', resolve))
    await client.enqueue('s', 'hello')
    await done
    await Promise.all([worker.stop(), client.close()])
    console.log('closed')`
  const args = ['--import', import.meta.resolve('tsx'), '--input-type=module', '-e', program]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const [output, [code]] = await Promise.all([text(child.stdout), once(child, 'exit')])
  expect([output, code]).toEqual(['closed\n', 0])
  expect((await at.row('s')).done_seq).toBe(1)
})

test('I9 · no time is taken that a timer would turn into a loop: infinite, none, negative, beyond 2^31 (EL-04)', () => {
  const times = Object.keys(DEFAULTS).filter((name) => name.endsWith('Ms') && name !== 'retryDelaysMs')
  expect(times.length).toBeGreaterThan(15)
  const { redisUrl: redis, mysqlUrl: mysql } = services()
  for (const name of times) {
    for (const value of [Infinity, NaN, -1, 2 ** 31]) {
      expect(() => createClient({ redis, mysql, [name]: value }), `${name} ${value}`).toThrow(
        expect.objectContaining({ code: 'INVALID_OPTIONS' }),
      )
    }
  }
  expect(() => createClient({ redis, mysql, retryDelaysMs: [2 ** 31] })).toThrow('retryDelaysMs')
})

test('I8 · times of which no part is a round number serve as well: the sweep finds what nobody was told of', async () => {
  const at = (world = await openWorld())
  const odd = {
    mysql: at.mysqlUrl,
    prefix: at.prefix,
    logger: false,
    lockTtlMs: 4113,
    mysqlTimeoutMs: 3777,
  } as const
  const mute = createClient({ ...odd, redis: 'redis://127.0.0.1:1', notifyTimeoutMs: 11 })
  const worker = createWorker({ ...odd, redis: at.redisUrl, handler: () => 'done' })
  const troubles: unknown[] = []
  for (const name of ['redis.trouble', 'mysql.trouble', 'background.error'] as const)
    worker.on(name, (fields) => troubles.push(fields))
  await worker.start()
  for (let n = 0; n < 3; n++) {
    await mute.enqueue(`s${n}`, 'hello')
    await at.done(`s${n}`)
  }
  expect(troubles).toEqual([])
  await Promise.all([worker.stop(), mute.close()])
})
