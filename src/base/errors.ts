/**
 * Every error this package throws on purpose. Few classes (what kind of trouble), stable codes (which trouble),
 * and a message that says what to do next. Callers branch on `code`; messages may change between releases.
 */

/** Stable identifiers; adding one is a feature, renaming one is a breaking change. */
export type ErrorCode =
  // InvalidInputError: the call was wrong; nothing was written
  | 'INVALID_SESSION_ID'
  | 'INVALID_KEY'
  | 'INVALID_MESSAGE'
  | 'INVALID_ENTRY'
  | 'INVALID_ARGUMENT'
  | 'INVALID_CURSOR'
  | 'PAYLOAD_TOO_LARGE'
  | 'PAYLOAD_TOO_DEEP'
  | 'PAYLOAD_NOT_JSON'
  | 'INVALID_OPTIONS'
  // RefusedError: the call was right, the state of the session says no; nothing was written
  | 'SESSION_BUSY'
  | 'QUEUE_FULL'
  | 'IDEMPOTENCY_CONFLICT'
  | 'NOT_WITHDRAWABLE'
  | 'NOT_RETRYABLE'
  | 'NOT_RUNNING'
  // NotFoundError
  | 'SESSION_NOT_FOUND'
  | 'MESSAGE_NOT_FOUND'
  | 'KEY_NOT_FOUND'
  // UnavailableError: a store did not answer
  | 'MYSQL_UNAVAILABLE'
  | 'REDIS_UNAVAILABLE'
  | 'OUTCOME_UNKNOWN'
  | 'MIGRATION_PENDING'
  // TurnAbortedError: this turn is over; the handler should return
  | 'TURN_STOPPED'
  | 'TURN_TIMEOUT'
  | 'TURN_HANDED_OVER'
  | 'TURN_LOST'
  | 'TURN_ENDED'
  // CutOffError
  | 'WATCHER_CUT_OFF'
  // ClosedError
  | 'CLOSED'

/** Base of every deliberate error; `cause` keeps what lay underneath. */
export class ButlerError extends Error {
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = new.target.name
    this.code = code
  }
}

/** The arguments or options are wrong. Nothing was sent to either store. */
export class InvalidInputError extends ButlerError {}

/** The session's state refuses the call. Nothing was written. */
export class RefusedError extends ButlerError {}

/** The named session or message does not exist. */
export class NotFoundError extends ButlerError {}

/**
 * A store did not answer in time. `OUTCOME_UNKNOWN` means the change may or may not have happened: repeating the
 * call with the same idempotency key is safe. With any other code nothing was written.
 */
export class UnavailableError extends ButlerError {}

/** The client or worker was closed before the call. */
export class ClosedError extends ButlerError {}

/** A watcher took nothing while too much came in. Nothing is lost: subscribe again with `after: error.cursor`. */
export class CutOffError extends ButlerError {
  readonly cursor: string

  constructor(cursor: string) {
    super('WATCHER_CUT_OFF', `The watcher did not keep up: subscribe again after cursor ${cursor}.`)
    this.cursor = cursor
  }
}

/** Why a turn's signal fired; see {@link TurnAbortedError}. */
export type AbortReason = 'stopped' | 'timeout' | 'handover' | 'lost' | 'ended'

const ABORT_CODES = {
  stopped: 'TURN_STOPPED',
  timeout: 'TURN_TIMEOUT',
  handover: 'TURN_HANDED_OVER',
  lost: 'TURN_LOST',
  ended: 'TURN_ENDED',
} as const satisfies Record<AbortReason, ErrorCode>

/**
 * The reason of `turn.signal`, and what every write of a turn that is over throws. `reason` is
 * `stopped` (somebody pressed Stop), `timeout` (turn deadline or no progress), `handover` (this process drains),
 * `lost` (another owner serves the session now) or `ended` (the handler already returned).
 */
export class TurnAbortedError extends ButlerError {
  readonly reason: AbortReason

  constructor(reason: AbortReason, message: string, options?: { cause?: unknown }) {
    super(ABORT_CODES[reason], message, options)
    this.reason = reason
  }
}
