/**
 * What became of what somebody stopped. Whatever waited is settled by the tombstone itself; of the message that was under
 * way the transcript tells, so whoever waits for it reads on behind the entry that was the last when the tombstone was
 * written, like any watcher, and hears of it even when every notification is lost.
 */
import { checkOptions, checkSignal, whole } from '../base/arguments.ts'
import { InvalidInputError, NotFoundError } from '../base/errors.ts'
import { deadline, now } from '../base/timing.ts'
import type { Stopped } from '../protocol/intake.ts'
import { ENTRY } from '../protocol/session-row.ts'
import type { StopOptions, StopOutcome } from './answers.ts'
import type { Entry } from './entry.ts'
import type { WatchEvent, WatchOptions } from './watch-events.ts'

const OUTCOMES_MAX = 1000

const WAIT_MAX_MS = 3_600_000

/** @throws InvalidInputError INVALID_ARGUMENT. */
export function checkStop(options: StopOptions) {
  checkOptions(options, ['through', 'turn', 'waitMs', 'signal'])
  const { through, turn, waitMs = 0, signal } = options
  checkSignal(signal)
  if (through !== undefined && turn !== undefined)
    throw new InvalidInputError(
      'INVALID_ARGUMENT',
      'Stop either through a message or one turn: leave one of them out.',
    )
  return {
    through: through === undefined ? undefined : whole('through', through, 0),
    turn: turn === undefined || turn === 'running' ? turn : whole('turn', turn, 1),
    waitMs: whole('waitMs', waitMs, 0, WAIT_MAX_MS),
    signal,
  }
}

type Watch = (options: WatchOptions) => AsyncIterable<WatchEvent>

/** `only`: the one message that is looked at. `since`: when the call began, on the monotonic clock. */
export async function outcomesOf(
  stopped: Stopped,
  options: {
    only: number | undefined
    since: number
    waitMs: number
    signal?: AbortSignal | undefined
    watch: Watch
  },
): Promise<StopOutcome[]> {
  const { only, since, waitMs, signal, watch } = options
  const { doneSeq, hasStarted, through } = stopped
  const at = (seq: number, outcome: StopOutcome['outcome']): StopOutcome => {
    return { seq, outcome, ms: Math.round(now() - since) }
  }
  if (only !== undefined && only <= doneSeq) return [at(only, 'already-done')]
  const last = Math.min(only ?? through, doneSeq + OUTCOMES_MAX)
  const covered = Array.from({ length: Math.max(0, last - doneSeq) }, (_, index) => doneSeq + 1 + index)
  const next = hasStarted ? covered.shift() : undefined
  const waiting = covered.map((seq) => at(seq, 'never-started'))
  if (next === undefined) return waiting
  const over = waitMs > 0 && AbortSignal.any([deadline(waitMs), ...(signal ? [signal] : [])])
  const end = over ? await endOf(next, watch({ after: stopped.entrySeq, signal: over })) : undefined
  return [at(next, end ?? 'stopping'), ...waiting]
}

/** How a message that was under way came to its final state; undefined: it has not, as long as this was watched. */
async function endOf(
  seq: number,
  events: AsyncIterable<WatchEvent>,
): Promise<StopOutcome['outcome'] | undefined> {
  let mayRun = false
  try {
    for await (const event of events) {
      if (event.type !== 'entry' || event.entry.seq !== seq || event.entry.type !== ENTRY.turnEnded) continue
      const { outcome, detached } = endIn(event.entry)
      // Its next attempt does not start, but the handler of this one may still run.
      if (outcome === 'lost' || outcome === 'handed_over') mayRun = true
      else if (outcome !== 'retrying')
        return outcome !== 'stopped' ? 'already-done' : mayRun || detached ? 'fenced' : 'aborted'
    }
  } catch (error) {
    // It was deleted: whatever runs there is refused by the row.
    if (error instanceof NotFoundError) return 'fenced'
    throw error
  }
  return undefined
}

function endIn({ payload }: Entry): { outcome: unknown; detached: boolean } {
  const { outcome, detached } = Object(payload) as { outcome?: unknown; detached?: unknown }
  return { outcome, detached: detached === true }
}
