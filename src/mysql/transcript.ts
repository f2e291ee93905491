/** Reads the transcript. Entries are dense and committed in order, so the entry number is the cursor. */
import type { Kysely } from 'kysely'
import type { Database } from './schema.ts'

type Db = Kysely<Database>

export interface EntryRow {
  readonly entrySeq: number
  readonly seq: number
  readonly epoch: number
  readonly attempt: number
  readonly type: string
  readonly callId: string | null
  readonly stepKey: string | null
  /** JSON text. */
  readonly payload: string
  readonly createdAt: string
}

/** Entries after a cursor, oldest first; undefined when there is no such session. */
export async function readEntries(
  db: Db,
  sessionId: string,
  options: { after: number; limit: number },
): Promise<{ entries: EntryRow[]; head: number } | undefined> {
  const session = await db
    .selectFrom('butler_sessions')
    .select(['entry_seq', 'purge_entry_seq'])
    .where('id', '=', sessionId)
    .whereRef('inbox_seq', '>', 'purge_seq')
    .executeTakeFirst()
  if (!session) return undefined
  const head = Number(session.entry_seq)
  const after = Math.max(options.after, Number(session.purge_entry_seq))
  if (after >= head) return { entries: [], head }
  const rows = await selectEntries(db)
    .where('session_id', '=', sessionId)
    .where('entry_seq', '>', after)
    .where('entry_seq', '<=', head)
    .orderBy('entry_seq')
    .limit(options.limit)
    .execute()
  return { entries: rows.map(toEntryRow), head }
}

/** The newest `limit` entries of the session's present life, oldest first. */
export async function readLatest(db: Db, sessionId: string, limit: number): Promise<EntryRow[]> {
  const rows = await selectEntries(db)
    .where('session_id', '=', sessionId)
    .where('entry_seq', '>', (eb) =>
      eb.selectFrom('butler_sessions').select('purge_entry_seq').where('id', '=', sessionId),
    )
    .orderBy('entry_seq', 'desc')
    .limit(limit)
    .execute()
  return rows.map(toEntryRow).reverse()
}

/** Results of the finished steps of a message, by step key, as JSON text. */
export async function readSteps(db: Db, sessionId: string, seq: number): Promise<Map<string, string>> {
  const rows = await db
    .selectFrom('butler_entries')
    .select(['step_key', 'payload'])
    .where('session_id', '=', sessionId)
    .where('seq', '=', seq)
    .where('step_key', 'is not', null)
    .execute()
  return new Map(rows.flatMap((row) => (row.step_key === null ? [] : [[row.step_key, row.payload] as const])))
}

/** When the running turn of a message started, as ISO text. */
export async function readTurnStart(db: Db, sessionId: string, seq: number): Promise<string | undefined> {
  const row = await db
    .selectFrom('butler_entries')
    .select('created_at')
    .where('session_id', '=', sessionId)
    .where('seq', '=', seq)
    .where('type', '=', 'turn_started')
    .orderBy('entry_seq', 'desc')
    .limit(1)
    .executeTakeFirst()
  return row?.created_at.toISOString()
}

export const ENTRY_COLUMNS = [
  ...(['entry_seq', 'seq', 'epoch', 'attempt', 'type'] as const),
  ...(['call_id', 'step_key', 'payload', 'created_at'] as const),
]

const selectEntries = (db: Db) => db.selectFrom('butler_entries').select(ENTRY_COLUMNS)

export function toEntryRow(row: {
  entry_seq: number
  seq: number
  epoch: number
  attempt: number
  type: string
  call_id: string | null
  step_key: string | null
  payload: string
  created_at: Date
}): EntryRow {
  return {
    entrySeq: Number(row.entry_seq),
    seq: Number(row.seq),
    epoch: Number(row.epoch),
    attempt: Number(row.attempt),
    type: row.type,
    callId: row.call_id,
    stepKey: row.step_key,
    payload: row.payload,
    createdAt: row.created_at.toISOString(),
  }
}
