/**
 * The session lock: a lease with a TTL. Its value is the owner's token while busy and `token/idle` while the
 * owner merely keeps the session warm; an idle lock is a preference that anybody may take. These are the
 * steps; who takes which step when is decided in `session/`. A lock never proves ownership: the session row
 * in MySQL does.
 *
 * Every step compares before it acts and answers the same when it is sent again after a lost reply.
 */
import type { RedisClient } from './connect.ts'
import type { Keys } from './keys.ts'
import { getMany, getOne, unlessWrongType } from './read.ts'
import { script } from './script.ts'

const IDLE = '/idle'

export const idleValue = (token: string): string => token + IDLE
export const isIdle = (value: string): boolean => value.endsWith(IDLE)
/** The token in a lock's value, busy or idle. */
export const tokenOf = (value: string): string => (isIdle(value) ? value.slice(0, -IDLE.length) : value)

export type Acquired = { acquired: true } | { acquired: false; holder: string }

/** `held`: it was ours. `retaken`: it was gone. `holder`: the value of another's lock, left as it is. */
export type Renewed = 'held' | 'retaken' | { holder: string }

export interface LockOf {
  id: string
  token: string
}

/**
 * A foreign lock without a TTL (somebody ran PERSIST) would stand for ever; giving it one never prolongs it.
 * pcall: a lock key that is no string counts as free, see `read.ts`.
 */
const HELD_BY_OTHER = `
  if redis.call('PTTL', lock) == -1 then redis.call('PEXPIRE', lock, ttlMs) end
`

const acquireScript = script({
  keys: ['lock'],
  args: ['token', 'ttlMs'],
  lua: `
    local value = redis.pcall('GET', lock)
    if type(value) ~= 'string' or value == token or string.sub(value, -5) == '${IDLE}' then
      redis.call('SET', lock, token, 'PX', ttlMs)
      return false
    end
    ${HELD_BY_OTHER}
    return value
  `,
  reply: (value): Acquired =>
    typeof value === 'string' ? { acquired: false, holder: value } : { acquired: true },
})

/**
 * Takes the lock for `ttlMs` if it is free, idle (whoever's), or already this token's because an earlier
 * call's reply was lost. Otherwise answers the value found.
 */
export const acquire = (
  redis: RedisClient,
  keys: Keys,
  id: string,
  token: string,
  ttlMs: number,
): Promise<Acquired> => acquireScript(redis, { lock: keys.lock(id), token, ttlMs })

const swapScript = script({
  keys: ['lock'],
  args: ['from', 'to', 'ttlMs'],
  lua: `
    local value = redis.pcall('GET', lock)
    if value ~= from and value ~= to then return 0 end
    redis.call('SET', lock, to, 'PX', ttlMs)
    return 1
  `,
  reply: (value) => value === 1,
})

/**
 * Compare-and-set on the exact value, for taking a judged owner's lock and for a new token after a detach.
 * True also when the lock already is `to`.
 */
export const swap = (
  redis: RedisClient,
  keys: Keys,
  id: string,
  from: string,
  to: string,
  ttlMs: number,
): Promise<boolean> => swapScript(redis, { lock: keys.lock(id), from, to, ttlMs })

const toBusyScript = script({
  keys: ['lock'],
  args: ['token', 'ttlMs'],
  lua: `
    local value = redis.pcall('GET', lock)
    if value == token then return redis.call('PEXPIRE', lock, ttlMs) end
    if value ~= token .. '${IDLE}' then return 0 end
    redis.call('SET', lock, token, 'PX', ttlMs)
    return 1
  `,
  reply: (value) => value === 1,
})

/** Turns one's own idle lock busy before a start; false when it is gone or somebody else's. */
export const toBusy = (
  redis: RedisClient,
  keys: Keys,
  id: string,
  token: string,
  ttlMs: number,
): Promise<boolean> => toBusyScript(redis, { lock: keys.lock(id), token, ttlMs })

/** The usual case is one PEXPIRE, which Redis allows even when it is out of memory. */
const renewScript = script({
  keys: ['lock'],
  args: ['token', 'ttlMs'],
  lua: `
    local value = redis.pcall('GET', lock)
    if value == token then
      redis.call('PEXPIRE', lock, ttlMs)
      return {'held'}
    end
    if type(value) ~= 'string' or value == token .. '${IDLE}' then
      redis.call('SET', lock, token, 'PX', ttlMs)
      return {type(value) == 'string' and 'held' or 'retaken'}
    end
    ${HELD_BY_OTHER}
    return {'other', value}
  `,
  reply: (value): Renewed => {
    const [outcome, holder] = value as ['held' | 'retaken'] | ['other', string]
    return outcome === 'other' ? { holder: holder ?? '' } : outcome
  },
})

/**
 * Sets each lock busy for `ttlMs` whatever it finds of its own, and takes it back where it is gone: after
 * `retaken` the row must be read. Never rejects; an element that failed is an Error.
 */
export const renewMany = (
  redis: RedisClient,
  keys: Keys,
  locks: readonly LockOf[],
  ttlMs: number,
): Promise<(Renewed | Error)[]> =>
  renewScript.many(
    redis,
    locks.map(({ id, token }) => ({ lock: keys.lock(id), token, ttlMs })),
  )

const releaseScript = script({
  keys: ['lock'],
  args: ['token'],
  lua: `
    local value = redis.pcall('GET', lock)
    if value == token or value == token .. '${IDLE}' then return redis.call('DEL', lock) end
    return 0
  `,
  reply: (value) => value === 1,
})

/** Compare-and-delete of the busy or idle lock; true when this call deleted it. */
export const release = (redis: RedisClient, keys: Keys, id: string, token: string): Promise<boolean> =>
  releaseScript(redis, { lock: keys.lock(id), token })

/** {@link release} for several; never rejects, an element that failed is an Error. */
export const releaseMany = (
  redis: RedisClient,
  keys: Keys,
  locks: readonly LockOf[],
): Promise<(boolean | Error)[]> =>
  releaseScript.many(
    redis,
    locks.map(({ id, token }) => ({ lock: keys.lock(id), token })),
  )

/** The lock's value, or null when it is free. */
export const read = (redis: RedisClient, keys: Keys, id: string): Promise<string | null> =>
  getOne(redis, keys.lock(id))

/** {@link read} for several, in their order. */
export const readMany = (
  redis: RedisClient,
  keys: Keys,
  ids: readonly string[],
): Promise<(string | null)[]> =>
  getMany(
    redis,
    ids.map((id) => keys.lock(id)),
  )

/** A lock as people look at it. */
export interface LockSight {
  /** Null: it is free. */
  readonly value: string | null
  /** The key holds something that is no string, which counts as free. */
  readonly foreign: boolean
  /** Until it expires, milliseconds; null: it is free, or would stand for ever. */
  readonly leftMs: number | null
}

export async function sightOf(redis: RedisClient, keys: Keys, id: string): Promise<LockSight> {
  const key = keys.lock(id)
  const [value, leftMs] = await Promise.all([
    redis.get(key).catch(unlessWrongType(undefined)),
    redis.pttl(key),
  ])
  return { value: value ?? null, foreign: value === undefined, leftMs: leftMs < 0 ? null : leftMs }
}
