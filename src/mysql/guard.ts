/**
 * Stands between Kysely and a mysql2 pool, ours or the caller's, so that nothing behind it has to think about
 * connections. Called by Kysely's driver only; made by `connect.ts`. Its duties: the wait for a connection has an end
 * (a frozen server hangs nobody); a connection is prepared (or, in a caller's pool, checked) before its first
 * statement; it is handed out only inside a `GuardedConnection`; a stray error event never ends the process.
 */
import { callbackify } from 'node:util'
import type { MysqlPool, MysqlPoolConnection, MysqlQueryResult } from 'kysely'
import { ClosedError, InvalidInputError, UnavailableError } from '../base/errors.ts'
import { withDeadline } from '../base/timing.ts'
import { cut, GuardedConnection, hand, type RawConnection } from './guarded-connection.ts'
import { toUnavailable } from './trouble.ts'

/** The part of a mysql2 pool that is used here. */
export interface RawPool {
  getConnection(callback: (error: unknown, connection: RawConnection) => void): void
}

/** What has to be known of a connection's session. */
export interface SessionFacts {
  /** The server's max_allowed_packet, bytes. */
  packetMaxBytes: number
}

export interface GuardOptions {
  pool: RawPool
  timeoutMs: number
  /** Runs on each connection before anybody else uses it. A rejection refuses the connection. */
  prepare: (run: (sql: string) => Promise<MysqlQueryResult>) => Promise<SessionFacts>
  onTrouble: (error: unknown) => void
}

export class Guard implements MysqlPool {
  readonly #options: GuardOptions
  readonly #known = new WeakMap<RawConnection, SessionFacts>()
  readonly #heard = new WeakSet<RawConnection>()
  readonly #open = new Set<RawConnection>()
  #users = 0
  #closed = false
  #onIdle: (() => void) | undefined

  constructor(options: GuardOptions) {
    this.#options = options
  }

  getConnection(callback: (error: unknown, connection: MysqlPoolConnection) => void): void {
    hand(this.#checkOut(), callback)
  }

  /** Kysely's `destroy` ends here; the pool itself is ended by whoever made it. */
  end(callback: (error: unknown) => void): void {
    callbackify(() => this.close())(callback)
  }

  /** Hands out no connection any more and resolves when those in use are back, after `timeoutMs` at the latest. */
  async close(): Promise<void> {
    this.#closed = true
    if (this.#users === 0) return
    const idle = new Promise<void>((resolve) => (this.#onIdle = resolve))
    await withDeadline(idle, this.#options.timeoutMs, () => new Error('still in use')).catch(
      this.#options.onTrouble,
    )
  }

  /** Cuts every connection that is still open, for a server that does not say goodbye. */
  sever(): void {
    for (const raw of this.#open) cut(raw)
  }

  async #checkOut(): Promise<GuardedConnection> {
    if (this.#closed) throw new ClosedError('CLOSED', 'The connection to MySQL was closed by close().')
    this.#users++
    try {
      const raw = await this.#acquire()
      const { packetMaxBytes } = this.#known.get(raw) ?? (await this.#welcome(raw))
      return new GuardedConnection(raw, { ...this.#options, packetMaxBytes }, () => this.#left())
    } catch (error) {
      this.#left()
      throw error
    }
  }

  #acquire(): Promise<RawConnection> {
    const { pool, timeoutMs, onTrouble } = this.#options
    let late = false
    const arrival = new Promise<RawConnection>((resolve, reject) => {
      pool.getConnection((error, raw) => {
        if (error) reject(toUnavailable(error))
        else if (late) raw.release()
        else resolve(raw)
      })
    })
    const tooLate = () => {
      late = true
      const error = new UnavailableError(
        'MYSQL_UNAVAILABLE',
        `No connection to MySQL within ${timeoutMs} ms: it does not answer, or all connections of the pool are in use.`,
      )
      onTrouble(error)
      return error
    }
    return withDeadline(arrival, timeoutMs, tooLate).catch((error: unknown) => {
      if (error instanceof ClosedError || error instanceof UnavailableError) throw error
      throw new UnavailableError('MYSQL_UNAVAILABLE', `No connection to MySQL: ${String(error)}`, {
        cause: error,
      })
    })
  }

  async #welcome(raw: RawConnection): Promise<SessionFacts> {
    this.#listen(raw)
    const options = { ...this.#options, packetMaxBytes: Infinity }
    const connection = new GuardedConnection(raw, options, () => undefined)
    try {
      const facts = await options.prepare((sql) => connection.run(sql, []))
      this.#known.set(raw, facts)
      return facts
    } catch (error) {
      // A session that was refused is in order for whoever set it up so.
      if (error instanceof InvalidInputError) connection.release()
      else connection.discard(error)
      throw toUnavailable(error)
    }
  }

  #listen(raw: RawConnection): void {
    if (this.#heard.has(raw)) return
    this.#heard.add(raw)
    // mysql2 listens for one 'error' event of a connection only; a second one would end the process.
    raw.on?.('error', this.#options.onTrouble)
    if (!raw.stream?.once) return
    this.#open.add(raw)
    raw.stream.once('close', () => this.#open.delete(raw))
  }

  #left(): void {
    this.#users--
    if (this.#users === 0) this.#onIdle?.()
  }
}
