/** Commits how a turn ended: completed, stopped, failed, to be run again here, or by another process. */
import type { Tunables } from '../base/options.ts'
import type { SessionRow } from '../protocol/session-row.ts'
import { type Ending, finish, start, type StartLimits } from '../protocol/turn-rules.ts'
import { asErrorText } from './failure.ts'
import type { Stores } from './stores.ts'
import type { TurnEnd, TurnRun } from './turn.ts'

/**
 * One transaction for the end of a turn and, when `next` is given and the session has more, for the start of its next
 * one. `successor` is the row's new owner token when the handler still runs and must be cut off.
 */
export function commitEnd(
  { ledger, tunables }: Stores,
  turn: TurnRun,
  end: TurnEnd,
  { successor, next }: { successor: string | undefined; next: StartLimits | undefined },
) {
  return ledger.commit(
    turn.sessionId,
    (draft) => {
      const ending = endingOf(end, draft.row, turn.name.seq, tunables)
      const openCalls = end.as === 'returned' ? end.openCalls : turn.openCalls
      const finished = finish(draft, turn.name, ending, openCalls, successor)
      const goOn =
        finished.outcome === 'finished' && ending.as !== 'retrying' && finished.doneSeq < finished.inboxSeq
      return {
        as: ending.as,
        ...finished,
        next: goOn && next ? start(draft, turn.name.owner, next) : undefined,
      }
    },
    {
      ...(next ? { head: 'after' as const } : {}),
      bytes: end.as === 'returned' ? end.entries.reduce((sum, { payload }) => sum + payload.length, 0) : 0,
    },
  )
}

/** How long the next attempt waits after so many failures, milliseconds. */
export function retryDelayMs({ retryDelaysMs }: Tunables, failures: number): number {
  return retryDelaysMs[Math.min(failures, retryDelaysMs.length) - 1] ?? 0
}

function endingOf(end: TurnEnd, { failures, stopSeq }: SessionRow, seq: number, tunables: Tunables): Ending {
  if (end.as === 'returned') return { as: 'completed', entries: end.entries }
  if (end.as === 'threw') {
    const error = asErrorText(end.error)
    if (failures + 1 >= tunables.maxFailures) return { as: 'failed', error }
    // It failed while somebody stopped it: there will be no next attempt.
    if (stopSeq >= seq) return { as: 'stopped' }
    return { as: 'retrying', error, delayMs: retryDelayMs(tunables, failures + 1) }
  }
  const detached = !end.settled
  if (end.reason === 'handover') return { as: 'handed_over', detached }
  if (end.reason !== 'timeout') return { as: 'stopped', detached }
  const error = { code: 'TURN_TIMEOUT', message: 'The turn ran too long or made no progress.' }
  return { as: 'failed', error: JSON.stringify(error), detached }
}
