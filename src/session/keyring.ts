/**
 * The keys of the service: who may ask for what. A secret is shown once and kept as a hash. Answers are remembered for a
 * few seconds, so a revoked key is refused everywhere within {@link REMEMBER_MS}.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import { checkList, checkOptions, oneOf, whole } from '../base/arguments.ts'
import { InvalidInputError, NotFoundError } from '../base/errors.ts'
import { checkTenant, newKeyId, newSecret } from '../base/ids.ts'
import { ShortMemory } from '../base/short-memory.ts'
import { connectMysql, type MysqlSource } from '../mysql/connect.ts'
import { insertKey, type KeyRow, noteUse, readKeys, readValidKey, revokeKey } from '../mysql/keys.ts'
import { toUnavailable } from '../mysql/trouble.ts'

/** What a key is good for: `produce` sends and takes back, `watch` reads, `stop` stops, `admin` deletes. */
export type Scope = 'produce' | 'watch' | 'stop' | 'admin'
const SCOPES: readonly Scope[] = ['produce', 'watch', 'stop', 'admin']

export interface KeyOptions {
  /** For people: 1 to 200 characters. */
  readonly name: string
  readonly scopes: readonly Scope[]
  /**
   * Only sessions of these: the part of an id before its first colon, '' for ids without one. 1 to 100 of them.
   * Default: all sessions.
   */
  readonly tenants?: readonly string[] | undefined
  /** After which it is over, milliseconds up to ten years. Default: never. */
  readonly expiresInMs?: number | undefined
}

export interface VerifiedKey {
  readonly id: string
  readonly scopes: readonly Scope[]
  readonly tenants: readonly string[] | 'all'
}

export interface KeyView extends VerifiedKey {
  readonly name: string
  /** ISO times by the database's clock; null: it never happened, or never will. `usedAt` is right to the minute. */
  readonly createdAt: string
  readonly expiresAt: string | null
  readonly revokedAt: string | null
  readonly usedAt: string | null
}

/** Every call throws UnavailableError MYSQL_UNAVAILABLE while the database does not answer. */
export interface Keyring {
  /** Shows the secret this once. @throws InvalidInputError INVALID_ARGUMENT. */
  create(options: KeyOptions): Promise<{ id: string; secret: string }>
  list(): Promise<KeyView[]>
  /** Takes its id, or the whole secret. Repeating it is harmless. @throws NotFoundError KEY_NOT_FOUND. */
  revoke(id: string): Promise<void>
  /** Undefined: unknown, wrong, revoked or over. */
  verify(secret: string): Promise<VerifiedKey | undefined>
  /** Closes the connections. */
  close(): Promise<void>
}

const REMEMBER_MS = 3000
const REMEMBERED_MAX = 10_000
const YEARS_MS = 10 * 365 * 86_400_000
const TENANTS_MAX = 100
const ID = /^([A-Za-z0-9]{12})$/
const SECRET = /^bk_([A-Za-z0-9]{12})_([A-Za-z0-9]{32})$/

/** Connects on first use. Throws InvalidInputError `INVALID_OPTIONS` when the source cannot be used. */
export function openKeyring(source: MysqlSource): Keyring {
  const mysql = connectMysql(source, { poolSize: 4 })
  const { db } = mysql
  // Wrong ones are remembered too; made-up ones cost memory up to the limit, and good ones another look.
  const remembered = new ShortMemory<VerifiedKey | undefined>({ ms: REMEMBER_MS, max: REMEMBERED_MAX })
  const ask = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work
    } catch (error) {
      throw toUnavailable(error)
    }
  }
  const look = async (id: string, hash: string): Promise<VerifiedKey | undefined> => {
    const row = await ask(readValidKey(db, id))
    if (!row || !timingSafeEqual(Buffer.from(row.hash), Buffer.from(hash))) return undefined
    // For people only: whatever keeps it from being written keeps nobody out.
    if (row.isUnnoted) noteUse(db, id).catch(() => undefined)
    return toVerified(row)
  }
  return {
    create: async (options) => {
      const { name, scopes, tenants, expiresInMs } = checkKeyOptions(options)
      const id = newKeyId()
      const secret = `bk_${id}_${newSecret()}`
      const row = { id, name, scopes, hash: hashOf(secret), tenants: tenants ?? null }
      await ask(insertKey(db, { ...row, expiresInMs: expiresInMs ?? null }))
      return { id, secret }
    },
    list: async () =>
      (await ask(readKeys(db))).map((row) => {
        const { name, createdAt, expiresAt, revokedAt, usedAt } = row
        return { ...toVerified(row), name, createdAt, expiresAt, revokedAt, usedAt }
      }),
    revoke: async (named) => {
      // Whoever has found a secret in a log has it at hand; it must not end up in another one.
      const [, id = ''] = SECRET.exec(named) ?? ID.exec(named) ?? []
      if (!(await ask(revokeKey(db, id))))
        throw new NotFoundError('KEY_NOT_FOUND', 'There is no such key: pass an id that keys ls shows.')
      remembered.forget()
    },
    verify: (secret) => {
      const [, id] = SECRET.exec(secret) ?? []
      if (id === undefined) return Promise.resolve(undefined)
      const hash = hashOf(secret)
      return remembered.recall(hash, () => look(id, hash))
    },
    close: () => mysql.close(),
  }
}

const hashOf = (secret: string): string => createHash('sha256').update(secret).digest('hex')

const toVerified = ({ id, scopes, tenants }: KeyRow): VerifiedKey => {
  return { id, scopes: scopes as Scope[], tenants: tenants ?? 'all' }
}

function checkKeyOptions(options: KeyOptions): KeyOptions {
  checkOptions(options, ['name', 'scopes', 'tenants', 'expiresInMs'])
  const { name, scopes, tenants, expiresInMs } = options
  if (typeof name !== 'string' || !/^[^\p{C}]{1,200}$/u.test(name))
    throw new InvalidInputError('INVALID_ARGUMENT', 'A key has a name of 1 to 200 printable characters.')
  if (checkList('scopes', scopes).length === 0)
    throw new InvalidInputError('INVALID_ARGUMENT', `A key has at least one scope: ${SCOPES.join(', ')}.`)
  if (tenants !== undefined) {
    for (const tenant of checkList('tenants', tenants)) checkTenant(tenant)
    whole('The number of tenants', tenants.length, 1, TENANTS_MAX)
  }
  return {
    name,
    scopes: [...new Set(Array.from(scopes, (scope) => oneOf('scope', scope, SCOPES)))],
    tenants: tenants && [...new Set(tenants)],
    expiresInMs: expiresInMs === undefined ? undefined : whole('expiresInMs', expiresInMs, 1000, YEARS_MS),
  }
}
