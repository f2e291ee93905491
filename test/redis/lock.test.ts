// The lock's steps as tables: the value before, the call, its answer, the value after. Each call is made
// twice, because every one may be sent again after a lost reply.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Server } from '../../src/cli/servers.ts'
import { connectRedis, type RedisClient, type RedisConnection } from '../../src/redis/connect.ts'
import { Keys } from '../../src/redis/keys.ts'
import * as lock from '../../src/redis/lock.ts'
import { freshPrefix, ownRedis } from '../support/services.ts'

const ID = 'chat-1'
const MINE = 'ProcessMine1.aaaaaaaaaaaaaaaa'
const OLDER = 'ProcessMine1.oooooooooooooooo'
const OTHER = 'ProcessOther.bbbbbbbbbbbbbbbb'
const TTL = 30_000

let server: Server
let connection: RedisConnection
let redis: RedisClient
let keys: Keys

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

/** A foreign lock has 5 s left, which is how "not extended" shows; a list stands for junk of another type. */
const BEFORE_TTL = 5_000
async function put(before: string | null, id = ID): Promise<void> {
  if (before === 'LIST') await redis.lpush(keys.lock(id), 'junk')
  else if (before !== null) await redis.set(keys.lock(id), before, 'PX', BEFORE_TTL)
}

type After = string | null
/** `again` where a repeated call answers differently: the deed itself must not. */
type Row = [title: string, before: string | null, reply: unknown, after: After, again?: unknown]

function table(rows: Row[], call: () => Promise<unknown>, ttl: (after: string) => number): void {
  test.each(rows)('%s', async (_title, before, reply, after, again = reply) => {
    await put(before)
    for (const expected of [reply, again]) {
      expect(await call()).toEqual(expected)
      const type = await redis.type(keys.lock(ID))
      expect(type === 'string' ? await redis.get(keys.lock(ID)) : type === 'none' ? null : 'LIST').toBe(after)
      if (after !== null && after !== 'LIST') {
        const left = await redis.pttl(keys.lock(ID))
        expect(left).toBeGreaterThan(0)
        expect(left).toBeLessThanOrEqual(ttl(after))
        if (ttl(after) === TTL) expect(left).toBeGreaterThan(BEFORE_TTL)
      }
    }
  })
}

const mineOrNot = (after: string) => (after.startsWith('ProcessMine1') ? TTL : BEFORE_TTL)

describe('acquire', () => {
  const got = { acquired: true }
  table(
    [
      ['free', null, got, MINE],
      ['own, the reply was lost', MINE, got, MINE],
      ['own and idle', `${MINE}/idle`, got, MINE],
      ['a stranger’s idle lock', `${OTHER}/idle`, got, MINE],
      ['busy elsewhere', OTHER, { acquired: false, holder: OTHER }, OTHER],
      ['a foreign value', 'hello world', { acquired: false, holder: 'hello world' }, 'hello world'],
      ['a key of another type', 'LIST', got, MINE],
    ],
    () => lock.acquire(redis, keys, ID, MINE, TTL),
    mineOrNot,
  )

  test('of many at once exactly one gets it', async () => {
    const tokens = Array.from({ length: 20 }, (_, n) => `Process${n}.x`)
    const answers = await Promise.all(tokens.map((token) => lock.acquire(redis, keys, ID, token, TTL)))
    expect(answers.filter((answer) => answer.acquired)).toHaveLength(1)
    const winner = tokens[answers.findIndex((answer) => answer.acquired)]
    expect(answers.filter((answer) => !answer.acquired)).toEqual(
      Array.from({ length: 19 }, () => ({ acquired: false, holder: winner })),
    )
  })
})

describe('swap', () => {
  table(
    [
      ['the named value', OLDER, true, MINE],
      ['already swapped, the reply was lost', MINE, true, MINE],
      ['the named owner, but idle', `${OLDER}/idle`, false, `${OLDER}/idle`],
      ['somebody else', OTHER, false, OTHER],
      ['gone', null, false, null],
      ['a key of another type', 'LIST', false, 'LIST'],
    ],
    () => lock.swap(redis, keys, ID, OLDER, MINE, TTL),
    (after) => (after === MINE ? TTL : BEFORE_TTL),
  )
})

describe('toBusy', () => {
  table(
    [
      ['own idle', `${MINE}/idle`, true, MINE],
      ['own busy, the reply was lost', MINE, true, MINE],
      ['taken by somebody', OTHER, false, OTHER],
      ['idle, but somebody else’s', `${OTHER}/idle`, false, `${OTHER}/idle`],
      ['an older token of this process', `${OLDER}/idle`, false, `${OLDER}/idle`],
      ['expired', null, false, null],
      ['a key of another type', 'LIST', false, 'LIST'],
    ],
    () => lock.toBusy(redis, keys, ID, MINE, TTL),
    (after) => (after === MINE ? TTL : BEFORE_TTL),
  )
})

describe('renewMany', () => {
  table(
    [
      ['own busy', MINE, 'held', MINE],
      ['own idle becomes busy', `${MINE}/idle`, 'held', MINE],
      ['gone after a flush', null, 'retaken', MINE, 'held'],
      ['a stranger’s is not extended', OTHER, { holder: OTHER }, OTHER],
      ['a stranger’s idle one neither', `${OTHER}/idle`, { holder: `${OTHER}/idle` }, `${OTHER}/idle`],
      ['an older token of this process', OLDER, { holder: OLDER }, OLDER],
      ['a key of another type', 'LIST', 'retaken', MINE, 'held'],
    ],
    async () => (await lock.renewMany(redis, keys, [{ id: ID, token: MINE }], TTL))[0],
    (after) => (after === MINE ? TTL : BEFORE_TTL),
  )

  test('many at once, each on its own, also right after SCRIPT FLUSH', async () => {
    await put(MINE, 'a')
    await put(OTHER, 'c')
    await put(`${MINE}/idle`, 'd')
    await redis.script('FLUSH')
    const locks = ['a', 'b', 'c', 'd'].map((id) => ({ id, token: MINE }))
    expect(await lock.renewMany(redis, keys, locks, TTL)).toEqual([
      'held',
      'retaken',
      { holder: OTHER },
      'held',
    ])
    expect(await lock.readMany(redis, keys, ['a', 'b', 'c', 'd', 'e'])).toEqual([
      MINE,
      MINE,
      OTHER,
      MINE,
      null,
    ])
    expect(await lock.renewMany(redis, keys, [], TTL)).toEqual([])
  })

  test('works while Redis is out of memory, as long as the lock is there', async () => {
    await lock.acquire(redis, keys, ID, MINE, 1_000)
    await redis.call('CONFIG', 'SET', 'maxmemory', '1')
    try {
      const [held, missing] = await lock.renewMany(
        redis,
        keys,
        [ID, 'missing'].map((id) => ({ id, token: MINE })),
        TTL,
      )
      expect(held).toBe('held')
      expect(missing).toMatchObject({ message: expect.stringContaining('OOM') })
      expect(await redis.pttl(keys.lock(ID))).toBeGreaterThan(1_000)
      expect(await lock.release(redis, keys, ID, MINE)).toBe(true)
    } finally {
      await redis.call('CONFIG', 'SET', 'maxmemory', '0')
    }
  })
})

describe('release', () => {
  table(
    [
      ['own busy', MINE, true, null, false],
      ['own idle', `${MINE}/idle`, true, null, false],
      ['gone', null, false, null],
      ['somebody else’s', OTHER, false, OTHER],
      ['an older token of this process', OLDER, false, OLDER],
      ['a key of another type', 'LIST', false, 'LIST'],
    ],
    () => lock.release(redis, keys, ID, MINE),
    () => BEFORE_TTL,
  )

  test('many at once', async () => {
    await put(MINE, 'a')
    await put(OTHER, 'b')
    const locks = ['a', 'b', 'c'].map((id) => ({ id, token: MINE }))
    expect(await lock.releaseMany(redis, keys, locks)).toEqual([true, false, false])
  })
})

describe('a lock without a TTL', () => {
  test('of somebody else gets one from acquire and from renew, so that it can expire (CR-06)', async () => {
    for (const step of ['acquire', 'renew'] as const) {
      await redis.set(keys.lock(ID), OTHER)
      if (step === 'acquire') await lock.acquire(redis, keys, ID, MINE, TTL)
      else await lock.renewMany(redis, keys, [{ id: ID, token: MINE }], TTL)
      const left = await redis.pttl(keys.lock(ID))
      expect(left).toBeGreaterThan(0)
      expect(left).toBeLessThanOrEqual(TTL)
      expect(await lock.read(redis, keys, ID)).toBe(OTHER)
    }
  })

  test('of one’s own gets one with the renewal', async () => {
    await redis.set(keys.lock(ID), MINE)
    await lock.renewMany(redis, keys, [{ id: ID, token: MINE }], TTL)
    expect(await redis.pttl(keys.lock(ID))).toBeGreaterThan(0)
  })
})

test('it expires by itself', async () => {
  await lock.acquire(redis, keys, ID, MINE, 50)
  await expect.poll(() => lock.read(redis, keys, ID)).toBeNull()
})

test('reading a key of another type says free', async () => {
  await put('LIST')
  expect(await lock.read(redis, keys, ID)).toBeNull()
  expect(await lock.readMany(redis, keys, [ID])).toEqual([null])
  expect(await lock.readMany(redis, keys, [])).toEqual([])
})

test('values', () => {
  expect(lock.idleValue(MINE)).toBe(`${MINE}/idle`)
  expect(lock.isIdle(`${MINE}/idle`)).toBe(true)
  expect(lock.isIdle(MINE)).toBe(false)
  expect(lock.tokenOf(`${MINE}/idle`)).toBe(MINE)
  expect(lock.tokenOf(MINE)).toBe(MINE)
})
