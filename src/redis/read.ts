/**
 * Plain reads of string keys. A key that holds another type (somebody else's, or an operator's mistake) reads
 * as absent, so that it is overwritten in the course of things instead of failing every round.
 */
import { isCluster } from './connect.ts'
import type { RedisClient } from './connect.ts'

export const isWrongType = (error: unknown): boolean =>
  error instanceof Error && error.message.startsWith('WRONGTYPE')

/** The fallback for a key of the wrong type, any other failure as it is. */
export const unlessWrongType =
  <T>(fallback: T) =>
  (error: unknown): T => {
    if (isWrongType(error)) return fallback
    throw error
  }

export const getOne = (redis: RedisClient, key: string): Promise<string | null> =>
  redis.get(key).catch(unlessWrongType(null))

/** The values in the order of `keys`: one MGET, or in a cluster one GET each. */
export async function getMany(redis: RedisClient, keys: readonly string[]): Promise<(string | null)[]> {
  if (keys.length === 0) return []
  if (isCluster(redis)) return Promise.all(keys.map((key) => getOne(redis, key)))
  return redis.mget([...keys])
}
