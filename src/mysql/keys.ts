/** API keys. Of a secret only its hash is here; whether a key is over is asked of the database's clock. */
import { type Kysely, sql } from 'kysely'
import type { Database, KeysTable } from './schema.ts'

type Db = Kysely<Database>

export interface KeyRow {
  readonly id: string
  readonly name: string
  readonly scopes: string[]
  readonly tenants: string[] | null
  readonly createdAt: string
  readonly expiresAt: string | null
  readonly revokedAt: string | null
  /** To the minute. */
  readonly usedAt: string | null
}

export async function insertKey(
  db: Db,
  key: {
    id: string
    hash: string
    name: string
    scopes: readonly string[]
    tenants: readonly string[] | null
    expiresInMs: number | null
  },
): Promise<void> {
  const { id, hash, name, scopes, tenants, expiresInMs } = key
  await db
    .insertInto('butler_keys')
    .values({
      id,
      secret_hash: hash,
      name,
      scopes: JSON.stringify(scopes),
      tenants: tenants && JSON.stringify(tenants),
      created_at: sql`utc_timestamp(3)`,
      expires_at:
        expiresInMs === null ? null : sql`utc_timestamp(3) + interval ${expiresInMs * 1000} microsecond`,
    })
    .execute()
}

const COLUMNS = [
  'id',
  'name',
  'scopes',
  'tenants',
  'created_at',
  'expires_at',
  'revoked_at',
  'used_at',
] as const

export async function readKeys(db: Db): Promise<KeyRow[]> {
  const rows = await db
    .selectFrom('butler_keys')
    .select(COLUMNS)
    .orderBy('created_at')
    .orderBy('id')
    .execute()
  return rows.map(toKey)
}

/** A key that is neither revoked nor over. */
export interface ValidKey extends KeyRow {
  /** Of its secret. */
  readonly hash: string
  /** Its use was last noted more than a minute ago, or never. */
  readonly isUnnoted: boolean
}

const UNNOTED = sql<boolean>`(used_at is null or used_at < utc_timestamp(3) - interval 1 minute)`

export async function readValidKey(db: Db, id: string): Promise<ValidKey | undefined> {
  const row = await db
    .selectFrom('butler_keys')
    .select(COLUMNS)
    .select(['secret_hash', UNNOTED.as('is_unnoted')])
    .where('id', '=', id)
    .where('revoked_at', 'is', null)
    .where((eb) => eb.or([eb('expires_at', 'is', null), eb('expires_at', '>', sql<Date>`utc_timestamp(3)`)]))
    .executeTakeFirst()
  return row && { ...toKey(row), hash: row.secret_hash, isUnnoted: Boolean(row.is_unnoted) }
}

/** False: there is none of this id. Repeating it is harmless. */
export async function revokeKey(db: Db, id: string): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('butler_keys')
    .set({ revoked_at: sql`coalesce(revoked_at, utc_timestamp(3))` })
    .where('id', '=', id)
    .executeTakeFirst()
  return numUpdatedRows > 0n
}

/** At most once a minute for each key. */
export async function noteUse(db: Db, id: string): Promise<void> {
  await db
    .updateTable('butler_keys')
    .set({ used_at: sql`utc_timestamp(3)` })
    .where('id', '=', id)
    .where(UNNOTED)
    .execute()
}

function toKey(row: Pick<KeysTable, (typeof COLUMNS)[number]>): KeyRow {
  return {
    id: row.id,
    name: row.name,
    scopes: JSON.parse(row.scopes) as string[],
    tenants: row.tenants === null ? null : (JSON.parse(row.tenants) as string[]),
    createdAt: row.created_at.toISOString(),
    expiresAt: row.expires_at?.toISOString() ?? null,
    revokedAt: row.revoked_at?.toISOString() ?? null,
    usedAt: row.used_at?.toISOString() ?? null,
  }
}
