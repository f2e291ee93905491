// What watching reads: how many sessions stand, in one statement, and pages that are bounded whatever is in them.
import { sql } from 'kysely'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { connectMysql, type Mysql } from '../../src/mysql/connect.ts'
import { Inbox } from '../../src/mysql/inbox.ts'
import { readLooks, readPage } from '../../src/mysql/looks.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
import { eraseSession } from '../../src/mysql/sessions.ts'
import { submission } from '../protocol/rows.ts'
import { freshDatabase } from '../support/services.ts'

let database: { url: string; drop: () => Promise<void> }
let mysql: Mysql

beforeAll(async () => {
  database = await freshDatabase()
  mysql = connectMysql(database.url)
  await migrateUp(mysql.db)
})
beforeEach(async () => {
  for (const table of ['butler_sessions', 'butler_messages', 'butler_entries'])
    await sql`delete from ${sql.table(table)}`.execute(mysql.db)
})
afterAll(async () => {
  await mysql.close()
  await database.drop()
})

async function session(id: string, changes: Record<string, unknown> = {}): Promise<void> {
  const inbox = new Inbox(mysql, { queueMax: 10, onTrouble: () => undefined })
  await inbox.accept(
    [1, 2, 3].map((n) => submission(`${id}-${n}`, { sessionId: id })),
    60_000,
  )
  if (Object.keys(changes).length > 0)
    await mysql.db.updateTable('butler_sessions').set(changes).where('id', '=', id).execute()
}

async function entries(numbers: readonly number[], bytes = 10): Promise<void> {
  const payload = JSON.stringify('x'.repeat(bytes))
  for (const entry of numbers)
    await sql`insert into butler_entries (session_id, entry_seq, seq, epoch, attempt, type, payload, created_at)
      values ('s', ${entry}, 1, 1, 1, 'note', ${payload}, utc_timestamp(3))`.execute(mysql.db)
}

const page = async (after: number, through: number) =>
  (await readPage(mysql.db, 's', { after, through })).map(({ entrySeq }) => entrySeq)
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, at) => from + at)

test('a look says what runs or would run next, and what waits', async () => {
  await session('waiting')
  await session('running', { running_seq: 1, owner: 'P.a', starts: 2, entry_seq: 9 })
  await session('retrying', { done_seq: 1, starts: 1, retry_at: sql`utc_timestamp(3) + interval 1 hour` })
  await session('idle', { done_seq: 3 })
  await session('gone')
  await eraseSession(mysql.db, 'gone')
  const ids = ['waiting', 'running', 'retrying', 'idle', 'gone', 'nobody']
  expect(Object.fromEntries(await readLooks(mysql.db, ids))).toEqual({
    waiting: { state: 'waiting', seq: 1, attempt: 1, waiting: 3, head: 0, purged: 0 },
    running: { state: 'running', seq: 1, attempt: 2, waiting: 2, head: 9, purged: 0 },
    retrying: { state: 'retrying', seq: 2, attempt: 2, waiting: 1, head: 0, purged: 0 },
    idle: { state: 'idle', seq: 4, attempt: 1, waiting: 0, head: 0, purged: 0 },
  })
})

test('a page is a hundred entries, or a mebibyte of them, and always one', async () => {
  await entries(range(1, 150))
  expect(await page(0, 150)).toEqual(range(1, 100))
  expect(await page(100, 150)).toEqual(range(101, 150))
  expect(await page(7, 9)).toEqual([8, 9])
  await entries(range(151, 160), 400_000)
  expect(await page(150, 160)).toEqual([151, 152, 153])
  await entries([161], 3_000_000)
  expect(await page(160, 161)).toEqual([161])
})

test('a page begins behind what was removed, however much that was', async () => {
  await entries([5, 6, 7, 500, 501])
  expect(await page(0, 501)).toEqual([5, 6, 7])
  expect(await page(7, 501)).toEqual([500, 501])
  expect(await page(7, 300)).toEqual([])
  expect(await page(501, 900)).toEqual([])
})
