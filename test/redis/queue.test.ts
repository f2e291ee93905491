// The queue's steps as tables. Lists are written as the server keeps them: pushed on the left, taken from the
// right.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Server } from '../../src/cli/servers.ts'
import { connectRedis, type RedisClient, type RedisConnection } from '../../src/redis/connect.ts'
import { Keys } from '../../src/redis/keys.ts'
import * as lock from '../../src/redis/lock.ts'
import * as queue from '../../src/redis/queue.ts'
import { freshPrefix, ownRedis } from '../support/services.ts'

const ID = 'chat-1'
const MINE = 'ProcessMine1.aaaaaaaaaaaaaaaa'
const OTHER = 'ProcessOther.bbbbbbbbbbbbbbbb'
const IDLE_MS = 300_000

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

interface State {
  queue: string[] | 'STRING'
  processing: string[] | 'STRING'
  lock: string | null
}

async function put(state: State): Promise<void> {
  for (const [key, value] of [
    [keys.queue(ID), state.queue],
    [keys.processing(ID), state.processing],
  ] as const) {
    if (value === 'STRING') await redis.set(key, 'junk')
    else if (value.length > 0) await redis.rpush(key, ...value)
  }
  if (state.lock !== null) await redis.set(keys.lock(ID), state.lock, 'PX', 30_000)
}

async function state(): Promise<State> {
  const list = async (key: string) =>
    (await redis.type(key)) === 'string' ? ('STRING' as const) : redis.lrange(key, 0, -1)
  return {
    queue: await list(keys.queue(ID)),
    processing: await list(keys.processing(ID)),
    lock: await lock.read(redis, keys, ID),
  }
}

describe('pushMany', () => {
  test('pushes on the left and answers who has the lock', async () => {
    await put({ queue: ['1:a'], processing: [], lock: MINE })
    const push = [{ id: ID, reference: '2:b' }]
    expect(await queue.pushMany(redis, keys, push)).toEqual([MINE])
    expect(await state()).toEqual({ queue: ['2:b', '1:a'], processing: [], lock: MINE })
    // Again, as after a lost reply: doubled, which nothing depends on.
    expect(await queue.pushMany(redis, keys, push)).toEqual([MINE])
    expect(await redis.llen(keys.queue(ID))).toBe(3)
    expect(await redis.ttl(keys.queue(ID))).toBeGreaterThan(80_000)
  })

  test('several sessions at once, one of them broken, right after SCRIPT FLUSH', async () => {
    await redis.set(keys.queue('b'), 'junk')
    await redis.lpush(keys.lock('c'), 'junk')
    await redis.set(keys.lock('d'), `${OTHER}/idle`)
    await redis.script('FLUSH')
    const replies = await queue.pushMany(
      redis,
      keys,
      ['a', 'b', 'c', 'd', 'a'].map((id, n) => ({ id, reference: `${n + 1}:m` })),
    )
    expect(replies).toEqual([null, expect.any(Error), null, `${OTHER}/idle`, null])
    expect(String(replies[1])).toContain('WRONGTYPE')
    expect(await redis.lrange(keys.queue('a'), 0, -1)).toEqual(['5:m', '1:m'])
    expect(await queue.pushMany(redis, keys, [])).toEqual([])
  })
})

describe('advance', () => {
  const rows: [string, State, boolean, queue.Advanced, State][] = [
    [
      'clears what was done and takes the oldest',
      { queue: ['3:c', '2:b'], processing: ['1:a'], lock: MINE },
      false,
      { outcome: 'taken', reference: '2:b', foreign: false },
      { queue: ['3:c'], processing: ['2:b'], lock: MINE },
    ],
    [
      'turns idle when nothing is left',
      { queue: [], processing: ['1:a'], lock: MINE },
      false,
      { outcome: 'idle', foreign: false },
      { queue: [], processing: [], lock: `${MINE}/idle` },
    ],
    [
      'stays busy when MySQL has more',
      { queue: [], processing: ['1:a'], lock: MINE },
      true,
      { outcome: 'empty', foreign: false },
      { queue: [], processing: [], lock: MINE },
    ],
    [
      'of a replaced owner touches nothing',
      { queue: ['3:c'], processing: ['2:b'], lock: OTHER },
      false,
      { outcome: 'lost', holder: OTHER },
      { queue: ['3:c'], processing: ['2:b'], lock: OTHER },
    ],
    [
      'without a lock touches nothing',
      { queue: ['3:c'], processing: ['2:b'], lock: null },
      false,
      { outcome: 'lost', holder: '' },
      { queue: ['3:c'], processing: ['2:b'], lock: null },
    ],
    [
      'on an idle lock, own or not, touches nothing',
      { queue: ['3:c'], processing: [], lock: `${MINE}/idle` },
      false,
      { outcome: 'lost', holder: `${MINE}/idle` },
      { queue: ['3:c'], processing: [], lock: `${MINE}/idle` },
    ],
    [
      'drops a queue that is no list and says so',
      { queue: 'STRING', processing: ['1:a'], lock: MINE },
      false,
      { outcome: 'idle', foreign: true },
      { queue: [], processing: [], lock: `${MINE}/idle` },
    ],
    [
      'drops a processing that is no list and says so',
      { queue: ['2:b'], processing: 'STRING', lock: MINE },
      false,
      { outcome: 'taken', reference: '2:b', foreign: true },
      { queue: [], processing: ['2:b'], lock: MINE },
    ],
    [
      'drops both and stays busy',
      { queue: 'STRING', processing: 'STRING', lock: MINE },
      true,
      { outcome: 'empty', foreign: true },
      { queue: [], processing: [], lock: MINE },
    ],
    [
      'cuts a foreign element of any size',
      { queue: ['x'.repeat(100_000)], processing: [], lock: MINE },
      false,
      { outcome: 'taken', reference: 'x'.repeat(200), foreign: false },
      { queue: [], processing: ['x'.repeat(100_000)], lock: MINE },
    ],
  ]
  test.each(rows)('%s', async (_title, before, more, reply, after) => {
    await put(before)
    expect(await queue.advance(redis, keys, ID, MINE, { idleMs: IDLE_MS, more })).toEqual(reply)
    expect(await state()).toEqual(after)
  })

  test('an idle lock lives for the idle time, and leftovers do not live for ever', async () => {
    await put({ queue: ['1:a'], processing: [], lock: MINE })
    await queue.advance(redis, keys, ID, MINE, { idleMs: IDLE_MS, more: false })
    expect(await redis.ttl(keys.processing(ID))).toBeGreaterThan(80_000)
    await queue.advance(redis, keys, ID, MINE, { idleMs: IDLE_MS, more: false })
    expect(await redis.pttl(keys.lock(ID))).toBeGreaterThan(200_000)
  })

  test('repeated after a lost reply it takes the next one, or names its own idle lock', async () => {
    await put({ queue: ['2:b', '1:a'], processing: [], lock: MINE })
    const step = () => queue.advance(redis, keys, ID, MINE, { idleMs: IDLE_MS, more: false })
    await step()
    expect(await step()).toEqual({ outcome: 'taken', reference: '2:b', foreign: false })
    expect(await step()).toEqual({ outcome: 'idle', foreign: false })
    expect(await step()).toEqual({ outcome: 'lost', holder: `${MINE}/idle` })
  })

  test('after a flush in between it has lost', async () => {
    await put({ queue: ['1:a'], processing: [], lock: MINE })
    await redis.flushall()
    expect(await queue.advance(redis, keys, ID, MINE, { idleMs: IDLE_MS, more: false })).toEqual({
      outcome: 'lost',
      holder: '',
    })
    expect(await redis.dbsize()).toBe(0)
  })
})

describe('recover', () => {
  const rows: [string, State, queue.Recovered, State][] = [
    [
      'puts back what was taken, the oldest to be taken first (P1)',
      { queue: ['4:d', '3:c'], processing: ['2:b', '1:a'], lock: MINE },
      { outcome: 'recovered', count: 2, foreign: false },
      { queue: ['4:d', '3:c', '2:b', '1:a'], processing: [], lock: MINE },
    ],
    [
      'has nothing to do',
      { queue: ['1:a'], processing: [], lock: MINE },
      { outcome: 'recovered', count: 0, foreign: false },
      { queue: ['1:a'], processing: [], lock: MINE },
    ],
    [
      'fills an empty queue',
      { queue: [], processing: ['1:a'], lock: MINE },
      { outcome: 'recovered', count: 1, foreign: false },
      { queue: ['1:a'], processing: [], lock: MINE },
    ],
    [
      'of a replaced owner touches nothing',
      { queue: ['2:b'], processing: ['1:a'], lock: OTHER },
      { outcome: 'lost', holder: OTHER },
      { queue: ['2:b'], processing: ['1:a'], lock: OTHER },
    ],
    [
      'without a lock touches nothing',
      { queue: ['2:b'], processing: ['1:a'], lock: null },
      { outcome: 'lost', holder: '' },
      { queue: ['2:b'], processing: ['1:a'], lock: null },
    ],
    [
      'drops a queue that is no list and keeps the rest',
      { queue: 'STRING', processing: ['2:b', '1:a'], lock: MINE },
      { outcome: 'recovered', count: 2, foreign: true },
      { queue: ['2:b', '1:a'], processing: [], lock: MINE },
    ],
    [
      'drops a processing that is no list',
      { queue: ['2:b'], processing: 'STRING', lock: MINE },
      { outcome: 'recovered', count: 0, foreign: true },
      { queue: ['2:b'], processing: [], lock: MINE },
    ],
  ]
  test.each(rows)('%s', async (_title, before, reply, after) => {
    await put(before)
    expect(await queue.recover(redis, keys, ID, MINE)).toEqual(reply)
    expect(await state()).toEqual(after)
    const again = reply.outcome === 'recovered' ? { ...reply, count: 0, foreign: false } : reply
    expect(await queue.recover(redis, keys, ID, MINE)).toEqual(again)
    expect(await state()).toEqual(after)
  })

  test('the refilled queue expires like any other', async () => {
    await put({ queue: [], processing: ['1:a'], lock: MINE })
    await queue.recover(redis, keys, ID, MINE)
    expect(await redis.ttl(keys.queue(ID))).toBeGreaterThan(80_000)
  })
})

test('what was pushed in order is taken in order, with a recovery in between (QO-03)', async () => {
  await redis.set(keys.lock(ID), MINE)
  for (const seq of [1, 2, 3, 4]) await queue.pushMany(redis, keys, [{ id: ID, reference: `${seq}:m` }])
  const taken: string[] = []
  const step = async () => {
    const next = await queue.advance(redis, keys, ID, MINE, { idleMs: IDLE_MS, more: true })
    if (next.outcome === 'taken') taken.push(next.reference)
  }
  await step()
  await step()
  await queue.recover(redis, keys, ID, MINE)
  for (let n = 0; n < 4; n += 1) await step()
  expect(taken).toEqual(['1:m', '2:m', '2:m', '3:m', '4:m'])
})

test('depth counts both lists; a key of another type is empty', async () => {
  await put({ queue: ['3:c', '2:b'], processing: ['1:a'], lock: MINE })
  expect(await queue.depth(redis, keys, ID)).toEqual({ queue: 2, processing: 1 })
  await redis.set(keys.queue('other'), 'junk')
  expect(await queue.depth(redis, keys, 'other')).toEqual({ queue: 0, processing: 0 })
})

describe('references', () => {
  test('what is written can be read', () => {
    for (const reference of [
      { seq: 1, id: 'm-0123456789abcdefghij' },
      { seq: Number.MAX_SAFE_INTEGER, id: 'x' },
    ]) {
      expect(queue.parseReference(queue.formatReference(reference))).toEqual(reference)
    }
  })

  test.each([
    '',
    ':',
    '1',
    '1:',
    ':m',
    '0:m',
    '01:m',
    '-1:m',
    '1.5:m',
    '1e3:m',
    ' 1:m',
    '1:m ',
    '1:m\n',
    '1:ü',
  ])('refuses %j', (text) => expect(queue.parseReference(text)).toBeNull())

  test('refuses what no number or buffer should hold', () => {
    expect(queue.parseReference('9007199254740993:m')).toBeNull()
    expect(queue.parseReference('99999999999999999999:m')).toBeNull()
    expect(queue.parseReference(`1:${'m'.repeat(1_000_000)}`)).toBeNull()
    expect(queue.parseReference('1:\u0000\ufffd')).toBeNull()
  })
})
