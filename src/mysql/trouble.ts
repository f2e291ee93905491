/**
 * What a failure of MySQL means for the one who called: may it be repeated, may it have happened after all, and which
 * error of ours says so. Everything in `src/mysql` asks here; nobody else looks at error numbers. An error may be the
 * driver's own or wrapped any number of times: the chain of `cause` is followed.
 */
import { ButlerError, ClosedError, InvalidInputError, UnavailableError } from '../base/errors.ts'

/** What the driver puts on an error; every field may be missing. */
export interface DriverError {
  errno?: number
  code?: string
  fatal?: boolean
  message?: string
  sql?: string
}

/** The server undid the whole transaction, or left half of it (1205): nothing may follow but ROLLBACK. */
const ROLLED_BACK = new Set([1213, 1205, 1020, 1206, 3101])

/** A node that became a replica refuses writes; its connections must go so that new ones find the primary. */
const READ_ONLY = new Set([1290, 1792, 1836])

/** The server says that this connection ends: shutdown, killed, broken pipe, idle too long. */
const LOST_NUMBERS = new Set([1053, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2006, 2013, 4031])

/** Full or not ready (also a Galera node that is not in sync), or a statement interrupted from outside. */
const BUSY = new Set([1040, 1203, 1226, 1047, 1317, 1969, 3024, 1412, 1615])

const LOST_CODES = new Set([
  'PROTOCOL_CONNECTION_LOST',
  'PROTOCOL_SEQUENCE_TIMEOUT',
  'PROTOCOL_PACKETS_OUT_OF_ORDER',
  'ECONNRESET',
  'ECONNREFUSED',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ERR_STREAM_DESTROYED',
  'ERR_STREAM_WRITE_AFTER_END',
])

/** Who we are or what we may do is wrong: only an operator can help. */
const NOT_ADMITTED = new Set([1044, 1045, 1049, 1129, 1130, 1142, 1143, 1227, 1251, 1698, 1820, 1862, 3118])

const LOCK_WAIT = 1205
/** Errors that COMMIT itself may end with, or that may strike at any moment. */
const AT_COMMIT = new Set([1180, 1181, 1317, 1969, 3024])

const DUPLICATE = 1062
const PACKET_TOO_LARGE = 1153
const NO_SUCH_TABLE = 1146
const NO_SUCH_COLUMN = 1054

/**
 * True when nothing was written and the same call may succeed later: deadlock, lock wait, lost connection, fail-over,
 * full or stopping server, no answer in time. Never true together with {@link isInDoubt}.
 */
export function isRetryable(error: unknown): boolean {
  if (isInDoubt(error)) return false
  const chain = causes(error)
  for (const link of chain) {
    const errno = numberOf(link)
    if (errno !== undefined) {
      return ROLLED_BACK.has(errno) || READ_ONLY.has(errno) || LOST_NUMBERS.has(errno) || BUSY.has(errno)
    }
    if (isLost(link)) return true
  }
  return chain.some((link) => link instanceof UnavailableError && link.code === 'MYSQL_UNAVAILABLE')
}

/** True when the change may or may not have happened: the answer to COMMIT (or to a single write) never came. */
export function isInDoubt(error: unknown): boolean {
  return causes(error).some((link) => link instanceof UnavailableError && link.code === 'OUTCOME_UNKNOWN')
}

/** True when somebody else held a row for longer than a statement may wait for it. */
export function isLockWait(error: unknown): boolean {
  return causes(error).some((link) => numberOf(link) === LOCK_WAIT)
}

/** User, password, database or grants are wrong: trying again does not help. */
export function isNotAdmitted(error: unknown): boolean {
  return causes(error).some((link) => NOT_ADMITTED.has(numberOf(link) ?? 0))
}

/** True for a second row under a unique key. */
export function isDuplicate(error: unknown): boolean {
  return causes(error).some((link) => numberOf(link) === DUPLICATE)
}

/**
 * The error a user of this package should see. Trouble of the store becomes an `UnavailableError` (missing tables:
 * `MIGRATION_PENDING`) with the driver's error as cause; errors of ours, and what is no trouble of the store (a bug, an
 * error of the caller's function), come back as they are.
 */
export function toUnavailable(error: unknown): Error {
  if (error instanceof ButlerError) return error
  const known = causes(error).find((link) => link instanceof UnavailableError)
  if (known) return known
  const numbers = causes(error).map(numberOf)
  const reason = error instanceof Error ? error.message : String(error)
  if (isMigrationMissing(error)) {
    return new UnavailableError(
      'MIGRATION_PENDING',
      `The database has no up-to-date butler_ tables (${reason}). Run \`npx session-butler migrate up\` first.`,
      { cause: error },
    )
  }
  if (numbers.includes(PACKET_TOO_LARGE)) return tooLarge(reason, error)
  if (numbers.some((errno) => errno !== undefined && NOT_ADMITTED.has(errno))) {
    return new UnavailableError(
      'MYSQL_UNAVAILABLE',
      `MySQL refused us (${reason}): check user, password, database name and grants.`,
      { cause: error },
    )
  }
  if (causes(error).some((link) => link instanceof Error && link.message === 'Pool is closed.')) {
    return new ClosedError('CLOSED', 'The MySQL pool is closed.', { cause: error })
  }
  if (isRetryable(error)) {
    return new UnavailableError(
      'MYSQL_UNAVAILABLE',
      `MySQL is not available (${reason}); nothing was written.`,
      {
        cause: error,
      },
    )
  }
  return error instanceof Error ? error : new Error(reason, { cause: error })
}

export function tooLarge(details: string, cause?: unknown): InvalidInputError {
  return new InvalidInputError(
    'PAYLOAD_TOO_LARGE',
    `MySQL takes no statement of this size: raise its max_allowed_packet (64M is a good value) or send less. ${details}`,
    { cause },
  )
}

/** This very error ended its connection: the driver flagged it fatal, or the network or the server ended it. */
export function isLost(error: unknown): boolean {
  const { code, fatal } = fieldsOf(error)
  const errno = numberOf(error)
  if (errno !== undefined) return LOST_NUMBERS.has(errno)
  return fatal === true || (typeof code === 'string' && LOST_CODES.has(code))
}

/** The driver refused before sending, so nothing can have happened. */
export function isUnsent(error: unknown): boolean {
  return (
    fieldsOf(error).message?.includes("Can't add new command when connection is in closed state") === true
  )
}

/** The connection answers, but nobody should use it again: its server is read-only now, or about to hang up. */
export function isSpoiled(error: unknown): boolean {
  const errno = numberOf(error)
  return errno !== undefined && (READ_ONLY.has(errno) || errno === PACKET_TOO_LARGE)
}

/** The transaction of this statement is gone on the server, whole or in part. */
export function isRolledBack(error: unknown): boolean {
  const errno = numberOf(error)
  return errno !== undefined && ROLLED_BACK.has(errno)
}

/** A COMMIT answered with this error certainly did not commit; any other error leaves doubt. */
export function isCertainRefusal(error: unknown): boolean {
  const errno = numberOf(error)
  return errno !== undefined && (ROLLED_BACK.has(errno) || READ_ONLY.has(errno))
}

/** A statement before the COMMIT of the same request was refused, so that COMMIT was not reached. */
export function isRefusalBeforeCommit(error: unknown): boolean {
  const errno = numberOf(error)
  return errno !== undefined && !LOST_NUMBERS.has(errno) && !AT_COMMIT.has(errno)
}

export function isMigrationMissing(error: unknown): boolean {
  return causes(error).some((link) => {
    const errno = numberOf(link)
    const { message = '', sql = '' } = fieldsOf(link)
    return (
      (errno === NO_SUCH_TABLE && /\.butler_\w+'/.test(message)) ||
      (errno === NO_SUCH_COLUMN && sql.includes('butler_'))
    )
  })
}

/** The error and what it was made from, outermost first; bounded, because a cause may point back. */
function causes(error: unknown): unknown[] {
  const chain: unknown[] = []
  for (let link = error; link !== undefined && link !== null && chain.length < 10;) {
    chain.push(link)
    link = typeof link === 'object' && 'cause' in link ? link.cause : undefined
  }
  return chain
}

function fieldsOf(error: unknown): DriverError {
  return typeof error === 'object' && error !== null ? (error as DriverError) : {}
}

/** MySQL's error number. Node's own errors carry negative ones, which mean something else. */
function numberOf(error: unknown): number | undefined {
  const { errno } = fieldsOf(error)
  return typeof errno === 'number' && errno > 0 ? errno : undefined
}
