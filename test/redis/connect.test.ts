// The connections against real servers that go away: bounded waiting, no command that happens later, nothing
// thrown.
import { Cluster, Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { InvalidInputError, UnavailableError } from '../../src/base/errors.ts'
import { now } from '../../src/base/timing.ts'
import type { Server } from '../../src/cli/servers.ts'
import {
  connectRedis,
  toUnavailable,
  type RedisClient,
  type RedisConnection,
} from '../../src/redis/connect.ts'
import { freeze, freshPrefix, ownRedis } from '../support/services.ts'
import { startProxy } from './proxy.ts'
import { eventually } from '../support/eventually.ts'

let server: Server
const open: RedisConnection[] = []

beforeAll(async () => {
  server = await ownRedis()
})
afterAll(() => server.stop())
afterEach(async () => {
  await Promise.all(open.splice(0).map((connection) => connection.close()))
})

function connectTo(source: string | RedisClient, timeoutMs = 2_000) {
  const troubles: Error[] = []
  const onReady = vi.fn()
  const connection = connectRedis(source, { timeoutMs, onTrouble: (error) => troubles.push(error), onReady })
  open.push(connection)
  return { connection, commands: connection.commands, troubles, onReady }
}

test('commands sent before the first connection is ready wait for it', async () => {
  const { commands, connection, onReady, troubles } = connectTo(server.url)
  const key = freshPrefix()
  expect(await Promise.all([commands.set(key, 'x'), commands.get(key)])).toEqual(['OK', 'x'])
  expect(connection.cluster).toBe(false)
  await eventually(() => expect(onReady).toHaveBeenCalledTimes(1))
  expect(troubles).toEqual([])
})

test('a Redis that is down is trouble, not an exception, and commands fail fast', async () => {
  const own = await ownRedis()
  await own.stop()
  const { commands, troubles, onReady } = connectTo(own.url)
  await expect(commands.get('x')).rejects.toThrow()
  await eventually(() => expect(troubles.length).toBeGreaterThan(2))
  const before = now()
  await expect(commands.get('x')).rejects.toThrow()
  expect(now() - before).toBeLessThan(1_000)
  expect(onReady).not.toHaveBeenCalled()

  await own.restart()
  await eventually(() => expect(onReady).toHaveBeenCalledTimes(1))
  expect(await commands.ping()).toBe('PONG')
  await own.stop()
})

test('a restart is reported and over by itself; what was sent meanwhile does not happen later (LK-04)', async () => {
  const own = await ownRedis()
  const { commands, troubles, onReady } = connectTo(own.url)
  await commands.set('a', '1')
  await own.stop()
  await eventually(() => expect(troubles.length).toBeGreaterThan(0))
  await expect(commands.set('late', 'x')).rejects.toThrow()
  await own.restart()
  await eventually(() => expect(onReady).toHaveBeenCalledTimes(2))
  expect(await commands.get('late')).toBeNull()
  await own.stop()
})

test('a command in flight when the connection is cut rejects at once and is not sent again', async () => {
  const proxy = await startProxy(server.port)
  const { commands } = connectTo(`redis://127.0.0.1:${proxy.port}`, 20_000)
  const direct = new Redis(server.url)
  const key = freshPrefix()
  await commands.set(key, '0')
  await direct.call('CLIENT', 'PAUSE', '600', 'ALL')
  const cut = commands.incr(key)
  const before = now()
  proxy.cut()
  await expect(cut).rejects.toThrow()
  expect(now() - before).toBeLessThan(5_000)
  await eventually(async () => expect(await commands.ping()).toBe('PONG'))
  // The server had it once at most, whether or not it read it before the cut.
  expect(Number(await direct.get(key))).toBeLessThanOrEqual(1)
  direct.disconnect()
  await proxy.close()
})

test('a frozen server fails commands within the deadline; it works again when it goes on', async () => {
  const own = await ownRedis()
  const { commands } = connectTo(own.url, 300)
  await commands.ping()
  await freeze(own)
  const before = now()
  await expect(commands.get('x')).rejects.toThrow('timed out')
  expect(now() - before).toBeLessThan(3_000)
  own.kill('SIGCONT')
  await eventually(async () => expect(await commands.ping()).toBe('PONG'))
  await own.stop()
})

test('a blackholed connection is replaced', async () => {
  const proxy = await startProxy(server.port)
  const { commands, onReady } = connectTo(`redis://127.0.0.1:${proxy.port}`, 200)
  await commands.ping()
  proxy.blackhole()
  await expect(commands.ping()).rejects.toThrow('timed out')
  await eventually(async () => expect(await commands.ping()).toBe('PONG'))
  expect(onReady).toHaveBeenCalledTimes(2)
  await proxy.close()
})

test('a demoted primary costs the connection, so that a name can lead to the new one (RD-05)', async () => {
  const own = await ownRedis()
  const { commands, onReady } = connectTo(own.url)
  await commands.ping()
  const direct = new Redis(own.url)
  await direct.replicaof('127.0.0.1', server.port)
  await expect(commands.set('x', '1')).rejects.toThrow('READONLY')
  await eventually(() => expect(onReady).toHaveBeenCalledTimes(2))
  await direct.replicaof('NO', 'ONE')
  await eventually(async () => expect(await commands.set('x', '1')).toBe('OK'))
  direct.disconnect()
  await own.stop()
})

test('a wrong password is trouble, and over when it is right (RD-15)', async () => {
  const own = await ownRedis(['--requirepass', 'right'])
  const admin = new Redis(own.url, { password: 'right' })
  const { commands, troubles } = connectTo(`redis://:wrong@127.0.0.1:${own.port}`)
  await expect(commands.get('x')).rejects.toThrow()
  await eventually(() => expect(troubles.map((error) => error.message).join()).toContain('WRONGPASS'))
  await admin.config('SET', 'requirepass', 'wrong')
  await eventually(async () => expect(await commands.ping()).toBe('PONG'))
  admin.disconnect()
  await own.stop()
})

test('a caller’s client is a recipe: duplicated with our behaviour, and never touched', async () => {
  const theirs = new Redis(server.url, { db: 3, commandTimeout: 1, lazyConnect: true, stringNumbers: true })
  const { connection, commands } = connectTo(theirs)
  const key = freshPrefix()
  expect(await commands.incr(key)).toBe(1)
  expect(theirs.status).toBe('wait')
  await connection.close()
  const reader = new Redis(server.url, { db: 3 })
  expect(await reader.get(key)).toBe('1')
  reader.disconnect()
  theirs.disconnect()
})

test('automatic pipelining of a caller’s client is not ours: answers of one session never wait for another’s (RD-10)', async () => {
  const theirs = new Redis(server.url, { enableAutoPipelining: true, lazyConnect: true })
  const { commands } = connectTo(theirs)
  const key = freshPrefix()
  const script = "return redis.call('INCRBY', KEYS[1], 1)"
  const counts = await Promise.all(Array.from({ length: 50 }, () => commands.eval(script, 1, key)))
  expect(counts).toEqual(Array.from({ length: 50 }, (_, n) => n + 1))
  expect((commands as Redis).options.enableAutoPipelining).toBe(false)
  theirs.disconnect()
})

test('a source that cannot be used is refused with an example', () => {
  const options = { timeoutMs: 100, onTrouble: () => undefined, onReady: () => undefined }
  expect(() => connectRedis('localhost', options)).toThrow(InvalidInputError)
  expect(() => connectRedis({} as Redis, options)).toThrow('must be a Redis URL or an ioredis')
  const prefixed = new Redis({ keyPrefix: 'x:', lazyConnect: true })
  expect(() => connectRedis(prefixed, options)).toThrow('keyPrefix')
  prefixed.disconnect()
})

test('a Cluster that is down fails commands within the deadline and goes on trying', async () => {
  const own = await ownRedis()
  await own.stop()
  const theirs = new Cluster([{ host: '127.0.0.1', port: own.port }], { lazyConnect: true })
  const { connection, commands, troubles } = connectTo(theirs, 500)
  expect(connection.cluster).toBe(true)
  const before = now()
  await expect(commands.get('x')).rejects.toThrow()
  await expect(commands.get('x')).rejects.toThrow()
  expect(now() - before).toBeLessThan(5_000)
  await eventually(() => expect(troubles.length).toBeGreaterThan(1))
  theirs.disconnect()
})

test('closing answers what is in flight, twice is fine, and a closed connection refuses', async () => {
  const { connection, commands, troubles } = connectTo(server.url)
  const answers = Promise.all([commands.ping(), commands.ping()])
  await connection.close()
  await connection.close()
  expect(await answers).toEqual(['PONG', 'PONG'])
  await expect(commands.ping()).rejects.toThrow()
  expect(troubles).toEqual([])
})

test('any failure becomes REDIS_UNAVAILABLE once', () => {
  const cause = new Error('Command timed out')
  const error = toUnavailable(cause)
  expect(error).toBeInstanceOf(UnavailableError)
  expect(error).toMatchObject({ code: 'REDIS_UNAVAILABLE', cause })
  expect(error.message).toContain('Command timed out')
  expect(toUnavailable(error)).toBe(error)
})
