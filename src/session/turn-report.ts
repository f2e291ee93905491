/** Puts the end of a turn, or of a message that never started, on record (I10). */
import type { Telemetry } from '../base/telemetry.ts'
import { now } from '../base/timing.ts'
import type { TurnOutcome } from '../protocol/session-row.ts'
import type { Ending } from '../protocol/turn-rules.ts'
import type { TurnEnd, TurnRun } from './turn.ts'

export function reportEnd(
  telemetry: Telemetry,
  turn: TurnRun,
  ended: Ending['as'],
  { end, delayMs }: { end: TurnEnd; delayMs: number },
): void {
  const { about, abortedAt } = turn
  const afterMs = abortedAt === undefined ? undefined : Math.round(now() - abortedAt)
  const durationMs = Math.round(now() - turn.startedAt)
  const error = end.as === 'threw' ? end.error : undefined
  switch (ended) {
    case 'completed':
      return telemetry.emit('turn.completed', { ...about, durationMs })
    case 'stopped':
      return telemetry.emit('turn.stopped', { ...about, afterMs })
    case 'handed_over':
      return telemetry.emit('turn.handedOver', about)
    case 'retrying':
      return telemetry.emit('turn.retrying', { ...about, error, delayMs })
    case 'failed':
      if (end.as === 'aborted') telemetry.emit('turn.timedOut', { ...about, afterMs: durationMs })
      return telemetry.emit('turn.failed', { ...about, error })
  }
}

export function reportSkipped(
  telemetry: Telemetry,
  as: TurnOutcome,
  about: { session: string; seq: number; epoch: number },
): void {
  if (as === 'missing') telemetry.emit('message.missing', about)
  else if (as === 'failed') telemetry.emit('turn.failed', { ...about, error: new Error('counted out') })
  else if (as === 'withdrawn') telemetry.emit('message.withdrawn', about)
  else telemetry.emit('turn.stopped', about)
}
