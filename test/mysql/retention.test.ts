// Retention over a real server: old rows go in bites, and nothing goes that somebody may still need.
import { sql } from 'kysely'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { connectMysql, type Mysql } from '../../src/mysql/connect.ts'
import { Inbox } from '../../src/mysql/inbox.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
import { prune } from '../../src/mysql/retention.ts'
import { eraseSession } from '../../src/mysql/sessions.ts'
import { submission } from '../protocol/rows.ts'
import { freshDatabase } from '../support/services.ts'

const HOUR = 3_600_000

let database: { url: string; drop: () => Promise<void> }
let mysql: Mysql

beforeAll(async () => {
  database = await freshDatabase()
  mysql = connectMysql(database.url)
  await migrateUp(mysql.db)
})
beforeEach(async () => {
  for (const table of ['butler_sessions', 'butler_messages', 'butler_entries']) {
    await sql`delete from ${sql.table(table)}`.execute(mysql.db)
  }
})
afterAll(async () => {
  await mysql.close()
  await database.drop()
})

/** A session with `count` messages of two hours ago, the first `done` of them finished, each with two entries. */
async function session(id: string, count: number, done: number): Promise<void> {
  const inbox = new Inbox(mysql, { queueMax: 10_000, onTrouble: () => undefined })
  const messages = Array.from({ length: count }, (_, n) =>
    submission(`${id}-${n}`, { sessionId: id, key: `k${n}` }),
  )
  await inbox.accept(messages, 30_000)
  const rows = Array.from(
    { length: count * 2 },
    (_, n) => sql`(${id}, ${n + 1}, ${Math.floor(n / 2) + 1}, 1, 1, 'note', '1', utc_timestamp(3))`,
  )
  await sql`insert into butler_entries (session_id, entry_seq, seq, epoch, attempt, type, payload, created_at)
    values ${sql.join(rows)}`.execute(mysql.db)
  await sql`update butler_sessions set done_seq = ${done}, entry_seq = ${count * 2},
    waiting_since = if(inbox_seq > ${done}, waiting_since, null) where id = ${id}`.execute(mysql.db)
  for (const table of ['butler_messages', 'butler_entries']) {
    await sql`update ${sql.table(table)} set created_at = utc_timestamp(3) - interval 2 hour where session_id = ${id}`.execute(
      mysql.db,
    )
  }
}

async function seqs(table: 'butler_messages' | 'butler_entries', id: string): Promise<number[]> {
  const { rows } = await sql<{
    seq: number
  }>`select distinct seq from ${sql.table(table)} where session_id = ${id} order by seq`.execute(mysql.db)
  return rows.map(({ seq }) => Number(seq))
}

test('nothing is removed unless it is asked for', async () => {
  await session('a', 3, 3)
  expect(await prune(mysql.db, {})).toEqual({ messages: 0, entries: 0 })
  expect(await prune(mysql.db, { messagesMs: 3 * HOUR, entriesMs: 3 * HOUR, deletedMs: 0 })).toEqual({
    messages: 0,
    entries: 0,
  })
  expect(await seqs('butler_messages', 'a')).toEqual([1, 2, 3])
})

test('I1 · only what is finished is removed, however old the rest is', async () => {
  await session('a', 5, 2)
  await session('b', 2, 0)
  await session('c', 2, 2)
  expect(await prune(mysql.db, { messagesMs: HOUR })).toEqual({ messages: 4, entries: 0 })
  expect(await prune(mysql.db, { entriesMs: HOUR })).toEqual({ messages: 0, entries: 8 })
  for (const table of ['butler_messages', 'butler_entries'] as const) {
    expect([await seqs(table, 'a'), await seqs(table, 'b'), await seqs(table, 'c')]).toEqual([
      [3, 4, 5],
      [1, 2],
      [],
    ])
  }
  const { rows } = await sql<{ id: string }>`select id from butler_sessions`.execute(mysql.db)
  expect(rows).toHaveLength(3)
})

test('it goes on in bites until all is gone, from two processes at once, and stops when told', async () => {
  await session('a', 1300, 1300)
  const aborted = await prune(mysql.db, { messagesMs: HOUR }, AbortSignal.abort())
  expect(aborted).toEqual({ messages: 0, entries: 0 })
  const both = await Promise.all([1, 2].map(() => prune(mysql.db, { messagesMs: HOUR, entriesMs: HOUR })))
  expect(both.reduce((sum, { messages }) => sum + messages, 0)).toBe(1300)
  expect(both.reduce((sum, { entries }) => sum + entries, 0)).toBe(2600)
})

test('I6 · the keys of removed messages are free again, with the next number', async () => {
  await session('a', 2, 2)
  const inbox = new Inbox(mysql, { queueMax: 10, onTrouble: () => undefined })
  const again = () => inbox.accept([submission('new', { sessionId: 'a', key: 'k0' })], 10_000)
  expect(await again()).toMatchObject([{ seq: 1, duplicate: true }])
  await prune(mysql.db, { messagesMs: HOUR })
  expect(await again()).toMatchObject([{ seq: 3, duplicate: false }])
})

test('the rows of a deleted life go, those of the next one stay, and the session row is never removed', async () => {
  await session('a', 700, 300)
  await session('b', 2, 2)
  expect(await eraseSession(mysql.db, 'a')).toMatchObject({ inboxSeq: 700 })
  const inbox = new Inbox(mysql, { queueMax: 10, onTrouble: () => undefined })
  expect(await inbox.accept([submission('new', { sessionId: 'a' })], 10_000)).toMatchObject([{ seq: 701 }])
  expect(await prune(mysql.db, { deletedMs: HOUR })).toEqual({ messages: 0, entries: 0 })
  expect(await prune(mysql.db, { deletedMs: 0 })).toEqual({ messages: 700, entries: 1400 })
  expect([await seqs('butler_messages', 'a'), await seqs('butler_messages', 'b')]).toEqual([[701], [1, 2]])
  expect(await prune(mysql.db, { deletedMs: 0 })).toEqual({ messages: 0, entries: 0 })
})
