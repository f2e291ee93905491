/** The processes of the fleet, as their heartbeats tell of them. */
import { toUnavailable } from '../redis/connect.ts'
import { memberIds, type Sight, sight } from '../redis/fleet.ts'
import type { Stores } from './stores.ts'

/** A process that shows a heartbeat. */
export interface ProcessView {
  readonly process: string
  /** Null, like `pid`: its version does not say. */
  readonly host: string | null
  readonly pid: number | null
  /** Message kinds it has handlers for; `*` means any. */
  readonly kinds: readonly string[]
  /** The newest form of messages that it understands. */
  readonly version: number
  /** Turns it could start now. */
  readonly free: number
  /** It takes no further turns. */
  readonly draining: boolean
  /** Since its last heartbeat, milliseconds by the clock of Redis; null: its version does not say. */
  readonly ageMs: number | null
}

/** By id. @throws UnavailableError REDIS_UNAVAILABLE. */
export async function readFleet({ redis, keys }: Stores): Promise<ProcessView[]> {
  try {
    const ids = (await memberIds(redis.commands, keys)).sort()
    const sights = await sight(redis.commands, keys, ids)
    return ids.flatMap((id) => toProcessView(id, sights.get(id)) ?? [])
  } catch (error) {
    throw toUnavailable(error)
  }
}

/** Undefined without a heartbeat that can be read. */
export function toProcessView(process: string, sight: Sight | undefined): ProcessView | undefined {
  if (!sight?.heartbeat) return undefined
  const { heartbeat, host, pid, ageMs } = sight
  return { process, host, pid, ...heartbeat, ageMs }
}

export type Slots = Pick<ProcessView, 'free' | 'draining'>

export const takesTurns = ({ draining }: Slots): boolean => !draining

/** It could start a turn now. */
export const isFree = (value: Slots): boolean => takesTurns(value) && value.free > 0
