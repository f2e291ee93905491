/**
 * Brings the database's tables up to date from `migrations/*.sql`, forward only. Called by the CLI and by tests.
 * Kysely's Migrator keeps the books (butler_migrations) and lets one process at a time run under a server-wide lock that
 * ends with its connection. MySQL cannot undo a CREATE TABLE, so each file is safe to run again: whoever comes after a
 * process that died in the middle simply repeats its file.
 */
import { readFile, readdir } from 'node:fs/promises'
import { type Kysely, type Migration, Migrator, sql } from 'kysely'
import { backoffMs, sleep } from '../base/timing.ts'
import type { Database } from './schema.ts'
import { isDuplicate, isInDoubt, isRetryable, toUnavailable } from './trouble.ts'

export interface MigrationStatus {
  name: string
  appliedAt: Date | null
}

/** The same relative place from `src/mysql` and from `dist/mysql`. */
const FOLDER = new URL('../../migrations/', import.meta.url)

const ATTEMPTS_MAX = 5
/** An ALTER waits for every open transaction on its table, and everybody else waits behind it: better to try again. */
const DDL_WAIT_S = 2

/**
 * Applies what is pending, oldest first, and names what this call applied. Any number of processes may call it at once;
 * those that come second wait and find nothing to do. A database that is ahead of this version is left alone.
 */
export async function migrateUp(db: Kysely<Database>): Promise<{ applied: string[] }> {
  const applied: string[] = []
  for (let attempt = 1; ; attempt++) {
    const error = await applyPending(db, applied)
    if (error === undefined) return { applied }
    const mayHelp = isRetryable(error) || isInDoubt(error) || isDuplicate(error)
    if (!mayHelp || attempt >= ATTEMPTS_MAX) throw toUnavailable(error)
    await sleep(backoffMs(attempt, 100, 2000))
  }
}

/** Every migration of this version, in order. */
export async function migrationStatus(db: Kysely<Database>): Promise<MigrationStatus[]> {
  try {
    const migrations = await migratorFor(db).getMigrations()
    return migrations.map(({ name, executedAt }) => ({ name, appliedAt: executedAt ?? null }))
  } catch (error) {
    throw toUnavailable(error)
  }
}

/** The names of what `migrateUp` would apply; empty when the database is ready for this version. */
export async function pendingMigrations(db: Kysely<Database>): Promise<string[]> {
  return (await migrationStatus(db))
    .filter((migration) => !migration.appliedAt)
    .map((migration) => migration.name)
}

async function applyPending(db: Kysely<Database>, applied: string[]): Promise<unknown> {
  try {
    if ((await pendingMigrations(db)).length === 0) return undefined
    const { error, results = [] } = await migratorFor(db).migrateToLatest()
    applied.push(
      ...results.filter(({ status }) => status === 'Success').map(({ migrationName }) => migrationName),
    )
    return error
  } catch (error) {
    return error
  }
}

function migratorFor(db: Kysely<Database>): Migrator {
  return new Migrator({
    db,
    provider: { getMigrations: readMigrations },
    migrationTableName: 'butler_migrations',
    migrationLockTableName: 'butler_migration_lock',
  })
}

async function readMigrations(): Promise<Record<string, Migration>> {
  const files = (await readdir(FOLDER)).filter((file) => file.endsWith('.sql'))
  const migrations: Record<string, Migration> = {}
  for (const file of files) {
    const statements = statementsOf(await readFile(new URL(file, FOLDER), 'utf8'))
    migrations[file.replace(/\.sql$/, '')] = {
      up: async (db) => {
        await sql`set lock_wait_timeout = ${DDL_WAIT_S}`.execute(db)
        try {
          for (const statement of statements) await sql.raw(statement).execute(db)
        } finally {
          await sql`set lock_wait_timeout = default`.execute(db).catch(() => undefined)
        }
      },
    }
  }
  return migrations
}

/** Comment lines dropped, split where a semicolon ends a line. */
function statementsOf(text: string): string[] {
  return text
    .replace(/^\s*--.*$/gm, '')
    .split(/;\s*$/m)
    .map((statement) => statement.trim())
    .filter((statement) => statement !== '')
}
