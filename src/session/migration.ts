/** Preparing a database, for deploy scripts and the CLI: opens a connection for one errand and closes it. Only wires. */
import type { Kysely } from 'kysely'
import { UnavailableError } from '../base/errors.ts'
import { connectMysql, type MysqlSource } from '../mysql/connect.ts'
import {
  type MigrationStatus,
  migrateUp,
  migrationStatus as readStatus,
  pendingMigrations,
} from '../mysql/migrate.ts'
import type { Database } from '../mysql/schema.ts'

/** A migration may have to wait for another process's, and DDL takes longer than a message. */
const MIGRATE_MS = 300_000
const LOOK_MS = 10_000

/**
 * Creates or updates the butler_ tables and names what was applied. Safe to run from any number of processes at once,
 * and again after one that died. Nothing else of the database is touched.
 * @throws UnavailableError MYSQL_UNAVAILABLE. InvalidInputError INVALID_OPTIONS: the URL cannot be meant.
 */
export async function migrate(mysql: MysqlSource): Promise<{ applied: string[] }> {
  // A server that does not answer is reported soon, not after the patience that a migration needs.
  await migrationStatus(mysql)
  return withDb(mysql, MIGRATE_MS, migrateUp)
}

/**
 * Every migration of this version, oldest first; `appliedAt` is null while it is pending.
 * @throws UnavailableError MYSQL_UNAVAILABLE. InvalidInputError INVALID_OPTIONS: the URL cannot be meant.
 */
export const migrationStatus = (mysql: MysqlSource): Promise<MigrationStatus[]> =>
  withDb(mysql, LOOK_MS, readStatus)

/** Throws UnavailableError MIGRATION_PENDING, or whatever kept the database from answering. */
export async function assertMigrated(db: Kysely<Database>): Promise<void> {
  const pending = await pendingMigrations(db)
  if (pending.length === 0) return
  throw new UnavailableError(
    'MIGRATION_PENDING',
    `The database lacks ${pending.join(', ')}: run \`npx session-butler migrate up\` first.`,
  )
}

export const isMigrationPending = (error: unknown): boolean =>
  error instanceof UnavailableError && error.code === 'MIGRATION_PENDING'

async function withDb<T>(
  source: MysqlSource,
  timeoutMs: number,
  use: (db: Kysely<Database>) => Promise<T>,
): Promise<T> {
  const mysql = connectMysql(source, { poolSize: 2, timeoutMs })
  try {
    return await use(mysql.db)
  } finally {
    await mysql.close()
  }
}
