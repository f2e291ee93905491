/** What the calls of a client take and answer, for its users to read. */
import type { ButlerError } from '../base/errors.ts'
import type { Json } from '../base/payload.ts'
import type { Accepted } from '../protocol/intake.ts'
import type { MessageSource } from '../protocol/session-row.ts'
import type { StopResult } from '../protocol/stop-outcome.ts'
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

export interface StopReceipt {
  /** The tombstone: nothing with a seq up to here starts any more. */
  readonly through: number
  /** The message whose turn was running when it was stopped, or null when none was. */
  readonly running: number | null
  /** No handler of what was stopped can do anything any more: it has returned, or the row refuses what it writes. */
  readonly quiet: boolean
  /** What was not over yet and is covered, in order; the first 1,000 of them. Nothing to stop: none. */
  readonly outcomes: readonly StopOutcome[]
}

export interface StopOutcome {
  readonly seq: number
  readonly outcome: StopResult
  /** Milliseconds from the call until this was known. */
  readonly ms: number
}

export interface StopOptions {
  /** Stop only up to this message. Default: everything accepted so far. */
  readonly through?: number | undefined
  /**
   * Stop only this message, whose turn runs, whatever waits behind it stays; `running`: whichever runs. Between two
   * attempts a message counts as running. Not together with `through`.
   */
  readonly turn?: number | 'running' | undefined
  /**
   * 0: answer when the tombstone is committed. More: answer when it is quiet, at most so many milliseconds after the
   * call. Default 0; up to 3600000.
   */
  readonly waitMs?: number | undefined
  /** Ends the waiting, not the stop. */
  readonly signal?: AbortSignal | undefined
}

export interface TranscriptPage {
  readonly entries: Entry[]
  /** Pass it as `after` to read on. */
  readonly cursor: number
  /** The last entry number of the session when the page was read. */
  readonly head: number
}
