// connect.ts over a server whose defaults are all wrong for us: our own pool is right anyway, and an application's pool
// is used as it is.
import { createPool } from 'mysql2'
import { createPool as createPromisePool } from 'mysql2/promise'
import { sql } from 'kysely'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { connectMysql, type Mysql, type MysqlOptions, type MysqlSource } from '../../src/mysql/connect.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
import { ownMysql } from '../support/services.ts'

const HOSTILE = ['--default-time-zone=+05:00', '--sql-mode=', '--character-set-server=latin1']

let server: Awaited<ReturnType<typeof ownMysql>>
const opened: Mysql[] = []
const pools: { end(): unknown }[] = []

beforeAll(async () => {
  server = await ownMysql(HOSTILE)
  const mysql = open(server.url)
  await migrateUp(mysql.db)
})

afterEach(async () => {
  await Promise.all(opened.splice(0).map((mysql) => mysql.close()))
  await Promise.all(pools.splice(0).map((pool) => pool.end()))
})

afterAll(() => server.stop())

function open(source: MysqlSource, options?: MysqlOptions): Mysql {
  const mysql = connectMysql(source, options)
  opened.push(mysql)
  return mysql
}

function callersPool(settings: object = {}) {
  const pool = createPool({ uri: server.url, connectionLimit: 1, ...settings })
  pools.push(pool.promise())
  return pool
}

const SESSION = sql<Record<string, unknown>>`
  select @@time_zone zone, @@sql_mode mode, @@autocommit auto, @@character_set_client client,
    @@collation_connection collation, @@innodb_lock_wait_timeout lock_wait`

async function session(mysql: Mysql): Promise<unknown> {
  const isolation = sql<{
    Value: string
  }>`show variables where variable_name in ('tx_isolation', 'transaction_isolation')`
  return await mysql.db.connection().execute(async (db) => ({
    ...(await SESSION.execute(db)).rows[0],
    isolation: (await isolation.execute(db)).rows[0]?.Value,
  }))
}

const addSession = (mysql: Mysql, id: string) =>
  mysql.db
    .insertInto('butler_sessions')
    .values({ id, created_at: sql<Date>`utc_timestamp(3)`, updated_at: sql<Date>`utc_timestamp(3)` })
    .execute()

const idsLike = async (mysql: Mysql, pattern: string) =>
  (
    await mysql.db
      .selectFrom('butler_sessions')
      .select('id')
      .where('id', 'like', pattern)
      .orderBy('id')
      .execute()
  ).map(({ id }) => id)

test('every connection of our pool is set up before its first statement (MY-14)', async () => {
  const mysql = open(server.url, { poolSize: 5 })
  const sessions = await Promise.all(Array.from({ length: 10 }, () => session(mysql)))
  for (const one of sessions) {
    expect(one).toEqual({
      zone: '+00:00',
      mode: 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION',
      auto: 1,
      client: 'utf8mb4',
      collation: 'utf8mb4_bin',
      lock_wait: 4,
      isolation: 'READ-COMMITTED',
    })
  }
})

test('ids that differ in case are different sessions', async () => {
  const mysql = open(server.url)
  await addSession(mysql, 'AbC')
  await addSession(mysql, 'abc')
  expect(await mysql.db.selectFrom('butler_sessions').select('id').where('id', '=', 'ABC').execute()).toEqual(
    [],
  )
  expect(await idsLike(mysql, '%bc')).toEqual(['abc'])
})

test.each([
  ['our pool', () => server.url],
  [
    'a pool with other ideas',
    () =>
      callersPool({
        timezone: '+09:00',
        dateStrings: true,
        bigNumberStrings: true,
        supportBigNumbers: true,
        rowsAsArray: true,
        namedPlaceholders: true,
      }),
  ],
])('over %s text, numbers and times come back as they went in (MY-14)', async (name, source) => {
  const mysql = open(source())
  const payload = `{"text":"😀 \\u0000 'quoted' \\\\ \u2028 ? :name İß"}`
  const at = new Date('2024-02-29T23:59:59.987Z')
  const key = `round-trip-${name.length}`
  await mysql.transaction((trx) =>
    trx
      .insertInto('butler_messages')
      .values({
        session_id: key,
        seq: 2 ** 51,
        id: 'm-1',
        idempotency_key: key,
        fingerprint: 'f',
        kind: 'k',
        source: 'user',
        payload,
        created_at: at,
      })
      .execute(),
  )
  const columns = ['seq', 'payload', 'created_at', 'retry_of'] as const
  const row = await mysql.db
    .selectFrom('butler_messages')
    .select(columns)
    .where('session_id', '=', key)
    .executeTakeFirst()
  expect(row).toEqual({ seq: 2 ** 51, payload, created_at: at, retry_of: null })
  const { rows } = await sql<{
    age: number
  }>`select abs(timestampdiff(second, ${new Date()}, utc_timestamp(3))) as age`.execute(mysql.db)
  expect(rows[0]?.age).toBeLessThan(60)
})

test.each([
  ['callback', () => callersPool()],
  [
    'promise',
    () => {
      const pool = createPromisePool({ uri: server.url, connectionLimit: 1 })
      pools.push(pool)
      return pool
    },
  ],
])("a caller's %s pool keeps its session settings and its life", async (_form, makePool) => {
  const pool = makePool()
  const ask = async () => {
    const [rows] = await (Object(pool).promise?.() ?? pool).query(
      'select @@time_zone zone, @@sql_mode mode, @@innodb_lock_wait_timeout lock_wait, connection_id() id, @@collation_connection collation',
    )
    return rows
  }
  const before = await ask()
  const mysql = open(pool)
  expect(mysql.own).toBe(false)
  await mysql.transaction((trx) => trx.selectFrom('butler_sessions').select('id').execute())
  expect(await session(mysql)).toMatchObject({ isolation: 'REPEATABLE-READ', zone: '+05:00' })
  await mysql.close()
  await expect(mysql.db.selectFrom('butler_sessions').selectAll().execute()).rejects.toMatchObject({
    code: 'CLOSED',
  })
  expect(await ask()).toEqual(before)
})

test("a transaction over a caller's pool reads what others committed meanwhile", async () => {
  const mysql = open(callersPool())
  const other = open(server.url)
  const [before, after] = await mysql.transaction(async (trx) => {
    const read = async () =>
      (await trx.selectFrom('butler_sessions').select('id').where('id', '=', 'rc').execute()).length
    const first = await read()
    await addSession(other, 'rc')
    return [first, await read()]
  })
  expect([before, after]).toEqual([0, 1])
})

test.each([
  ['latin1', { charset: 'latin1_bin' }, undefined],
  ['NO_BACKSLASH_ESCAPES', {}, "set session sql_mode = 'NO_BACKSLASH_ESCAPES'"],
  ['autocommit', {}, 'set session autocommit = 0'],
])(
  "a caller's pool that would corrupt data (%s) is refused, its connection kept",
  async (word, settings, statement) => {
    const pool = callersPool(settings)
    if (statement) await pool.promise().query(statement)
    const mysql = open(pool)
    await expect(mysql.db.selectFrom('butler_sessions').selectAll().execute()).rejects.toMatchObject({
      code: 'INVALID_OPTIONS',
      message: expect.stringContaining(word),
    })
    expect(Object(pool)._allConnections.length).toBe(1)
  },
)

test('close waits for what is under way, refuses what comes later, and may be called twice', async () => {
  const mysql = open(server.url)
  let isDone = false
  const work = mysql.transaction(async (trx) => {
    await sql`select sleep(0.3)`.execute(trx)
    isDone = true
  })
  await sql`select 1`.execute(mysql.db)
  await Promise.all([mysql.close(), mysql.close()])
  expect(isDone).toBe(true)
  await work
  await expect(sql`select 1`.execute(mysql.db)).rejects.toMatchObject({ code: 'CLOSED' })
})

test('what is neither URL nor pool is refused', () => {
  for (const source of [undefined, null, {}, 5, { pool: {} }]) {
    expect(() => connectMysql(source as never)).toThrow(expect.objectContaining({ code: 'INVALID_OPTIONS' }))
  }
})
