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

export interface StopReceipt {
  /** Nothing with a seq up to here starts any more. */
  readonly through: number
  /** The message whose turn is being stopped, or null when none was running. */
  readonly running: number | null
}

export interface TranscriptPage {
  readonly entries: Entry[]
  /** Pass it as `after` to read on. */
  readonly cursor: number
  /** The last entry number of the session when the page was read. */
  readonly head: number
}
