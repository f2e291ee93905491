/**
 * Which worker processes there are and how they are: heartbeats, the set of members, the look at suspects,
 * and the election of one process per tick. Facts only; whether a process counts as dead is judged in
 * `session/`.
 */
import type { RedisClient } from './connect.ts'
import type { Keys } from './keys.ts'
import { getMany, getOne, unlessWrongType } from './read.ts'

/** What a process says about itself with every beat. */
export interface HeartbeatValue {
  /** The newest form of messages that it understands. */
  version: number
  /** Message kinds it has handlers for; `*` means any. */
  kinds: string[]
  /** Turns it could start now. */
  free: number
  draining: boolean
}

/** Where a process is, for people. */
export interface Whereabouts {
  host: string
  pid: number
}

/** A process as people look at it. What it did not say, or an older version does not say, is null. */
export interface Sight {
  /** Its heartbeat key exists, readable or not. */
  readonly beating: boolean
  readonly heartbeat: HeartbeatValue | null
  readonly host: string | null
  readonly pid: number | null
  /** Since its last beat, milliseconds by the clock of Redis. */
  readonly ageMs: number | null
}

/** `subscribed`: its channel has a listener. `beating`: its heartbeat key exists, readable or not. */
export interface Look {
  subscribed: boolean
  beating: boolean
}

/** Samples this many members when one is wanted: the cost must not grow with the fleet. */
const SAMPLE = 5

const PROCESS_ID = /^[A-Za-z0-9]{1,64}$/
const HOST = /^[\w.:-]{1,253}$/

/** A key that is no set (any more) would keep everybody from joining. */
async function join(redis: RedisClient, keys: Keys, processId: string): Promise<void> {
  const added = await redis.sadd(keys.processes, processId).catch(unlessWrongType(undefined))
  if (added !== undefined) return
  await redis.del(keys.processes)
  await redis.sadd(keys.processes, processId)
}

/** One heartbeat, good for `ttlMs`; with `join` the process also (again) becomes a member. */
export async function beat(
  redis: RedisClient,
  keys: Keys,
  processId: string,
  value: HeartbeatValue & Partial<Whereabouts>,
  ttlMs: number,
  options: { join: boolean },
): Promise<void> {
  // The TTL is told as well, so that what is left of it tells the beat's age.
  const text = JSON.stringify({ ...value, ttlMs })
  const steps: Promise<unknown>[] = [redis.set(keys.process(processId), text, 'PX', ttlMs)]
  if (options.join) steps.push(join(redis, keys, processId))
  await Promise.all(steps)
}

/** The last act of a process that ends in order. */
export async function leave(redis: RedisClient, keys: Keys, processId: string): Promise<void> {
  await Promise.all([redis.del(keys.process(processId)), forget(redis, keys, processId)])
}

/** Takes a process off the member set, for one that is gone. */
export async function forget(redis: RedisClient, keys: Keys, processId: string): Promise<void> {
  await redis.srem(keys.processes, processId).catch(unlessWrongType(0))
}

/** All members with their last heartbeat; null where it has expired or cannot be read. */
export async function members(redis: RedisClient, keys: Keys): Promise<Map<string, HeartbeatValue | null>> {
  return heartbeats(redis, keys, await memberIds(redis, keys))
}

/** Who has joined and not left, alive or not. */
export async function memberIds(redis: RedisClient, keys: Keys): Promise<string[]> {
  const ids = await redis.smembers(keys.processes).catch(unlessWrongType([]))
  return ids.filter((id) => PROCESS_ID.test(id))
}

/** How these processes look, in one pipeline. */
export async function sight(
  redis: RedisClient,
  keys: Keys,
  processIds: readonly string[],
): Promise<Map<string, Sight>> {
  const known = processIds.filter((id) => PROCESS_ID.test(id))
  const seen = await Promise.all(
    known.map(async (id) => {
      const key = keys.process(id)
      const [text, leftMs] = await Promise.all([getOne(redis, key), redis.pttl(key)])
      // It may have run out between the two answers: then nothing of it counts.
      return [id, toSight(leftMs === -2 ? null : text, leftMs)] as const
    }),
  )
  return new Map(seen)
}

/** -2: there is no key. */
const toSight = (text: string | null, leftMs: number): Sight => {
  const { host, pid, ttlMs } = Object(parsed(text)) as Partial<Record<string, unknown>>
  return {
    beating: leftMs !== -2,
    heartbeat: parseHeartbeat(text),
    host: typeof host === 'string' && HOST.test(host) ? host : null,
    pid: isCount(pid) ? pid : null,
    ageMs: isCount(ttlMs) && leftMs >= 0 ? Math.max(0, ttlMs - leftMs) : null,
  }
}

/**
 * Whether these processes show signs of life. In a Redis Cluster `subscribed` is what one node knows, so it
 * proves nothing there.
 */
export async function look(
  redis: RedisClient,
  keys: Keys,
  processIds: readonly string[],
): Promise<Map<string, Look>> {
  if (processIds.length === 0) return new Map()
  const channels = processIds.map((processId) => keys.processChannel(processId))
  const beats = processIds.map((processId) => keys.process(processId))
  const [counts, values] = await Promise.all([redis.pubsub('NUMSUB', ...channels), getMany(redis, beats)])
  // The answer is channel, count, channel, count, …
  return new Map(
    processIds.map((processId, index) => [
      processId,
      { subscribed: Number(counts[index * 2 + 1]) > 0, beating: typeof values[index] === 'string' },
    ]),
  )
}

/** Whether this process is the one that acts in the tick. Never renewed: the next tick has another name. */
export async function elect(
  redis: RedisClient,
  keys: Keys,
  tick: string,
  processId: string,
  ttlMs: number,
): Promise<boolean> {
  // A tick is a part of some interval; Redis takes whole milliseconds only.
  return (await redis.set(keys.tick(tick), processId, 'PX', Math.ceil(ttlMs), 'NX')) === 'OK'
}

/**
 * A random member other than `not` that beats, does not drain, has a free slot and can run what is wanted.
 * Looks at a few only; null means that none of those fits, so tell everybody.
 */
export async function pickMember(
  redis: RedisClient,
  keys: Keys,
  wanted: Partial<Wanted> & { not?: string } = {},
): Promise<string | null> {
  const sample = await redis.srandmember(keys.processes, SAMPLE).catch(unlessWrongType([]))
  const { not } = wanted
  const found = [...(await heartbeats(redis, keys, sample))].filter(
    ([processId, value]) =>
      processId !== not && value !== null && !value.draining && value.free > 0 && canRun(value, wanted),
  )
  // The order of SRANDMEMBER is not random, only the choice is.
  return found[Math.floor(Math.random() * found.length)]?.[0] ?? null
}

/** What a message asks of the process that runs it. */
export interface Wanted {
  readonly kind: string
  readonly version: number
}

/** What of a heartbeat says which messages its process can run. */
export type Abilities = Readonly<Pick<HeartbeatValue, 'version'>> & { readonly kinds: readonly string[] }

/** Whether a process with this heartbeat has a handler for the kind and understands the version, as far as given. */
export const canRun = (value: Abilities, { kind, version = 0 }: Partial<Wanted>): boolean =>
  value.version >= version && (kind === undefined || value.kinds.includes('*') || value.kinds.includes(kind))

async function heartbeats(
  redis: RedisClient,
  keys: Keys,
  ids: readonly string[],
): Promise<Map<string, HeartbeatValue | null>> {
  const known = ids.filter((id) => PROCESS_ID.test(id))
  const values = await getMany(
    redis,
    known.map((id) => keys.process(id)),
  )
  return new Map(known.map((id, index) => [id, parseHeartbeat(values[index] ?? null)]))
}

/** A newer version's heartbeat may say more, a foreign value anything; only what we use must be right. */
function parseHeartbeat(text: string | null): HeartbeatValue | null {
  const { version, kinds, free, draining } = Object(parsed(text)) as Partial<HeartbeatValue>
  if (!isCount(version) || !isCount(free) || !Array.isArray(kinds)) return null
  return {
    version,
    free,
    kinds: kinds.filter((kind) => typeof kind === 'string'),
    draining: draining === true,
  }
}

/** Null for what is no JSON. */
function parsed(text: string | null): unknown {
  try {
    return JSON.parse(text ?? 'null')
  } catch {
    return null
  }
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0
