/**
 * Opens the door to MySQL: from a URL (the pool is then ours: our session settings, our end) or over a pool that the
 * application already has (whose session settings and life we never touch). Everything goes through the guard.
 */
import { Kysely, MysqlDialect, type MysqlQueryResult, type Transaction } from 'kysely'
import { createPool, type PoolOptions } from 'mysql2'
import { InvalidInputError } from '../base/errors.ts'
import { withDeadline } from '../base/timing.ts'
import { parseMysqlUrl } from './address.ts'
import { Guard, type GuardOptions, type RawPool } from './guard.ts'
import { type Decide, inManyTrips, inTwoTrips, type Question, ROLLBACK } from './exchange.ts'
import type { Database } from './schema.ts'

/** A mysql2 pool, `createPool()` of `mysql2` or of `mysql2/promise`. */
export interface MysqlPoolLike {
  getConnection: (...args: never[]) => unknown
}

/** `mysql://user:password@host:port/database` (or `mariadb://`; see `parseMysqlUrl` for TLS), or a mysql2 pool. */
export type MysqlSource = string | MysqlPoolLike

export interface Mysql {
  readonly db: Kysely<Database>
  /** Whether the pool is ours: made from a URL, ended by `close()`. */
  readonly own: boolean
  /**
   * Runs `fn` in one READ COMMITTED transaction: commits when it resolves, rolls back when it rejects and passes its
   * error on. When COMMIT stayed unanswered the error is `UnavailableError` `OUTCOME_UNKNOWN` (see `isInDoubt`).
   */
  transaction<T>(fn: (trx: Transaction<Database>) => Promise<T>): Promise<T>
  /**
   * A READ COMMITTED transaction whose decisions need nothing but the answers to the questions; the same promises as
   * `transaction`, in fewer round trips.
   */
  exchange<const Q extends readonly Question<unknown>[], T>(questions: Q, decide: Decide<Q, T>): Promise<T>
  /** Waits for statements under way (up to `timeoutMs`), then ends our pool; a caller's pool stays open. */
  close(): Promise<void>
}

export interface MysqlOptions {
  /** Most connections of our own pool. Default 10. */
  poolSize?: number | undefined
  /** Deadline for getting a connection and for each statement, in milliseconds. Default 5000. */
  timeoutMs?: number | undefined
  /** Told about every lost, refused or dropped connection. For logs only: the error is also thrown where it belongs. */
  onTrouble?: ((error: unknown) => void) | undefined
}

/** Connects on first use only. Throws `InvalidInputError` `INVALID_OPTIONS` when `source` is neither URL nor pool. */
export function connectMysql(source: MysqlSource, options: MysqlOptions = {}): Mysql {
  const { poolSize = 10, timeoutMs = 5000, onTrouble = () => undefined } = options
  return typeof source === 'string'
    ? overOwnPool(source, { poolSize, timeoutMs, onTrouble })
    : overCallersPool(source, { timeoutMs, onTrouble })
}

type Settings = Pick<GuardOptions, 'timeoutMs' | 'onTrouble'>

function overOwnPool(url: string, settings: Settings & { poolSize: number }): Mysql {
  const { timeoutMs, onTrouble, poolSize } = settings
  const pool = createOwnPool({
    ...parseMysqlUrl(url),
    connectionLimit: poolSize,
    charset: 'utf8mb4_bin',
    timezone: 'Z',
    supportBigNumbers: true,
    bigNumberStrings: false,
    enableKeepAlive: true,
    keepAliveInitialDelay: 10_000,
    connectTimeout: timeoutMs,
    // For `exchange`. Every value is escaped by the driver, with or without this.
    multipleStatements: true,
    // Unused connections are ended by us before the server ends them (see `setUp`), which would look like trouble.
    maxIdle: poolSize - 1,
    idleTimeout: IDLE_MS,
    connectAttributes: { program_name: 'session-butler' },
  })
  pool.on('error', onTrouble)
  const guard = new Guard({ pool, timeoutMs, onTrouble, prepare: setUp(timeoutMs) })
  const db = kyselyOver(guard)

  const end = async () => {
    await guard.close()
    const ended = new Promise<void>((resolve) => pool.end(() => resolve()))
    await withDeadline(ended, timeoutMs, () => new Error('MySQL did not say goodbye in time.')).catch(
      onTrouble,
    )
    guard.sever()
  }
  let ending: Promise<void> | undefined
  return {
    db,
    own: true,
    transaction: (fn) => db.transaction().execute(fn),
    exchange: (questions, decide) =>
      db.connection().execute(async (connection) => {
        try {
          return await inTwoTrips(connection, questions, decide)
        } catch (error) {
          await connection.executeQuery(ROLLBACK)
          throw error
        }
      }),
    close: () => (ending ??= end()),
  }
}

function overCallersPool(source: MysqlPoolLike, settings: Settings): Mysql {
  const guard = new Guard({ ...settings, pool: callbackPool(source), prepare: checkSession })
  const db = kyselyOver(guard)
  return {
    db,
    own: false,
    // Per transaction, because the session's own isolation level belongs to the application.
    transaction: (fn) => db.transaction().setIsolationLevel('read committed').execute(fn),
    exchange: (questions, decide) =>
      db
        .transaction()
        .setIsolationLevel('read committed')
        .execute((trx) => inManyTrips(trx, questions, decide)),
    close: () => guard.close(),
  }
}

const kyselyOver = (guard: Guard) => new Kysely<Database>({ dialect: new MysqlDialect({ pool: guard }) })

type OwnPool = RawPool & {
  end(callback: () => void): void
  on(event: 'error', listener: (error: unknown) => void): unknown
}

function createOwnPool(options: PoolOptions): OwnPool {
  try {
    return createPool(options) as unknown as OwnPool
  } catch (error) {
    throw new InvalidInputError('INVALID_OPTIONS', `The MySQL URL is not usable: ${String(error)}`)
  }
}

/** A promise pool of mysql2 keeps the callback pool, which the guard speaks, in `pool`. */
function callbackPool(source: MysqlPoolLike): RawPool {
  const { pool } = Object(source) as { pool?: MysqlPoolLike }
  if (typeof pool?.getConnection === 'function') return pool as RawPool
  if (typeof Object(source).getConnection === 'function') return source as RawPool
  throw new InvalidInputError(
    'INVALID_OPTIONS',
    'MySQL must be given as a URL like mysql://user:password@localhost:3306/app or as a mysql2 pool.',
  )
}

/** Ours end after this; the server ends what is idle three times as long. */
const IDLE_MS = 8_000

/**
 * Statements sent back to back (the isolation level cannot be set in the same one on every server). The lock wait
 * ends before the statement's deadline, because its error is an answer and a deadline costs the connection. A process
 * that froze in the middle of a transaction keeps its row locks until the server ends its connection: MariaDB can do
 * so for transactions alone, MySQL for whatever is idle.
 */
function setUp(timeoutMs: number): GuardOptions['prepare'] {
  const lockWaitS = Math.max(1, Math.min(5, Math.floor(timeoutMs / 1000) - 1))
  const idleS = Math.max(10, Math.ceil((timeoutMs * 2) / 1000))
  const variables = [
    "time_zone = '+00:00'",
    "sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
    'autocommit = 1',
    'character_set_client = utf8mb4',
    'character_set_results = utf8mb4',
    'collation_connection = utf8mb4_bin',
    `innodb_lock_wait_timeout = ${lockWaitS}`,
    `wait_timeout = ${(IDLE_MS * 3) / 1000}`,
  ].join(', ')
  return async (run) => {
    const [facts] = await Promise.all([
      run('SELECT @@max_allowed_packet AS packet'),
      run('SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED'),
      run(`SET ${variables} /*M!100600 , idle_transaction_timeout = ${idleS} */`),
    ])
    return { packetMaxBytes: Number(firstOf(facts).packet) }
  }
}

/** A caller's session is not changed, so one that would corrupt what we store is refused. */
const checkSession: GuardOptions['prepare'] = async (run) => {
  const session = firstOf(
    await run(
      'SELECT @@autocommit AS auto, @@sql_mode AS mode, @@character_set_client AS charset, @@max_allowed_packet AS packet',
    ),
  )
  const problem =
    Number(session.auto) !== 1
      ? 'autocommit is off'
      : String(session.mode).includes('NO_BACKSLASH_ESCAPES')
        ? 'sql_mode contains NO_BACKSLASH_ESCAPES, which the driver does not quote for'
        : session.charset !== 'utf8mb4'
          ? `its character set is ${String(session.charset)}, not utf8mb4`
          : undefined
  if (problem) {
    throw new InvalidInputError(
      'INVALID_OPTIONS',
      `This MySQL pool cannot be used: ${problem}. Change that, or give a URL.`,
    )
  }
  return { packetMaxBytes: Number(session.packet) }
}

const firstOf = (rows: MysqlQueryResult): Record<string, unknown> =>
  Array.isArray(rows) ? (rows[0] ?? {}) : {}
