/**
 * What a Redis server says about itself, for `diagnose`: version, role, eviction, and the processes that show themselves
 * under our prefix. Facts only; what is good or bad is judged in `session/diagnosis.ts`. Changes nothing.
 */
import { isCluster, type RedisClient } from './connect.ts'
import { type HeartbeatValue, members } from './fleet.ts'
import type { Keys } from './keys.ts'

export interface RedisFacts {
  /** Of the protocol it speaks; a relative names its own beside it. */
  readonly version: string
  readonly relative: string | null
  readonly role: string
  /** Whether the server is part of a cluster, and whether our client knows. */
  readonly clustered: boolean
  readonly clusterClient: boolean
  readonly maxmemory: number
  readonly maxmemoryPolicy: string
  readonly processes: readonly { readonly id: string; readonly heartbeat: HeartbeatValue }[]
}

/** Rejects when the server does not answer. */
export const pingRedis = (redis: RedisClient): Promise<unknown> => redis.ping()

/** Rejects with the client's error when the server cannot be reached or refuses us. */
export async function examineRedis(redis: RedisClient, keys: Keys): Promise<RedisFacts> {
  const node = isCluster(redis) ? (redis.nodes('master')[0] ?? redis) : redis
  const facts = parseInfo(String(await node.call('INFO')))
  const processes = [...(await members(redis, keys))].flatMap(([id, heartbeat]) =>
    heartbeat ? [{ id, heartbeat }] : [],
  )
  return {
    version: facts.get('redis_version') ?? 'unknown',
    relative: facts.has('valkey_version') ? `Valkey ${facts.get('valkey_version')}` : null,
    role: facts.get('role') ?? 'unknown',
    clustered: facts.get('cluster_enabled') === '1',
    clusterClient: isCluster(redis),
    maxmemory: Number(facts.get('maxmemory') ?? 0),
    maxmemoryPolicy: facts.get('maxmemory_policy') ?? 'unknown',
    processes,
  }
}

function parseInfo(text: string): Map<string, string> {
  const pairs = text.split(/\r?\n/).map((line) => {
    const colon = line.indexOf(':')
    return colon > 0 ? ([line.slice(0, colon), line.slice(colon + 1)] as const) : undefined
  })
  return new Map(pairs.filter((pair) => pair !== undefined))
}
