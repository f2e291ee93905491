/**
 * What a MySQL or MariaDB server says about itself, for `diagnose`: versions, settings, our tables, its clock. Facts
 * only; what is good or bad is judged in `session/diagnosis.ts`. Changes nothing.
 */
import { type Kysely, sql } from 'kysely'
import { pendingMigrations } from './migrate.ts'
import type { Database } from './schema.ts'

type Db = Kysely<Database>

export interface MysqlFacts {
  readonly version: string
  readonly family: 'MySQL' | 'MariaDB'
  /** Variables as this session sees them, by lower-case name; one that the server does not know is missing. */
  readonly variables: Readonly<Record<string, string | undefined>>
  /** Names of what `migrate` would apply. */
  readonly pending: readonly string[]
  /** Columns or tables of ours whose collation or engine is not the one of the migrations. */
  readonly altered: readonly string[]
  /** The database's clock minus this host's, milliseconds; half a round trip of it is uncertain. */
  readonly clockAheadMs: number
  /** `now()` minus `utc_timestamp()` in this session, seconds: 0 when its time zone is UTC. */
  readonly offsetS: number
}

/** Rejects when the server does not answer. */
export const pingMysql = (db: Db): Promise<unknown> => sql`select 1`.execute(db)

const VARIABLES = [
  'autocommit',
  'binlog_format',
  'character_set_client',
  'innodb_flush_log_at_trx_commit',
  'log_bin',
  'max_allowed_packet',
  'read_only',
  'sql_mode',
  'transaction_isolation',
  'tx_isolation',
  'version_comment',
]

/** Rejects with the driver's error when the server cannot be reached or refuses us. */
export async function examineMysql(db: Db): Promise<MysqlFacts> {
  const { version, offset_s: offset } = await first<{ version: string; offset_s: number }>(
    db,
    sql`select version() as version, timestampdiff(second, utc_timestamp(), now()) as offset_s`,
  )
  const rows = await sql<{ Variable_name: string; Value: string }>`
    show variables where variable_name in (${sql.join(VARIABLES)})`.execute(db)
  return {
    version,
    family: /mariadb/i.test(version) ? 'MariaDB' : 'MySQL',
    variables: Object.fromEntries(rows.rows.map((row) => [row.Variable_name.toLowerCase(), row.Value])),
    pending: await pendingMigrations(db),
    altered: await readAltered(db),
    clockAheadMs: await readClockAhead(db),
    offsetS: Number(offset),
  }
}

async function readAltered(db: Db): Promise<string[]> {
  const ours = sql`table_schema = database()
    and table_name in ('butler_sessions', 'butler_messages', 'butler_entries')`
  const columns = await sql<{ name: string }>`
    select concat(table_name, '.', column_name, ' (', collation_name, ')') as name
    from information_schema.columns
    where ${ours} and collation_name not in ('ascii_bin', 'utf8mb4_bin')`.execute(db)
  const tables = await sql<{ name: string }>`
    select concat(table_name, ' (', engine, ')') as name
    from information_schema.tables
    where ${ours} and engine <> 'InnoDB'`.execute(db)
  return [...columns.rows, ...tables.rows].map(({ name }) => name)
}

async function readClockAhead(db: Db): Promise<number> {
  const before = Date.now()
  const { clock } = await first<{ clock: string }>(
    db,
    sql`select date_format(utc_timestamp(3), '%Y-%m-%dT%H:%i:%s.%fZ') as clock`,
  )
  return Math.round(Date.parse(clock) - (before + Date.now()) / 2)
}

async function first<T>(db: Db, query: ReturnType<typeof sql>): Promise<T> {
  const { rows } = await query.execute(db)
  return rows[0] as T
}
