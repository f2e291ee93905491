/**
 * What became of a message that a Stop met after its first start, told from the ends that the transcript has of it: the
 * row says only that it is over, not whether its handler has returned.
 */
import type { TurnOutcome } from './session-row.ts'

/**
 * `never-started` waited, and does not start. `aborted` its turn was ended as stopped, and its handler has returned.
 * `fenced` its turn was ended in the row while its handler may still run (it ignores its signal, its process is dead or
 * hung, or the session was deleted): it can write nothing any more. `already-done` had its final state by itself.
 * `stopping` not over yet.
 */
export type StopResult = 'never-started' | 'aborted' | 'fenced' | 'already-done' | 'stopping'

/** One `turn_ended` entry. */
export interface TurnEndMark {
  readonly attempt: number
  readonly outcome: TurnOutcome
  /** The handler ignored its signal and was left behind. */
  readonly detached: boolean
}

const STOPPED_OR_OPEN: ReadonlySet<TurnOutcome> = new Set(['stopped', 'retrying', 'handed_over', 'lost'])

/** `ends`: all that the message has, oldest first, of which the last is not followed by a start. */
export function resultOf(ends: readonly TurnEndMark[]): StopResult {
  const last = ends.at(-1)
  // Removed since: that it is over is all that can be said.
  if (!last) return 'fenced'
  if (!STOPPED_OR_OPEN.has(last.outcome)) return 'already-done'
  if (last.attempt === 0) return 'never-started'
  // A message that is stopped between two attempts has a further end under the number of the attempt before.
  const own = ends.find(({ attempt }) => attempt === last.attempt) ?? last
  return own.outcome === 'lost' || own.detached ? 'fenced' : 'aborted'
}
