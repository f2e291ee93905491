/**
 * What a model may see of a transcript. Every attempt stays in the transcript, but an attempt that another one
 * superseded shows only what is finished: its memoised steps and the tool calls that really returned. So no call is
 * ever left dangling and nothing half-said is taken for said.
 */
import { ENTRY } from './session-row.ts'

interface Line {
  readonly seq: number
  readonly attempt: number
  readonly type: string
  readonly callId: string | null
  readonly stepKey: string | null
  /** Parsed payload; an interrupted tool result is marked `{ interrupted: true }`. */
  readonly payload: unknown
}

const BOOKKEEPING: ReadonlySet<string> = new Set([ENTRY.turnStarted, ENTRY.turnEnded, ENTRY.error])

/** `entries` in transcript order, not necessarily from its beginning. */
export function visible<T extends Line>(entries: readonly T[]): T[] {
  const lastAttempt = new Map<number, number>()
  const called = new Set<string>()
  const returned = new Set<string>()
  for (const { seq, attempt, type, callId, payload } of entries) {
    lastAttempt.set(seq, Math.max(lastAttempt.get(seq) ?? 0, attempt))
    const key = callKey(seq, attempt, callId)
    if (type === ENTRY.toolCall) called.add(key)
    if (type === ENTRY.toolResult && !isInterrupted(payload)) returned.add(key)
  }
  return entries.filter((entry) => {
    if (BOOKKEEPING.has(entry.type)) return false
    // The newest entries may begin between a call and its result.
    if (entry.type === ENTRY.toolResult && !called.has(callKey(entry.seq, entry.attempt, entry.callId)))
      return false
    if (entry.type === ENTRY.message || entry.attempt === lastAttempt.get(entry.seq)) return true
    return (
      entry.stepKey !== null ||
      (entry.callId !== null && returned.has(callKey(entry.seq, entry.attempt, entry.callId)))
    )
  })
}

const callKey = (seq: number, attempt: number, callId: string | null) => `${seq} ${attempt} ${callId}`

function isInterrupted(payload: unknown): boolean {
  return (
    typeof payload === 'object' &&
    payload !== null &&
    'interrupted' in payload &&
    payload.interrupted === true
  )
}
