/** What the calls of a client take and answer, for its users to read. */
import type { ButlerError } from '../base/errors.ts'
import type { Json } from '../base/payload.ts'
import type { Accepted } from '../protocol/intake.ts'
import type { MessageSource } from '../protocol/session-row.ts'
import type { Entry } from './entry.ts'
import type { MessageInput, SendOptions } from './submission.ts'

/** A Kysely transaction of the caller's, on the database that holds the butler_ tables. */
export interface CallersTransaction {
  readonly isTransaction: boolean
  /** Present on every Kysely; its type differs between versions of Kysely, so it is not named here. */
  withoutPlugins(): unknown
}

/** A message accepted within the caller's transaction. */
export interface AcceptedInTransaction extends Accepted {
  /** Call it after the commit; forgetting it costs one sweep (5 s). Never rejects. */
  notify(): Promise<void>
}

/** One of several messages. */
export interface SendItem extends SendOptions {
  readonly sessionId: string
  readonly message: MessageInput
}

/** What became of one of several messages; `error` says why it was refused, the others are not affected. */
export type SendResult =
  ({ readonly ok: true } & Accepted) | { readonly ok: false; readonly error: ButlerError }

export interface QueuedMessage {
  readonly seq: number
  readonly id: string
  readonly kind: string
  readonly source: MessageSource
  readonly payload: Json
  readonly createdAt: string
}

export interface SessionsOptions {
  readonly state?: 'running' | 'waiting' | 'idle' | undefined
  readonly after?: string | undefined
  readonly limit?: number | undefined
  readonly tenants?: readonly string[] | undefined
}

export interface StopOptions {
  /** Stop up to this message. Default: everything accepted so far. */
  readonly through?: number | undefined
  /** Stop only the turn of this message, or the one under way; what waits behind it stays. Not together with `through`. */
  readonly turn?: number | 'running' | undefined
  /**
   * How long to wait until it is really quiet, milliseconds up to 3,600,000: every handler that is stopped has returned,
   * or can write nothing any more. Default 0: not at all.
   */
  readonly waitMs?: number | undefined
  /** Ends the waiting, not the stop. */
  readonly signal?: AbortSignal | undefined
}

export interface StopReceipt {
  /** Nothing with a seq up to here starts any more. */
  readonly through: number
  /** The message whose turn was running when this was committed, and is being stopped; null when there was none. */
  readonly running: number | null
  /** Whether nothing that was stopped can do anything any more. */
  readonly quiet: boolean
  /** What became of the messages that had no final state yet; at most the first 1,000. */
  readonly outcomes: readonly StopOutcome[]
}

export interface StopOutcome {
  readonly seq: number
  /**
   * `never-started`: it waited, and does not start. `aborted`: its turn was ended, and its handler has returned. `fenced`:
   * its turn was ended while its handler may still run; it can write nothing any more. `already-done`: it came to its own
   * end before. `stopping`: that is not known yet, because nobody waited for it, or not long enough.
   */
  readonly outcome: 'never-started' | 'aborted' | 'fenced' | 'already-done' | 'stopping'
  /** When that was known, milliseconds since the call. */
  readonly ms: number
}

export interface TranscriptPage {
  readonly entries: Entry[]
  /** Pass it as `after` to read on. */
  readonly cursor: number
  /** The last entry number of the session when the page was read. */
  readonly head: number
}
