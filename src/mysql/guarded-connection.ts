/**
 * One use of one connection, from `getConnection` to `release`. Made by the guard, used by Kysely's driver. Duties:
 * 1. every statement has an end; one that MySQL does not answer in time costs the connection;
 * 2. a connection whose state is not known to be clean is destroyed, never released;
 * 3. ROLLBACK never fails and so hides no earlier error: dropping the connection undoes the transaction as well;
 * 4. a transaction that the server undid can only be rolled back: nothing of it is committed by accident;
 * 5. an unanswered COMMIT (or single write) is OUTCOME_UNKNOWN, every other failure means that nothing was written;
 * 6. values go in and come out alike on any pool: BIGINT is a number, times are Dates in UTC;
 * 7. errors carry the statement without its values: payloads stay out of logs.
 */
import type { MysqlPoolConnection, MysqlQueryResult } from 'kysely'
import { format } from 'mysql2'
import { InvalidInputError, UnavailableError } from '../base/errors.ts'
import { withDeadline } from '../base/timing.ts'
import * as trouble from './trouble.ts'

/** The part of a mysql2 pool connection that is used here. */
export interface RawConnection {
  query(options: RawQuery, callback: (error: unknown, result: MysqlQueryResult) => void): unknown
  release(): void
  destroy(): void
  on?(event: 'error', listener: (error: unknown) => void): unknown
  stream?: { destroy?(): void; once?(event: 'close', listener: () => void): unknown }
}

interface RawQuery {
  sql: string
  values: unknown[]
  [decoding: string]: unknown
}

export interface ConnectionOptions {
  timeoutMs: number
  onTrouble: (error: unknown) => void
  /** No statement longer than this is sent. */
  packetMaxBytes: number
}

/** Schema changes and the wait for the migration lock may rightly take this long. */
const SLOW_MS = 600_000
const SLOW = /^\s*(?:create|alter|drop)\b|\bget_lock\(|\binformation_schema\b/i
/** Command byte and statement attributes; generous. */
const PACKET_OVERHEAD = 1024
const HARMLESS = /^\s*(?:select|set|show|begin|start|savepoint|release)\b/i
const BEGIN = /^\s*(?:begin|start\s+transaction)\b/i
const LONE_BEGIN = /^\s*(?:begin|start\s+transaction[^;]*)\s*;?\s*$/i
const COMMIT = /^\s*commit\b/i
/** Several statements, the last of which is COMMIT; see `exchange.ts`. */
const WRITES_AND_COMMIT = /;\s*commit\s*$/i
const ROLLBACK = /^\s*rollback\s*;?\s*$/i

export class GuardedConnection implements MysqlPoolConnection {
  readonly #raw: RawConnection
  readonly #options: ConnectionOptions
  readonly #onRelease: () => void
  #inTransaction = false
  #running = 0
  #released = false
  /** Why the connection is gone. */
  #gone: unknown
  /** Why nothing but ROLLBACK may follow in this transaction. */
  #doom: unknown
  /** Why the connection must not be used again after this. */
  #spoiled: unknown

  constructor(raw: RawConnection, options: ConnectionOptions, onRelease: () => void) {
    this.#raw = raw
    this.#options = options
    this.#onRelease = onRelease
  }

  query(sql: string, parameters: unknown[]): never
  query(
    sql: string,
    parameters: unknown[],
    callback: (error: unknown, result: MysqlQueryResult) => void,
  ): void
  query(
    sql: string,
    parameters: unknown[],
    callback?: (error: unknown, result: MysqlQueryResult) => void,
  ): void {
    if (!callback) throw new Error('Rows are not streamed here: read a page at a time.')
    hand(this.run(sql, parameters), callback)
  }

  async run(sql: string, parameters: unknown[]): Promise<MysqlQueryResult> {
    if (ROLLBACK.test(sql)) return await this.#rollback()
    if (this.#gone !== undefined) {
      throw new UnavailableError(
        'MYSQL_UNAVAILABLE',
        'The connection to MySQL was lost before this statement.',
        {
          cause: this.#gone,
        },
      )
    }
    if (this.#doom !== undefined) throw this.#doom
    try {
      const result = await this.#send(sql, parameters)
      if (BEGIN.test(sql)) this.#inTransaction = true
      else if (COMMIT.test(sql) || WRITES_AND_COMMIT.test(sql)) this.#inTransaction = false
      return result
    } catch (error) {
      throw this.#judge(error, sql)
    }
  }

  release(): void {
    if (this.#released) return
    if (this.#gone === undefined) {
      if (this.#spoiled !== undefined) this.discard(this.#spoiled)
      else if (this.#inTransaction)
        this.discard(new Error('A connection came back with an open transaction.'))
      else if (this.#running > 0)
        this.discard(new Error('A connection came back with a statement under way.'))
      else this.#raw.release()
    }
    this.#released = true
    this.#onRelease()
  }

  /** Ends the connection. Whatever transaction was open on it is undone by the server. */
  discard(reason: unknown): void {
    if (this.#gone !== undefined) return
    this.#gone = reason
    cut(this.#raw)
    this.#options.onTrouble(reason)
  }

  async #rollback(): Promise<MysqlQueryResult> {
    try {
      if (this.#gone === undefined) await this.#send('rollback', [])
    } catch (error) {
      this.discard(error)
    }
    this.#inTransaction = false
    this.#doom = undefined
    return []
  }

  async #send(sql: string, parameters: unknown[]): Promise<MysqlQueryResult> {
    checkSize(sql, parameters, this.#options.packetMaxBytes)
    const ms = SLOW.test(sql) ? Math.max(SLOW_MS, this.#options.timeoutMs) : this.#options.timeoutMs
    const answer = new Promise<MysqlQueryResult>((resolve, reject) => {
      this.#raw.query({ sql, values: parameters.map(toSql), ...DECODING }, (error, result) =>
        error ? reject(error as Error) : resolve(result),
      )
    })
    this.#running++
    try {
      return await withDeadline(answer, ms, () => new NoAnswer(`MySQL did not answer within ${ms} ms.`))
    } finally {
      this.#running--
    }
  }

  /** What a failed statement means: for the connection, for the transaction, and for the caller. */
  #judge(error: unknown, sql: string): unknown {
    // Refused here, before anything was sent.
    if (error instanceof InvalidInputError) return error
    if (typeof error === 'object' && error !== null && 'sql' in error) error.sql = sql.slice(0, 500)
    const isCommit = COMMIT.test(sql)
    const lost = error instanceof NoAnswer || trouble.isLost(error)
    if (lost) this.discard(error)
    else if (trouble.isSpoiled(error) || isCommit || LONE_BEGIN.test(sql)) this.#spoiled = error
    // Of several statements the first, BEGIN, may have succeeded: only ROLLBACK may follow.
    else if (BEGIN.test(sql)) this.#inTransaction = true
    if (this.#inTransaction && trouble.isRolledBack(error)) this.#doom = error

    const inDoubt = WRITES_AND_COMMIT.test(sql)
      ? !trouble.isRefusalBeforeCommit(error) && !trouble.isUnsent(error)
      : isCommit
        ? !trouble.isCertainRefusal(error) && !trouble.isUnsent(error)
        : lost && !this.#inTransaction && !HARMLESS.test(sql) && !trouble.isUnsent(error)
    const reason = error instanceof Error ? error.message : String(error)
    if (inDoubt) {
      return new UnavailableError(
        'OUTCOME_UNKNOWN',
        `MySQL may or may not have made the change (${reason}).`,
        {
          cause: error,
        },
      )
    }
    if (lost) {
      return new UnavailableError(
        'MYSQL_UNAVAILABLE',
        `MySQL is not available (${reason}); nothing was written.`,
        {
          cause: error,
        },
      )
    }
    return trouble.isMigrationMissing(error) ? trouble.toUnavailable(error) : error
  }
}

/**
 * A server hangs up on a statement beyond its max_allowed_packet, mostly before saying why: it would look like an outage
 * and be repeated for ever. The exact length is computed only when the quick bound (3 bytes per character) is too near.
 */
function checkSize(sql: string, parameters: unknown[], maxBytes: number): void {
  const units = parameters.reduce<number>(
    (sum, value) => sum + (typeof value === 'string' ? value.length : 40),
    0,
  )
  if ((sql.length + units) * 3 < maxBytes) return
  const bytes = Buffer.byteLength(format(sql, parameters as Parameters<typeof format>[1])) + PACKET_OVERHEAD
  if (bytes > maxBytes) throw trouble.tooLarge(`It would be ${bytes} bytes of at most ${maxBytes}.`)
}

/** The deadline of a statement passed. */
class NoAnswer extends Error {}

/** `destroy` says goodbye politely and waits for the other side, which a frozen server never answers. */
export function cut(raw: RawConnection): void {
  raw.destroy()
  raw.stream?.destroy?.()
}

/** Per statement, because the settings of a caller's pool are not ours to change. */
const DECODING = {
  timezone: 'Z',
  supportBigNumbers: true,
  rowsAsArray: false,
  nestTables: false,
  namedPlaceholders: false,
  typeCast: (field: { type: string; string(): string | null }, next: () => unknown) => {
    if (field.type === 'LONGLONG') return numberOrNull(field.string())
    if (field.type === 'DATETIME' || field.type === 'TIMESTAMP') return dateOrNull(field.string())
    return next()
  },
}

const numberOrNull = (text: string | null) => (text === null ? null : Number(text))
const dateOrNull = (text: string | null) => (text === null ? null : new Date(`${text.replace(' ', 'T')}Z`))

/** Times are sent as UTC text: the driver would use the time zone that the pool happens to be set to. */
const toSql = (value: unknown) =>
  value instanceof Date ? value.toISOString().replace('T', ' ').replace('Z', '') : value

/** Settles a callback; what it throws is its own, not the promise's. (`callbackify` would cost as much as a query.) */
export function hand<T>(promise: Promise<T>, callback: (error: unknown, value: T) => void): void {
  promise.then(
    (value) => process.nextTick(callback, undefined, value),
    (error: unknown) => process.nextTick(callback, error),
  )
}
