/** Where a session stands, for people: the row, put into words, and the lock as Redis has it. */
import { processOf } from '../base/ids.ts'
import type { SessionSummary } from '../mysql/sessions.ts'
import { readTurnStart } from '../mysql/transcript.ts'
import { isIdle, read, tokenOf } from '../redis/lock.ts'
import type { Stores } from './stores.ts'

export interface SessionView extends SessionSummary {
  /** `running` a turn, `retrying` after a failure, `waiting` for a worker, or `idle`: nothing to do. */
  readonly state: 'running' | 'retrying' | 'waiting' | 'idle'
  /** Messages without a final state that do not run. */
  readonly queueDepth: number
  /** When the running turn started, ISO time; null when none runs. */
  readonly runningSince: string | null
  /** What the next step depends on, in words; null when there is nothing to do. */
  readonly waitsFor: string | null
  /** Process that the row names as owner; null when nobody owns the session. */
  readonly ownerProcess: string | null
  /** The lock in Redis, which is only a hint: who holds it and whether busily. `unknown`: Redis did not answer. */
  readonly lock: { readonly process: string; readonly busy: boolean } | 'free' | 'unknown'
}

export async function inspect(stores: Stores, session: SessionSummary): Promise<SessionView> {
  const { id, runningSeq } = session
  const [since, lock] = await Promise.all([
    runningSeq === null ? undefined : readTurnStart(stores.mysql.db, id, runningSeq),
    read(stores.redis.commands, stores.keys, id).catch(() => undefined),
  ])
  return { ...viewOf(session, since ?? null), lock: lockView(lock) }
}

/** The row in words; `runningSince` is the start of the running turn, if one runs. */
export function viewOf(session: SessionSummary, runningSince: string | null): Omit<SessionView, 'lock'> {
  const { runningSeq, inboxSeq, doneSeq, stopSeq, owner } = session
  const state = stateOf(session)
  return {
    ...session,
    state,
    queueDepth: Math.max(0, inboxSeq - Math.max(doneSeq, stopSeq, runningSeq ?? 0)),
    runningSince,
    waitsFor: waitsFor(session, state),
    ownerProcess: owner === null ? null : processOf(owner),
  }
}

function stateOf({ runningSeq, inboxSeq, doneSeq, retryInMs }: SessionSummary): SessionView['state'] {
  if (runningSeq !== null) return 'running'
  if (inboxSeq === doneSeq) return 'idle'
  return retryInMs !== null && retryInMs > 0 ? 'retrying' : 'waiting'
}

function waitsFor(session: SessionSummary, state: SessionView['state']): string | null {
  const { runningSeq, stopSeq, retryAt, doneSeq } = session
  switch (state) {
    case 'idle':
      return null
    case 'running':
      return runningSeq !== null && stopSeq >= runningSeq
        ? `message ${runningSeq} to react to its stop`
        : `message ${runningSeq} to end its turn`
    case 'retrying':
      return `the next attempt of message ${doneSeq + 1} at ${retryAt}`
    case 'waiting':
      return `a worker with a free slot to start message ${doneSeq + 1}`
  }
}

function lockView(value: string | null | undefined): SessionView['lock'] {
  if (value === undefined) return 'unknown'
  if (value === null) return 'free'
  return { process: processOf(tokenOf(value)), busy: !isIdle(value) }
}
