// migrations/ and migrate.ts: any number of migrators, one that dies in the middle, and what the tables promise.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { sql } from 'kysely'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { connectMysql, type Mysql } from '../../src/mysql/connect.ts'
import { migrateUp, migrationStatus, pendingMigrations } from '../../src/mysql/migrate.ts'
import { isDuplicate } from '../../src/mysql/trouble.ts'
import { until } from '../support/eventually.ts'
import { freshDatabase } from '../support/services.ts'
import { wireTo } from './wire.ts'

const ALL = [
  '0001_sessions',
  '0002_messages',
  '0003_entries',
  '0004_cursors',
  '0005_keys',
  '0006_message_version',
]

let database: Awaited<ReturnType<typeof freshDatabase>>
let mysql: Mysql

beforeEach(async () => {
  database = await freshDatabase()
  mysql = connectMysql(database.url)
})

afterEach(async () => {
  await mysql.close()
  await database.drop()
})

test('migrating applies everything in order, says so, and has nothing to do the second time', async () => {
  expect(await pendingMigrations(mysql.db)).toEqual(ALL)
  expect(await migrateUp(mysql.db)).toEqual({ applied: ALL })
  expect(await migrateUp(mysql.db)).toEqual({ applied: [] })
  expect(await pendingMigrations(mysql.db)).toEqual([])
  const status = await migrationStatus(mysql.db)
  expect(status.map(({ name }) => name)).toEqual(ALL)
  for (const { appliedAt } of status) expect(appliedAt).toBeInstanceOf(Date)
})

test('five migrators at once apply each migration once (MY-13)', async () => {
  const fleet = Array.from({ length: 5 }, () => connectMysql(database.url, { poolSize: 2 }))
  try {
    const results = await Promise.all(fleet.map(({ db }) => migrateUp(db)))
    expect(results.flatMap(({ applied }) => applied).sort()).toEqual(ALL)
    expect(await pendingMigrations(mysql.db)).toEqual([])
  } finally {
    await Promise.all(fleet.map((one) => one.close()))
  }
})

test.each([
  ['before its second file', /CREATE TABLE IF NOT EXISTS butler_messages/],
  ['between a file and its record', /insert into `butler_migrations`[^]*0002_messages/],
])('a migrator killed %s leaves work that the next one completes (MY-13)', async (_when, moment) => {
  let reached = () => {}
  const isThere = new Promise<void>((resolve) => (reached = resolve))
  const wire = await wireTo(database.url, (text) => {
    if (!moment.test(text)) return 'pass'
    reached()
    return 'swallow'
  })
  const script = fileURLToPath(new URL('./migrator.ts', import.meta.url))
  const child = spawn(process.execPath, ['--import', 'tsx', script, wire.url], { stdio: 'inherit' })
  try {
    await Promise.race([isThere, once(child, 'exit').then(() => Promise.reject(new Error('it ended early')))])
    const waiting = migrateUp(mysql.db)
    child.kill('SIGKILL')
    expect(await waiting).toEqual({ applied: ALL.slice(1) })
    expect(await pendingMigrations(mysql.db)).toEqual([])
  } finally {
    child.kill('SIGKILL')
    wire.close()
  }
})

test('a file whose change was made but not recorded is applied again without harm (MY-13)', async () => {
  await migrateUp(mysql.db)
  await sql`delete from butler_migrations`.execute(mysql.db)
  expect(await migrateUp(mysql.db)).toEqual({ applied: ALL })
})

test('a change waits for an open transaction only briefly, so that nobody waits long behind it, and comes again', async () => {
  await migrateUp(mysql.db)
  await sql`alter table butler_messages drop column version`.execute(mysql.db)
  await sql`delete from butler_migrations where name = ${ALL.at(-1)}`.execute(mysql.db)
  const others = connectMysql(database.url, { poolSize: 2, timeoutMs: 20_000 })
  try {
    let migrating: Promise<unknown> | undefined
    await others.db.transaction().execute(async (trx) => {
      await sql`select seq from butler_messages`.execute(trx)
      migrating = migrateUp(mysql.db)
      const waiting = sql<{ n: number }>`
        select count(*) as n from information_schema.processlist
        where db = database() and state like '%metadata lock%'`
      await until(async () => Number((await waiting.execute(others.db)).rows[0]?.n) > 0, { ms: 20_000 })
      // Its own turn comes only when the change has given up for now.
      await sql`select seq from butler_messages`.execute(others.db)
    })
    expect(await migrating).toEqual({ applied: [ALL.at(-1)] })
  } finally {
    await others.close()
  }
})

test('a database that is ahead of this version is left alone (SD-08)', async () => {
  await migrateUp(mysql.db)
  await sql`insert into butler_migrations values ('9999_future', '2999-01-01T00:00:00.000Z')`.execute(
    mysql.db,
  )
  expect(await migrateUp(mysql.db)).toEqual({ applied: [] })
  expect(await pendingMigrations(mysql.db)).toEqual([])
})

test('before migrating, a query says what to do', async () => {
  const query = mysql.db.selectFrom('butler_sessions').selectAll().execute()
  await expect(query).rejects.toMatchObject({
    code: 'MIGRATION_PENDING',
    message: expect.stringContaining('npx session-butler migrate up'),
  })
  // A table of the application is the application's business.
  await expect(sql`select * from orders`.execute(mysql.db)).rejects.toMatchObject({ errno: 1146 })
})

const addSession = (id: string) =>
  sql`insert into butler_sessions (id, created_at, updated_at) values (${id}, utc_timestamp(3), utc_timestamp(3))`.execute(
    mysql.db,
  )

test('running_by names the owner only while a turn runs, and is searched by its index', async () => {
  await migrateUp(mysql.db)
  for (let i = 0; i < 50; i++) await addSession(`s${i}`)
  const { db } = mysql
  await db.updateTable('butler_sessions').set({ owner: 'P1.abc' }).where('id', '=', 's1').execute()
  await db
    .updateTable('butler_sessions')
    .set({ owner: 'P1.def', running_seq: 3 })
    .where('id', '=', 's2')
    .execute()
  await db
    .updateTable('butler_sessions')
    .set({ owner: 'P2.def', running_seq: 1 })
    .where('id', '=', 's3')
    .execute()
  const mine = db
    .selectFrom('butler_sessions')
    .select(['id', 'running_by'])
    .where('running_by', 'like', 'P1.%')
  expect(await mine.execute()).toEqual([{ id: 's2', running_by: 'P1.def' }])
  const { rows } = await sql`explain ${mine}`.execute(db)
  // MariaDB answers with a table, MySQL 9 with a text.
  expect(JSON.stringify(rows)).toMatch(
    /"key":"butler_sessions_running"|range scan on \w+ using butler_sessions_running/,
  )
})

test('a step is stored once per message, entries that are no step as often as they come', async () => {
  await migrateUp(mysql.db)
  const add = (entry_seq: number, step_key: string | null) =>
    mysql.db
      .insertInto('butler_entries')
      .values({
        session_id: 's',
        entry_seq,
        seq: 1,
        epoch: 1,
        attempt: 1,
        type: 'x',
        step_key,
        payload: '{}',
        created_at: sql<Date>`utc_timestamp(3)`,
      })
      .execute()
  await add(1, null)
  await add(2, null)
  await add(3, 'pay')
  const again = await add(4, 'pay').catch((error: unknown) => error)
  expect(isDuplicate(again)).toBe(true)
})
