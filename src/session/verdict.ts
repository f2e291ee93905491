/**
 * Why a session does not move, and what would make it: facts of both stores in, one answer out. Pure: no clock, no
 * store. Its sentences name no process, so that anybody who may see the session may read them.
 */
import type { Tunables } from '../base/options.ts'
import type { MessageStatus, SessionRow } from '../protocol/session-row.ts'
import { isSuspect } from '../protocol/turn-rules.ts'
import { type Abilities, canRun, type Wanted } from '../redis/fleet.ts'
import { isFree, type Slots, takesTurns } from './fleet-view.ts'

/**
 * `idle`: nothing to do. `running`: a turn runs. `stopping`: one that is to stop still runs. `owner-gone`: whoever runs
 * or holds it shows no sign of life. `backing-off`: the next attempt is put off. `waiting-for-owner`: a living process
 * holds it and has not begun. `lock-held-by-stranger`: a lock that nobody alive and no row knows is in the way.
 * `nobody-there`: no process takes turns. `no-capable-process`: none has the handler, or knows the message's form.
 * `all-full`: all that can are full. `redis-unreachable`: it waits, and nobody can be told or seen. `due`: nothing is in
 * the way.
 */
export type VerdictCode =
  | 'idle'
  | 'running'
  | 'stopping'
  | 'owner-gone'
  | 'backing-off'
  | 'waiting-for-owner'
  | 'lock-held-by-stranger'
  | 'nobody-there'
  | 'no-capable-process'
  | 'all-full'
  | 'redis-unreachable'
  | 'due'

export interface SessionVerdict {
  /** Stable: branch on this. */
  readonly code: VerdictCode
  /** A sentence for people. */
  readonly why: string
  /** What would make it move, and by when. */
  readonly unblocks: string
}

/** `none`: free. `unreadable`: no string, which counts as free. */
export type LockKind = 'busy' | 'idle' | 'none' | 'unreadable'

export interface VerdictFacts {
  readonly session: Pick<
    SessionRow,
    'doneSeq' | 'inboxSeq' | 'stopSeq' | 'runningSeq' | 'owner' | 'retryInMs' | 'starts' | 'crashes'
  >
  /** The message at `doneSeq + 1`; undefined when its row is missing. */
  readonly next: (Wanted & { readonly status: MessageStatus | null }) | undefined
  /** Undefined: Redis does not answer. */
  readonly redis:
    | {
        readonly lock: {
          readonly kind: LockKind
          readonly token: string | null
          readonly leftMs: number | null
        }
        /** Whether the process that the row names shows a heartbeat; null: it names none. */
        readonly ownerAlive: boolean | null
        /** It takes no further turns, and hands over what it runs. */
        readonly ownerDraining: boolean
        /** Whether the process that the lock names shows a heartbeat; null: it names none. */
        readonly holderAlive: boolean | null
        /** Who shows a heartbeat. */
        readonly fleet: readonly (Abilities & Slots)[]
        /** In a Redis Cluster nobody is judged dead. */
        readonly cluster: boolean
      }
    | undefined
  /** As the fleet has them. */
  readonly tunables: Tunables
}

type Redis = NonNullable<VerdictFacts['redis']>

/** A loop comes to its tick when its process does: a fifth of slack. */
const LATE = 1.2

export function verdictOf(facts: VerdictFacts): SessionVerdict {
  const { session } = facts
  if (session.runningSeq !== null) return ofRunning(facts, session.runningSeq)
  if (session.doneSeq >= session.inboxSeq)
    return { code: 'idle', why: 'It has nothing to do.', unblocks: 'A new message.' }
  return ofWaiting(facts, session.doneSeq + 1)
}

function ofRunning({ session, redis, tunables }: VerdictFacts, seq: number): SessionVerdict {
  const unseen = redis ? '' : ' Redis does not answer, so whether its process lives is not known.'
  if (redis && redis.ownerAlive !== true)
    return {
      code: 'owner-gone',
      why: `The turn of message ${seq} is on record as running, but its process shows no sign of life.`,
      unblocks: takenOver(redis, tunables),
    }
  if (session.stopSeq >= seq)
    return {
      code: 'stopping',
      why: `The turn of message ${seq} was stopped and has not ended.${unseen}`,
      unblocks:
        `The handler's return; it is cut off ${s(tunables.stopGraceMs)} after its signal, which fires at once, ` +
        `or within ${s(tunables.lookMs * LATE)} when every notice is lost.`,
    }
  if (redis?.ownerDraining)
    return {
      code: 'running',
      why: `The turn of message ${seq} runs, in a process that drains.`,
      unblocks: `Its end, or its hand-over to another process, ${s(tunables.drainGraceMs)} after the drain began.`,
    }
  return {
    code: 'running',
    why: `The turn of message ${seq} runs.${unseen}`,
    unblocks:
      `Its end; it is cut short ${s(tunables.turnTimeoutMs)} after its start, ` +
      `or after ${s(tunables.progressTimeoutMs)} without an entry, a delta or a call to progress.`,
  }
}

function ofWaiting(facts: VerdictFacts, seq: number): SessionVerdict {
  const { session, redis, tunables } = facts
  if (!redis)
    return {
      code: 'redis-unreachable',
      why: `Message ${seq} waits, and Redis does not answer: no new turn starts without a lock.`,
      unblocks: `Redis answering again; it then goes on by itself, ${nextSweep(tunables)} at the latest.`,
    }
  const asks = askedOf(facts)
  const { retryInMs } = session
  if (asks.isPutOff && retryInMs !== null && retryInMs > 0)
    return {
      code: 'backing-off',
      why: `Message ${seq} failed and is put off for another ${s(retryInMs)}.`,
      unblocks: `The time: it may start then, and is found by ${nextSweep(tunables)} after it.`,
    }
  return ofLock(facts, redis, seq) ?? ofFleet(redis, asks, seq, facts)
}

/** What the next message asks of a process, and whether a back-off counts. */
interface Asks {
  readonly wanted: Partial<Wanted>
  readonly isPutOff: boolean
}

/** As `start` decides: what is not to run asks for nothing, what is given up only for somebody who understands it. */
export function askedOf({ session, next, tunables }: Omit<VerdictFacts, 'redis'>): Asks {
  const { stopSeq, doneSeq, crashes, starts } = session
  if (!next || next.status === 'withdrawn' || stopSeq > doneSeq) return { wanted: {}, isPutOff: false }
  const { kind, version } = next
  if (crashes >= tunables.maxCrashes || starts >= tunables.maxStarts)
    return { wanted: { version }, isPutOff: false }
  return { wanted: { kind, version }, isPutOff: true }
}

/** A busy lock is in everybody's way but its holder's. */
function ofLock({ session, tunables }: VerdictFacts, redis: Redis, seq: number): SessionVerdict | undefined {
  const { lock, holderAlive } = redis
  if (lock.kind !== 'busy') return undefined
  if (holderAlive === true) {
    const suspect = isSuspect(session, tunables.maxCrashes)
      ? ' It is one crash from being given up, and a process runs one such message at a time.'
      : ''
    return {
      code: 'waiting-for-owner',
      why: `A living process holds the session and has not begun message ${seq}.${suspect}`,
      unblocks: `The holder begins it; ${nextSweep(tunables)} reminds it.`,
    }
  }
  const left = lock.leftMs === null ? '' : ` Its lock is over in ${s(lock.leftMs)}.`
  if (lock.token !== null && lock.token === session.owner)
    return {
      code: 'owner-gone',
      why: `The process that holds the session shows no sign of life, and message ${seq} waits.${left}`,
      unblocks: takenOver(redis, tunables),
    }
  return {
    code: 'lock-held-by-stranger',
    why: `A lock is in the way of message ${seq} that neither the row nor a living process knows.${left}`,
    unblocks: takenOver(redis, tunables),
  }
}

function ofFleet(redis: Redis, { wanted }: Asks, seq: number, { tunables }: VerdictFacts): SessionVerdict {
  const taking = redis.fleet.filter(takesTurns)
  if (taking.length === 0)
    return {
      code: 'nobody-there',
      why: `Message ${seq} waits, and no process takes turns.`,
      unblocks: `A worker that is started: it sweeps at once, and then ${everySweep(tunables)}.`,
    }
  const able = taking.filter((value) => canRun(value, wanted))
  if (able.length === 0)
    return {
      code: 'no-capable-process',
      why: `No process that takes turns can run message ${seq}${described(wanted)}.`,
      unblocks: `A worker that can: the first sweep after its start finds the message, ${nextSweep(tunables)} at the latest.`,
    }
  if (!able.some(isFree))
    return {
      code: 'all-full',
      why: `Every process that can run message ${seq} is full.`,
      unblocks: `A turn that ends, or another worker; then ${nextSweep(tunables)} at the latest.`,
    }
  return {
    code: 'due',
    why: `Nothing is in the way of message ${seq}.`,
    unblocks: `The wake that is under way, or else ${nextSweep(tunables)}.`,
  }
}

const described = ({ kind, version }: Partial<Wanted>): string =>
  kind === undefined ? ` of version ${version}` : ` of kind ${kind}, version ${version}`

/** Nobody takes over who is not there. */
function takenOver({ fleet, cluster }: Redis, { deadAfterMs, lockTtlMs, sweepMs }: Tunables): string {
  const expired = `within ${s(lockTtlMs + sweepMs * 2)}`
  const bound = cluster ? expired : `within ${s(deadAfterMs * 2)} when its process is dead, else ${expired}`
  return fleet.some(takesTurns)
    ? `Another process takes it over, ${bound}.`
    : `A worker that is started, for nobody takes turns; it then takes it over, ${bound}.`
}

/** A sweep may just have gone by, and the one after it be late. */
const nextSweep = ({ sweepMs }: Tunables): string => `the next sweep, within ${s(sweepMs * 2)}`
const everySweep = ({ sweepMs }: Tunables): string => `every ${s(sweepMs)}`

/** Milliseconds as people say them. */
const s = (ms: number): string => `${ms < 10_000 ? Math.ceil(ms / 100) / 10 : Math.ceil(ms / 1000)} s`
