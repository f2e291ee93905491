/** One answer to why a session does not move: its rows in one snapshot, then Redis, then the verdict. Changes nothing. */
import { processOf } from '../base/ids.ts'
import type { Tunables } from '../base/options.ts'
import { type EntryMark, readStanding, type Standing } from '../mysql/standing.ts'
import type { TurnOutcome } from '../protocol/session-row.ts'
import { isSuspect } from '../protocol/turn-rules.ts'
import { canRun, memberIds, type Sight, sight } from '../redis/fleet.ts'
import { isIdle, type LockSight, sightOf, tokenOf } from '../redis/lock.ts'
import { isFree, type ProcessView, toProcessView } from './fleet-view.ts'
import { type SessionView, viewOf } from './inspection.ts'
import type { Stores } from './stores.ts'
import { unknownSession } from './unknown.ts'
import { askedOf, type LockKind, type SessionVerdict, type VerdictFacts, verdictOf } from './verdict.ts'

/** Times are ISO text and ages milliseconds, both by the database's clock. Nothing of any payload is in it. */
export interface Explanation {
  readonly verdict: SessionVerdict
  /** When it was asked. */
  readonly at: string
  /** Its state and its numbers, as `inspect` gives them. */
  readonly session: Omit<SessionView, 'owner' | 'ownerProcess' | 'lock'>
  /** Who may run its turns by the row; null: nobody. */
  readonly owner: OwnerView | null
  /** The lock in Redis; null: Redis does not answer. */
  readonly lock: LockView | null
  readonly queue: QueueView
  /** The turn that runs; null: none. */
  readonly turn: TurnView | null
  /** Of the message that runs or is next; null: there is none. */
  readonly attempts: AttemptsView | null
  /** The last turns that started or ended, oldest first; at most ten. */
  readonly transitions: readonly Transition[]
  /**
   * Living processes that can run that message (any, when there is none) and have a free slot. Null: Redis does not
   * answer, or whoever asks over HTTP may not know.
   */
  readonly processes: readonly ProcessView[] | null
}

export interface OwnerView {
  /** Null, like `host` and `pid`: whoever asks over HTTP may not know. */
  readonly process: string | null
  /** By its heartbeat; null: Redis does not answer. */
  readonly alive: boolean | null
  /** Null: unknown. */
  readonly draining: boolean | null
  readonly host: string | null
  readonly pid: number | null
}

export interface LockView {
  readonly kind: LockKind
  /** Null: nobody's, or nobody's that can be read. */
  readonly process: string | null
  /** Whether it is the lock of the owner that the row names. */
  readonly ofOwner: boolean
  /** Null: there is none, or it has no end. */
  readonly leftMs: number | null
}

export interface QueueView {
  /** Messages without a final state that do not run. */
  readonly waiting: number
  /** The first of them that are to run, oldest first; at most ten. */
  readonly first: readonly {
    readonly seq: number
    readonly kind: string
    readonly version: number
    readonly ageMs: number
  }[]
}

export interface TurnView {
  readonly seq: number
  /** Which start of the message it is: 1, 2, … */
  readonly attempt: number
  readonly since: string | null
  readonly ageMs: number | null
  /** The attempt's last entry: what its handler is known to have done. Deltas are not looked at. */
  readonly lastEntry: EntryView | null
  /** The message's last finished step. */
  readonly lastStep: EntryView | null
}

export interface EntryView {
  readonly entry: number
  readonly type: string
  readonly stepKey: string | null
  readonly at: string
  readonly ageMs: number
}

export interface AttemptsView {
  readonly seq: number
  /** Its row is there. */
  readonly found: boolean
  /** It is not to run, or to stop. */
  readonly stopped: boolean
  readonly starts: number
  readonly failures: number
  readonly crashes: number
  readonly handovers: number
  /** One crash away from being given up; such messages run one at a time in a process. */
  readonly suspect: boolean
  readonly retryAt: string | null
  /** Until then; null when nothing is put off. */
  readonly retryInMs: number | null
}

export interface Transition {
  readonly entry: number
  readonly seq: number
  readonly attempt: number
  readonly epoch: number
  /** How it ended; null: it started. */
  readonly outcome: TurnOutcome | null
  readonly at: string
}

const LIMITS = { queue: 10, transitions: 10 }

/** Rejects when MySQL does not answer. @throws NotFoundError SESSION_NOT_FOUND */
export async function explain(stores: Stores, id: string): Promise<Explanation> {
  const { mysql, telemetry, tunables } = stores
  const standing = await readStanding(mysql.db, id, LIMITS)
  if (!standing) throw unknownSession(id)
  const around = await lookAround(stores, standing).catch((error: unknown) => {
    telemetry.emit('redis.trouble', { session: id, error })
    return undefined
  })
  const { session, next } = standing
  const facts = { session, next, redis: around, tunables }
  const { wanted } = askedOf(facts)
  return {
    verdict: verdictOf(facts),
    ...viewsOf(standing, tunables),
    owner: session.owner === null ? null : toOwner(session.owner, around),
    lock: around ? toLock(around.lock, session.owner) : null,
    processes: around ? around.fleet.filter((one) => isFree(one) && canRun(one, wanted)) : null,
  }
}

/** What of Redis the verdict is about, and who the owner is. */
interface Around extends NonNullable<VerdictFacts['redis']> {
  readonly fleet: readonly ProcessView[]
  readonly owner: Sight | undefined
}

async function lookAround({ redis, keys }: Stores, { session }: Standing): Promise<Around> {
  const { commands } = redis
  const [value, ids] = await Promise.all([sightOf(commands, keys, session.id), memberIds(commands, keys)])
  const lock = lockOf(value)
  const nameOf = (token: string | null) => (token === null ? null : processOf(token))
  const [owner, holder] = [nameOf(session.owner), nameOf(lock.token)]
  const named = [owner, holder].filter((name) => name !== null)
  const sights = await sight(commands, keys, [...new Set([...ids, ...named])])
  const isAlive = (name: string | null) => (name === null ? null : sights.get(name)?.beating === true)
  return {
    lock,
    ownerAlive: isAlive(owner),
    ownerDraining: sights.get(owner ?? '')?.heartbeat?.draining === true,
    holderAlive: isAlive(holder),
    fleet: ids.flatMap((id) => toProcessView(id, sights.get(id)) ?? []),
    cluster: redis.cluster,
    owner: sights.get(owner ?? ''),
  }
}

const TOKEN = /^[A-Za-z0-9]+\.[A-Za-z0-9]+$/

function lockOf({ value, foreign, leftMs }: LockSight): Around['lock'] {
  if (value === null) return { kind: foreign ? 'unreadable' : 'none', token: null, leftMs: null }
  const token = tokenOf(value)
  return { kind: isIdle(value) ? 'idle' : 'busy', token: TOKEN.test(token) ? token : null, leftMs }
}

function viewsOf(
  standing: Standing,
  { maxCrashes }: Tunables,
): Pick<Explanation, 'at' | 'session' | 'queue' | 'turn' | 'attempts' | 'transitions'> {
  const { session, now, next, queue, lastEntry, lastStep, transitions } = standing
  const runningSince = standing.runningSince ?? null
  const { owner: _, ownerProcess: __, ...view } = viewOf(session, runningSince)
  const { starts, failures, crashes, handovers, retryAt, retryInMs, runningSeq, doneSeq, inboxSeq } = session
  const ageMs = (time: string) => Math.max(0, Date.parse(now) - Date.parse(time))
  const toEntry = (mark: EntryMark | undefined): EntryView | null => {
    if (!mark) return null
    const { entry, type, stepKey, createdAt } = mark
    return { entry, type, stepKey, at: createdAt, ageMs: ageMs(createdAt) }
  }
  const turn = {
    attempt: starts,
    since: runningSince,
    ageMs: runningSince === null ? null : ageMs(runningSince),
    lastEntry: toEntry(lastEntry),
    lastStep: toEntry(lastStep),
  }
  const attempts = {
    seq: doneSeq + 1,
    found: next !== undefined,
    stopped: session.stopSeq > doneSeq,
    starts,
    failures,
    crashes,
    handovers,
    suspect: isSuspect(session, maxCrashes),
    retryAt,
    retryInMs: retryInMs === null ? null : Math.max(0, retryInMs),
  }
  return {
    at: now,
    session: view,
    queue: {
      waiting: view.queueDepth,
      first: queue.map(({ seq, kind, version, createdAt }) => ({
        seq,
        kind,
        version,
        ageMs: ageMs(createdAt),
      })),
    },
    turn: runningSeq === null ? null : { seq: runningSeq, ...turn },
    attempts: inboxSeq > doneSeq ? attempts : null,
    transitions: transitions.map(({ entry, seq, attempt, epoch, outcome, createdAt: at }) => {
      return { entry, seq, attempt, epoch, outcome, at }
    }),
  }
}

function toOwner(token: string, around: Around | undefined): OwnerView {
  const { heartbeat, host, pid } = around?.owner ?? {}
  return {
    process: processOf(token),
    alive: around?.ownerAlive ?? null,
    draining: heartbeat?.draining ?? null,
    host: host ?? null,
    pid: pid ?? null,
  }
}

function toLock({ kind, token, leftMs }: Around['lock'], owner: string | null): LockView {
  const process = token === null ? null : processOf(token)
  return { kind, process, ofOwner: token !== null && token === owner, leftMs }
}
