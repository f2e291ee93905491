/** How far readers of sessions are. A position only moves on, whoever writes it in whatever order. */
import { sql, type Transaction } from 'kysely'
import type { Mysql } from './connect.ts'
import type { Database } from './schema.ts'

export interface CursorRow {
  readonly seen: string | null
  readonly acknowledged: string | null
  readonly updatedAt: string | null
}

/** The session's entries that are there, and the reader's cursors. */
export interface ReaderRow extends CursorRow {
  readonly head: number
  readonly purged: number
}

const NONE: CursorRow = { seen: null, acknowledged: null, updatedAt: null }

/** Undefined: no such session. */
export function readCursor({ db }: Mysql, sessionId: string, reader: string): Promise<ReaderRow | undefined> {
  return select(db as Transaction<Database>, sessionId, reader)
}

/**
 * Lets `decide` move a reader's cursors, one caller at a time; undefined writes nothing. Resolves with what holds then,
 * or undefined when there is no such session. May end in a deadlock when many begin at once: repeat it.
 */
export function moveCursor(
  mysql: Mysql,
  sessionId: string,
  reader: string,
  decide: (before: ReaderRow) => Pick<CursorRow, 'seen' | 'acknowledged'> | undefined,
): Promise<ReaderRow | undefined> {
  return mysql.transaction(async (trx) => {
    // Creates and locks the row, so that two at once decide one after the other.
    await sql`insert into butler_cursors (session_id, reader, updated_at)
      select id, ${reader}, utc_timestamp(3) from butler_sessions where id = ${sessionId} and inbox_seq > purge_seq
      on duplicate key update reader = values(reader)`.execute(trx)
    const before = await select(trx, sessionId, reader)
    if (!before) return undefined
    const after = decide(before)
    if (!after) return before
    await trx
      .updateTable('butler_cursors')
      .set({ ...after, updated_at: sql`utc_timestamp(3)` })
      .where('session_id', '=', sessionId)
      .where('reader', '=', reader)
      .execute()
    return select(trx, sessionId, reader)
  })
}

async function select(
  db: Transaction<Database>,
  sessionId: string,
  reader: string,
): Promise<ReaderRow | undefined> {
  const row = await db
    .selectFrom('butler_sessions as s')
    .leftJoin('butler_cursors as c', (join) =>
      join.onRef('c.session_id', '=', 's.id').on('c.reader', '=', reader),
    )
    .select(['s.entry_seq', 's.purge_entry_seq', 'c.seen', 'c.acknowledged', 'c.updated_at'])
    .where('s.id', '=', sessionId)
    .whereRef('s.inbox_seq', '>', 's.purge_seq')
    .executeTakeFirst()
  if (!row) return undefined
  const { seen, acknowledged, updated_at: at } = row
  const cursors = at === null ? NONE : { seen, acknowledged, updatedAt: at.toISOString() }
  return { ...cursors, head: Number(row.entry_seq), purged: Number(row.purge_entry_seq) }
}
