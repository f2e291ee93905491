import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Server } from '../../src/cli/servers.ts'
import { connectRedis, type RedisClient, type RedisConnection } from '../../src/redis/connect.ts'
import * as fleet from '../../src/redis/fleet.ts'
import { Keys } from '../../src/redis/keys.ts'
import { Listener } from '../../src/redis/wake.ts'
import { freshPrefix, ownRedis } from '../support/services.ts'
import { eventually } from '../support/eventually.ts'

const beatOf = (overrides: Partial<fleet.HeartbeatValue> = {}): fleet.HeartbeatValue => ({
  version: 1,
  kinds: ['*'],
  free: 3,
  draining: false,
  ...overrides,
})

let server: Server
let connection: RedisConnection
let redis: RedisClient
let keys: Keys
const stops: (() => Promise<unknown>)[] = []

beforeAll(async () => {
  server = await ownRedis()
  connection = connectRedis(server.url, {
    timeoutMs: 2_000,
    onTrouble: () => undefined,
    onReady: () => undefined,
  })
  redis = connection.commands
})
afterAll(async () => {
  await connection.close()
  await server.stop()
})
beforeEach(() => {
  keys = new Keys(freshPrefix())
})
afterEach(async () => {
  await Promise.all(stops.splice(0).map((stop) => stop()))
})

const join = (processId: string, value = beatOf(), ttlMs = 30_000) =>
  fleet.beat(redis, keys, processId, value, ttlMs, { join: true })

describe('members', () => {
  test('join, beat, leave', async () => {
    expect(await fleet.members(redis, keys)).toEqual(new Map())
    await join('P1')
    await join('P1', beatOf({ free: 2 }))
    await fleet.beat(redis, keys, 'P2', beatOf(), 30_000, { join: false })
    expect(await fleet.members(redis, keys)).toEqual(new Map([['P1', beatOf({ free: 2 })]]))
    await join('P2', beatOf({ draining: true, kinds: ['chat', 'mail'] }))
    expect((await fleet.members(redis, keys)).get('P2')).toEqual(
      beatOf({ draining: true, kinds: ['chat', 'mail'] }),
    )
    await fleet.leave(redis, keys, 'P1')
    await fleet.leave(redis, keys, 'P1')
    expect([...(await fleet.members(redis, keys)).keys()]).toEqual(['P2'])
    expect(await redis.exists(keys.process('P1'))).toBe(0)
    await fleet.forget(redis, keys, 'P2')
    expect(await fleet.members(redis, keys)).toEqual(new Map())
  })

  test('a heartbeat that expired leaves a member without one', async () => {
    await join('P1', beatOf(), 30)
    await expect.poll(async () => (await fleet.members(redis, keys)).get('P1')).toBeNull()
  })

  test('after a flush the next beat with join brings it back', async () => {
    await join('P1')
    await redis.flushall()
    expect(await fleet.members(redis, keys)).toEqual(new Map())
    await join('P1')
    expect([...(await fleet.members(redis, keys)).keys()]).toEqual(['P1'])
  })

  test.each([
    ['no JSON', '{'],
    ['null', 'null'],
    ['a list', '[1]'],
    ['a word', '"hello"'],
    ['no kinds', '{"version":1,"free":1,"draining":false}'],
    ['a negative number', '{"version":1,"free":-1,"kinds":["*"],"draining":false}'],
    ['a fraction', '{"version":1,"free":1.5,"kinds":["*"]}'],
    ['a version that is no number', '{"version":"1","free":1,"kinds":["*"]}'],
  ])('an unreadable heartbeat (%s) reads as none', async (_title, text) => {
    await join('P1')
    await redis.set(keys.process('P1'), text)
    expect(await fleet.members(redis, keys)).toEqual(new Map([['P1', null]]))
  })

  test('a newer version’s heartbeat is read as far as it is known (SD-08)', async () => {
    await join('P1')
    await redis.set(keys.process('P1'), '{"version":9,"free":1,"kinds":["a",7],"draining":1,"mood":"good"}')
    expect((await fleet.members(redis, keys)).get('P1')).toEqual({
      version: 9,
      free: 1,
      kinds: ['a'],
      draining: false,
    })
  })

  test('foreign members are skipped, a foreign set is replaced, a foreign heartbeat is none', async () => {
    await redis.sadd(keys.processes, 'P1', '', 'a b', '../x', 'x'.repeat(1_000))
    await redis.lpush(keys.process('P1'), 'junk')
    expect(await fleet.members(redis, keys)).toEqual(new Map([['P1', null]]))
    await redis.set(keys.processes, 'junk')
    expect(await fleet.members(redis, keys)).toEqual(new Map())
    expect(await fleet.pickMember(redis, keys)).toBeNull()
    await fleet.forget(redis, keys, 'P1')
    await join('P2')
    expect([...(await fleet.members(redis, keys)).keys()]).toEqual(['P2'])
  })
})

test('a sight tells where a process is and how long ago it said so, as far as its version does', async () => {
  const value = { ...beatOf(), host: 'host-1', pid: 7 }
  await fleet.beat(redis, keys, 'P1', value, 60_000, { join: true })
  await redis.pexpire(keys.process('P1'), 40_000)
  await redis.set(keys.process('P2'), '{"version":1,"free":1,"kinds":["*"],"host":"a b","pid":"7"}')
  await redis.lpush(keys.process('P3'), 'junk')
  const seen = await fleet.sight(redis, keys, ['P1', 'P2', 'P3', 'P4', 'a b'])
  expect([...seen.keys()]).toEqual(['P1', 'P2', 'P3', 'P4'])
  expect(seen.get('P1')).toEqual({
    beating: true,
    heartbeat: beatOf(),
    host: 'host-1',
    pid: 7,
    ageMs: expect.any(Number),
  })
  expect(seen.get('P1')!.ageMs! / 1000).toBeCloseTo(20, 0)
  const silent = { host: null, pid: null, ageMs: null }
  expect(seen.get('P2')).toMatchObject({ beating: true, heartbeat: { free: 1 }, ...silent })
  expect(seen.get('P3')).toEqual({ beating: true, heartbeat: null, ...silent })
  expect(seen.get('P4')).toEqual({ beating: false, heartbeat: null, ...silent })
})

test('look tells a subscriber from a heartbeat', async () => {
  const listener = new Listener({
    keys,
    processId: 'Both',
    connect: connection.subscriber,
    pingMs: 1_000,
    onWake: () => undefined,
    onStop: () => undefined,
    onRetake: () => undefined,
    onJunk: () => undefined,
    onSubscribed: () => undefined,
    onTrouble: () => undefined,
  })
  stops.push(() => listener.stop())
  listener.start()
  await eventually(() => expect(listener.upSinceMs()).not.toBeNull())
  await join('Both')
  await join('Beats')
  await redis.set(keys.process('Odd'), '{')
  expect(await fleet.look(redis, keys, ['Both', 'Beats', 'Odd', 'Gone'])).toEqual(
    new Map([
      ['Both', { subscribed: true, beating: true }],
      ['Beats', { subscribed: false, beating: true }],
      ['Odd', { subscribed: false, beating: true }],
      ['Gone', { subscribed: false, beating: false }],
    ]),
  )
  expect(await fleet.look(redis, keys, [])).toEqual(new Map())
})

test('one process is elected per tick, and a tick ends', async () => {
  const elect = (processId: string, ttlMs = 30_000) => fleet.elect(redis, keys, 'sweep-1', processId, ttlMs)
  const elected = await Promise.all(['P1', 'P2', 'P3'].map((processId) => elect(processId)))
  expect(elected.filter(Boolean)).toHaveLength(1)
  expect(await fleet.elect(redis, keys, 'sweep-2', 'P1', 29.7)).toBe(true)
  expect(await redis.pttl(keys.tick('sweep-1'))).toBeGreaterThan(0)
  await expect.poll(() => fleet.elect(redis, keys, 'sweep-2', 'P2', 30_000)).toBe(true)
})

describe('pickMember', () => {
  test('nobody', async () => {
    expect(await fleet.pickMember(redis, keys)).toBeNull()
  })

  test.each<
    [string, Partial<fleet.HeartbeatValue>, { kind?: string; version?: number; not?: string }, boolean]
  >([
    ['fits', {}, {}, true],
    ['is the one not wanted', {}, { not: 'P1' }, false],
    ['somebody else is not wanted', {}, { not: 'P2' }, true],
    ['drains', { draining: true }, {}, false],
    ['is full', { free: 0 }, {}, false],
    ['handles the kind', { kinds: ['chat', 'mail'] }, { kind: 'mail' }, true],
    ['handles another kind', { kinds: ['chat'] }, { kind: 'mail' }, false],
    ['understands the version', { version: 2 }, { version: 2 }, true],
    ['understands newer ones too', { version: 3 }, { version: 2 }, true],
    ['is too old', { version: 1 }, { version: 2 }, false],
    ['handles any kind', { kinds: ['*'] }, { kind: 'mail' }, true],
  ])('%s', async (_title, value, wanted, picked) => {
    await join('P1', beatOf(value))
    await redis.sadd(keys.processes, 'Gone', 'a b')
    expect(await fleet.pickMember(redis, keys, wanted)).toBe(picked ? 'P1' : null)
  })

  test('each of several in turn', async () => {
    for (const processId of ['P1', 'P2', 'P3', 'P4', 'P5', 'P6', 'P7']) await join(processId)
    const picks = new Set<string | null>()
    for (let n = 0; n < 200; n += 1) picks.add(await fleet.pickMember(redis, keys, { not: 'P1' }))
    expect(picks).toEqual(new Set(['P2', 'P3', 'P4', 'P5', 'P6', 'P7']))
  })
})
