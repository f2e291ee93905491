/**
 * The session row: the one place where order, ownership and stop are decided. Everything in this folder is pure (no
 * clock, no store): a rule takes a locked row as a draft and changes it, and the ledger writes the draft in the same
 * transaction. The small numbers say it all:
 *
 *     done_seq          < running_seq (= done_seq + 1) ≤ inbox_seq
 *     everything final    the turn that runs now         the last number given out
 *
 * The next message to run is always `doneSeq + 1`, whatever Redis says.
 */

export interface SessionRow {
  readonly id: string
  /** The last number given out. */
  inboxSeq: number
  /** Every message up to here has its final state. */
  doneSeq: number
  /** The tombstone: every message up to here must not start, or must stop. */
  stopSeq: number
  /** The message whose turn runs now; null between turns. */
  runningSeq: number | null
  /** Who may run turns: a random token per acquisition; null when nobody. */
  owner: string | null
  /** +1 with every new owner. */
  epoch: number
  /** Of the message at `doneSeq + 1`, reset when it is done. */
  starts: number
  failures: number
  handovers: number
  crashes: number
  /** Milliseconds until the next attempt may start, by the database's clock; null when it may start now. */
  retryInMs: number | null
  /** The last transcript number; dense. */
  entrySeq: number
  /** Messages up to here belong to a deleted life of the session; equal to `inboxSeq` while it is deleted. */
  readonly purgeSeq: number
}

/** What names one run of one message. Every write of a turn is conditional on it: see {@link isTurn}. */
export interface TurnName {
  readonly owner: string
  readonly seq: number
  readonly starts: number
}

/** The fence. A token alone lives for many turns, and a seq for many attempts; only all three name this run. */
export function isTurn(row: SessionRow, turn: TurnName): boolean {
  return row.owner === turn.owner && row.runningSeq === turn.seq && row.starts === turn.starts
}

/** The turn that the row says is running, if any. */
export function runningTurn(row: SessionRow): TurnName | null {
  if (row.runningSeq === null || row.owner === null) return null
  return { owner: row.owner, seq: row.runningSeq, starts: row.starts }
}

/**
 * The form of messages that this version of the library writes, and the newest that it understands. Raise it when an
 * older version would do something wrong with what is written from then on; it leaves such messages to newer ones.
 */
export const MESSAGE_VERSION = 1

/** A message as its row has it. */
export interface Message {
  /** Of its form, see {@link MESSAGE_VERSION}. */
  readonly version: number
  readonly seq: number
  readonly id: string
  readonly kind: string
  readonly source: MessageSource
  /** JSON text. */
  readonly payload: string
  /** Written only for final states other than completed. */
  readonly status: MessageStatus | null
  readonly traceparent: string | null
  readonly createdAt: string
  /** How long ago it was accepted, milliseconds by the database's clock; only of one that is read to be started. */
  readonly waitedMs?: number
}

export type MessageSource = 'user' | 'agent' | 'automation' | 'system'
export type MessageStatus = 'stopped' | 'failed' | 'withdrawn'

/** A transcript line before it has its number. `payload` is JSON text. */
export interface EntryDraft {
  readonly type: string
  readonly payload: string
  readonly stepKey?: string
  readonly callId?: string
}

/** The entry types that the runtime writes or understands; anything else is the handler's own. */
export const ENTRY = {
  message: 'message',
  reply: 'reply',
  toolCall: 'tool_call',
  toolResult: 'tool_result',
  step: 'step',
  error: 'error',
  turnStarted: 'turn_started',
  turnEnded: 'turn_ended',
} as const

/** How a turn, or a message that never started, came to its end. */
export type TurnOutcome =
  'completed' | 'stopped' | 'failed' | 'retrying' | 'handed_over' | 'lost' | 'withdrawn' | 'missing'
