// The reads of session rows that searches for work and looks at owners are made of.
import { sql } from 'kysely'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { connectMysql, type Mysql } from '../../src/mysql/connect.ts'
import { Inbox } from '../../src/mysql/inbox.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
import {
  eraseSession,
  readOwners,
  readRunningBy,
  readSession,
  readSessions,
  readStopSeq,
  readWaiting,
  readWorkOf,
  type WorkCursor,
} from '../../src/mysql/sessions.ts'
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
  for (const table of ['butler_sessions', 'butler_messages'])
    await sql`delete from ${sql.table(table)}`.execute(mysql.db)
})
afterAll(async () => {
  await mysql.close()
  await database.drop()
})

/** A session with a message of `kind`, whose row is then changed as told. */
async function session(id: string, changes: Record<string, unknown> = {}, kind = 'message'): Promise<void> {
  const inbox = new Inbox(mysql, { queueMax: 10, onTrouble: () => undefined })
  await inbox.accept([submission(`m-${id}`, { sessionId: id, kind })], 10_000)
  if (Object.keys(changes).length > 0) {
    await mysql.db.updateTable('butler_sessions').set(changes).where('id', '=', id).execute()
  }
}
const running = (owner: string) => ({ owner, running_seq: 1, starts: 1 })
const ids = (rows: readonly { sessionId: string }[]) => rows.map(({ sessionId }) => sessionId).sort()

test('I3 · the turns of a process are those of its tokens, not of one whose name begins alike', async () => {
  await session('a', running('P1.aaaa'))
  await session('b', running('P1.bbbb'))
  await session('between turns', { owner: 'P1.cccc' })
  await session('longer', running('P12.aaaa'))
  await session('other case', running('p1.aaaa'))
  expect(await readRunningBy(mysql.db, 'P1')).toMatchObject([
    { sessionId: 'a', turn: { owner: 'P1.aaaa', seq: 1, starts: 1 }, stopSeq: 0 },
    { sessionId: 'b' },
  ])
  expect(ids(await readWorkOf(mysql.db, 'P1'))).toEqual(['a', 'b', 'between turns'])
})

test('I3 · owners are read by id, running or not; an unknown session is not there', async () => {
  await session('a', running('P1.aaaa'))
  await session('b', { owner: 'P2.bbbb' })
  await session('c')
  const owners = await readOwners(mysql.db, ['a', 'b', 'c', 'nobody'])
  expect(owners.get('a')).toMatchObject({ owner: 'P1.aaaa', running: { turn: { seq: 1 } } })
  expect(owners.get('b')).toEqual({ owner: 'P2.bbbb', running: undefined })
  expect([owners.get('c')?.owner, owners.has('nobody')]).toEqual([null, false])
  expect((await readOwners(mysql.db, [])).size).toBe(0)
})

test('I8 · a search finds work nobody alive is running, longest waiting first, after its back-off', async () => {
  const past = (s: number) => sql`utc_timestamp(3) - interval ${sql.lit(s)} second`
  await session('old', { waiting_since: past(50) })
  await session('frozen', { ...running('P9.aaaa'), waiting_since: past(40) })
  await session('alive', { ...running('P1.aaaa'), waiting_since: past(60) })
  await session('idle', { done_seq: 1, waiting_since: null })
  await session('in back-off', { retry_at: sql`utc_timestamp(3) + interval 1 hour`, waiting_since: past(70) })
  await session('after back-off', { retry_at: past(1), waiting_since: past(30) })
  await session('missing', { waiting_since: past(20) })
  await sql`delete from butler_messages where session_id = 'missing'`.execute(mysql.db)
  await session('report', { waiting_since: past(10) }, 'report')
  await session('stopped', { waiting_since: past(9), stop_seq: 1 }, 'report')
  await session('withdrawn', { waiting_since: past(8) }, 'report')
  await sql`update butler_messages set status = 'withdrawn' where session_id = 'withdrawn'`.execute(mysql.db)
  const { sessions, next } = await readWaiting(mysql.db, {
    alive: ['P1', 'P2'],
    after: undefined,
    limit: 100,
  })
  expect(sessions).toMatchObject([
    { sessionId: 'old', next: { kind: 'message', version: 1 } },
    { sessionId: 'frozen' },
    { sessionId: 'after back-off' },
    { sessionId: 'missing', next: null },
    { sessionId: 'report', next: { kind: 'report', version: 1 } },
    { sessionId: 'stopped', next: null },
    { sessionId: 'withdrawn', next: null },
  ])
  expect(next).toBeUndefined()
  const nobody = await readWaiting(mysql.db, { alive: [], after: undefined, limit: 100 })
  expect(nobody.sessions).toHaveLength(8)
})

test('I8 · pages of a search meet each session once, also those that wait since the same moment', async () => {
  const all = Array.from({ length: 23 }, (_, n) => `s-${String(n).padStart(2, '0')}`)
  for (const id of all) await session(id)
  await sql`update butler_sessions set waiting_since = utc_timestamp(3)`.execute(mysql.db)
  await sql`update butler_sessions set waiting_since = utc_timestamp(3) - interval 1 minute where id > 's-15'`.execute(
    mysql.db,
  )
  const found: string[] = []
  let after: WorkCursor | undefined
  do {
    const page = await readWaiting(mysql.db, { alive: [], after, limit: 5 })
    found.push(...page.sessions.map(({ sessionId }) => sessionId))
    after = page.next
  } while (after)
  expect(found).toEqual([...all.slice(16), ...all.slice(0, 16)])
})

test('sessions are listed by id, in pages and by state, without deleted ones', async () => {
  await session('run', running('P1.aaaa'))
  await session('wait')
  await session('done', { done_seq: 1, waiting_since: null })
  await session('gone')
  await eraseSession(mysql.db, 'gone')
  const list = async (options: { state?: 'running' | 'waiting' | 'idle'; after?: string; limit?: number }) =>
    (await readSessions(mysql.db, { after: '', limit: 10, ...options })).map(({ id }) => id)
  expect(await list({})).toEqual(['done', 'run', 'wait'])
  expect(await list({ limit: 1, after: 'done' })).toEqual(['run'])
  expect([
    await list({ state: 'running' }),
    await list({ state: 'waiting' }),
    await list({ state: 'idle' }),
  ]).toEqual([['run'], ['wait'], ['done']])
  expect(await readSession(mysql.db, 'gone')).toBeUndefined()
  expect(await readSession(mysql.db, 'RUN')).toBeUndefined()
  expect(await readSession(mysql.db, 'run')).toMatchObject({
    runningSeq: 1,
    owner: 'P1.aaaa',
    inboxSeq: 1,
    retryInMs: null,
  })
})

test('I3 · erasing a session frees it from its owner, raises its epoch, and is done once', async () => {
  await session('a', { ...running('P1.aaaa'), epoch: 4, entry_seq: 7, failures: 1, crashes: 1, handovers: 1 })
  expect(await eraseSession(mysql.db, 'a')).toEqual({ owner: 'P1.aaaa', inboxSeq: 1 })
  expect(await eraseSession(mysql.db, 'a')).toBeUndefined()
  expect(await eraseSession(mysql.db, 'nobody')).toBeUndefined()
  const row = await mysql.db
    .selectFrom('butler_sessions')
    .selectAll()
    .where('id', '=', 'a')
    .executeTakeFirstOrThrow()
  expect(row).toMatchObject({ inbox_seq: 1, done_seq: 1, stop_seq: 1, purge_seq: 1, epoch: 5 })
  expect(row).toMatchObject({
    entry_seq: 7,
    purge_entry_seq: 7,
    owner: null,
    running_seq: null,
    waiting_since: null,
  })
  expect(row).toMatchObject({ starts: 0, failures: 0, crashes: 0, handovers: 0 })
  expect(await readStopSeq(mysql.db, 'a')).toBe(1)
  expect(await readStopSeq(mysql.db, 'nobody')).toBeUndefined()
})
