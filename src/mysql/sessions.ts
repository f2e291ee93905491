/** Reads of session rows that decide nothing by themselves: looks, lists, searches for work. Decisions lock the row. */
import { type Kysely, sql } from 'kysely'
import type { Message, SessionRow, TurnName } from '../protocol/session-row.ts'
import type { Database } from './schema.ts'
import { RETRY_IN, SESSION_COLUMNS, toSessionRow } from './session-columns.ts'

type Db = Kysely<Database>

/** A turn that some row says is running. */
export interface RunningTurn {
  readonly sessionId: string
  readonly turn: TurnName
  readonly stopSeq: number
}

const turnColumns = ['id', 'owner', 'running_seq', 'starts', 'stop_seq'] as const

function toRunning(row: {
  id: string
  owner: string | null
  running_seq: number | null
  starts: number
  stop_seq: number
}): RunningTurn[] {
  if (row.owner === null || row.running_seq === null) return []
  return [
    {
      sessionId: row.id,
      turn: { owner: row.owner, seq: Number(row.running_seq), starts: Number(row.starts) },
      stopSeq: Number(row.stop_seq),
    },
  ]
}

/** Every turn that runs in the name of a process: one range of an index that holds running sessions only. */
export async function readRunningBy(db: Db, processId: string): Promise<RunningTurn[]> {
  const rows = await db
    .selectFrom('butler_sessions')
    .select(turnColumns)
    .where('running_by', 'like', `${processId}.%`)
    .execute()
  return rows.flatMap(toRunning)
}

/** Owner and turn of sessions by id: who the row says serves them. */
export async function readOwners(
  db: Db,
  ids: readonly string[],
): Promise<Map<string, { owner: string | null; running: RunningTurn | undefined }>> {
  if (ids.length === 0) return new Map()
  const rows = await db.selectFrom('butler_sessions').select(turnColumns).where('id', 'in', ids).execute()
  return new Map(rows.map((row) => [row.id, { owner: row.owner, running: toRunning(row)[0] }]))
}

/** Up to where a session is stopped; undefined when there is no such session. */
export async function readStopSeq(db: Db, id: string): Promise<number | undefined> {
  const row = await db
    .selectFrom('butler_sessions')
    .select('stop_seq')
    .where('id', '=', id)
    .executeTakeFirst()
  return row && Number(row.stop_seq)
}

/** Sessions with work whose owner is a token of this process, running or not. For the burial of a dead process. */
export async function readWorkOf(
  db: Db,
  processId: string,
): Promise<{ sessionId: string; owner: string; running: TurnName | undefined }[]> {
  const rows = await db
    .selectFrom('butler_sessions')
    .select(turnColumns)
    .where('waiting_since', 'is not', null)
    .where('owner', 'like', `${processId}.%`)
    .execute()
  return rows.flatMap((row) =>
    row.owner === null ? [] : [{ sessionId: row.id, owner: row.owner, running: toRunning(row)[0]?.turn }],
  )
}

/** Where a search for work goes on. */
export interface WorkCursor {
  readonly since: string
  readonly id: string
}

export interface WaitingSession {
  readonly sessionId: string
  /** What the next message asks of whoever runs it; null when it is not to run: stopped, withdrawn, or not there. */
  readonly next: Pick<Message, 'kind' | 'version'> | null
}

/**
 * Sessions with work that nobody alive is running, longest waiting first, whose back-off is over: keyset pages.
 * A frozen or cut-off owner's sessions are among them, since only processes with a heartbeat count as alive.
 */
export async function readWaiting(
  db: Db,
  options: { alive: readonly string[]; after: WorkCursor | undefined; limit: number },
): Promise<{ sessions: WaitingSession[]; next: WorkCursor | undefined }> {
  const since = sql<string>`date_format(s.waiting_since, '%Y-%m-%d %H:%i:%s.%f')`
  let query = db
    .selectFrom('butler_sessions as s')
    .leftJoin('butler_messages as m', (join) =>
      join
        .onRef('m.session_id', '=', 's.id')
        .on('m.seq', '=', sql<number>`s.done_seq + 1`)
        .on('m.status', 'is', null)
        .onRef('m.seq', '>', 's.stop_seq'),
    )
    .select(['s.id', 'm.kind', 'm.version', since.as('since')])
    .where('s.waiting_since', 'is not', null)
    .where((eb) => eb.or([eb('s.retry_at', 'is', null), eb('s.retry_at', '<=', sql<Date>`utc_timestamp(3)`)]))
    .orderBy('s.waiting_since')
    .orderBy('s.id')
    .limit(options.limit)
  if (options.alive.length > 0) {
    query = query.where((eb) =>
      eb.or([
        eb('s.running_by', 'is', null),
        eb(sql<string>`substring_index(s.running_by, '.', 1)`, 'not in', options.alive),
      ]),
    )
  }
  const { after } = options
  if (after) {
    query = query.where((eb) =>
      eb.or([
        eb('s.waiting_since', '>', sql<Date>`${after.since}`),
        eb.and([eb('s.waiting_since', '=', sql<Date>`${after.since}`), eb('s.id', '>', after.id)]),
      ]),
    )
  }
  const rows = await query.execute()
  const last = rows.length === options.limit ? rows.at(-1) : undefined
  return {
    sessions: rows.map(({ id, kind, version }) => ({
      sessionId: id,
      next: kind === null ? null : { kind, version: Number(version) },
    })),
    next: last && { since: last.since, id: last.id },
  }
}

/** A session as people look at it: its row, and its times as ISO text. */
export interface SessionSummary extends Readonly<Omit<SessionRow, 'purgeSeq'>> {
  /** Since when it has had work; null while it has none. */
  readonly waitingSince: string | null
  /** When the next attempt may start, by the database's clock; null when nothing is put off. */
  readonly retryAt: string | null
  readonly createdAt: string
  readonly updatedAt: string
}

function selectSummary(db: Db) {
  return db
    .selectFrom('butler_sessions')
    .select(SESSION_COLUMNS)
    .select(['waiting_since', 'retry_at', 'created_at', 'updated_at'])
    .select(sql.raw<number | null>(RETRY_IN).as('retry_in'))
    .whereRef('inbox_seq', '>', 'purge_seq')
}

type SummaryRow = Awaited<ReturnType<ReturnType<typeof selectSummary>['execute']>>[number]

function toSummary(row: SummaryRow): SessionSummary {
  const { purgeSeq: _, ...numbers } = toSessionRow(row)
  return {
    ...numbers,
    waitingSince: row.waiting_since?.toISOString() ?? null,
    retryAt: row.retry_at?.toISOString() ?? null,
    createdAt: row.created_at.toISOString(),
    updatedAt: row.updated_at.toISOString(),
  }
}

export async function readSession(db: Db, id: string): Promise<SessionSummary | undefined> {
  const row = await selectSummary(db).where('id', '=', id).executeTakeFirst()
  return row && toSummary(row)
}

/** Sessions by id, a page at a time; optionally only those that run a turn, wait, or are idle. */
export async function readSessions(
  db: Db,
  options: {
    after: string
    limit: number
    state?: 'running' | 'waiting' | 'idle' | undefined
    tenants?: readonly string[] | undefined
  },
): Promise<SessionSummary[]> {
  let query = selectSummary(db).where('id', '>', options.after).orderBy('id').limit(options.limit)
  if (options.state === 'running') query = query.where('running_seq', 'is not', null)
  if (options.state === 'waiting')
    query = query.where('waiting_since', 'is not', null).where('running_seq', 'is', null)
  if (options.state === 'idle') query = query.where('waiting_since', 'is', null)
  const { tenants } = options
  // A tenant's ids lie together: ';' is what follows ':'.
  if (tenants)
    query = query.where((eb) =>
      eb.or(
        tenants.map((tenant) =>
          tenant === ''
            ? eb('id', 'not like', '%:%')
            : eb.and([eb('id', '>=', `${tenant}:`), eb('id', '<', `${tenant};`)]),
        ),
      ),
    )
  return (await query.execute()).map(toSummary)
}

/**
 * Ends a session's present life: nothing of it may run or write any more, and its rows are removed later, in small
 * bites. The row stays, because its numbers must go on if the session is written to again. Returns the owner to tell,
 * or undefined when there is no such session.
 */
export async function eraseSession(
  db: Db,
  id: string,
): Promise<{ owner: string | null; inboxSeq: number } | undefined> {
  const before = await db
    .selectFrom('butler_sessions')
    .select(['owner', 'inbox_seq'])
    .where('id', '=', id)
    .executeTakeFirst()
  const result = await db
    .updateTable('butler_sessions')
    .set({
      done_seq: sql`inbox_seq`,
      stop_seq: sql`inbox_seq`,
      purge_seq: sql`inbox_seq`,
      purge_entry_seq: sql`entry_seq`,
      running_seq: null,
      owner: null,
      epoch: sql`epoch + 1`,
      starts: 0,
      failures: 0,
      handovers: 0,
      crashes: 0,
      retry_at: null,
      waiting_since: null,
      deleted_at: sql`utc_timestamp(3)`,
      updated_at: sql`utc_timestamp(3)`,
    })
    .where('id', '=', id)
    .whereRef('inbox_seq', '>', 'purge_seq')
    .executeTakeFirst()
  if (Number(result.numUpdatedRows) === 0) return undefined
  return { owner: before?.owner ?? null, inboxSeq: Number(before?.inbox_seq ?? 0) }
}
