/**
 * Removes what nobody needs any more, in small bites, so that no statement holds locks for long. Never removes a
 * message without a final state, and never a session row: its numbers must go on, or a cursor would lie.
 */
import { type Kysely, sql } from 'kysely'
import type { Database } from './schema.ts'

type Db = Kysely<Database>

/** Ages in milliseconds; what is undefined is kept for ever. */
export interface RetentionAges {
  /** Finished messages accepted longer ago. Their idempotency keys go with them. */
  readonly messagesMs?: number | undefined
  /** Transcript entries of finished messages, written longer ago. */
  readonly entriesMs?: number | undefined
  /** Rows of sessions that were deleted longer ago. */
  readonly deletedMs?: number | undefined
}

export interface Pruned {
  messages: number
  entries: number
}

const BITE_ROWS = 500

/** The moment `ms` milliseconds before now, by the database's clock. */
const ago = (ms: number) => sql<Date>`timestampadd(microsecond, ${-Math.round(ms * 1000)}, utc_timestamp(3))`

/** Prunes until nothing is left to prune or `signal` aborts; resolves with what was removed. */
export async function prune(db: Db, ages: RetentionAges, signal?: AbortSignal): Promise<Pruned> {
  const pruned: Pruned = { messages: 0, entries: 0 }
  const go = async (what: keyof Pruned, bite: () => Promise<number>) => {
    for (let removed = BITE_ROWS; removed > 0 && !signal?.aborted;) pruned[what] += removed = await bite()
  }
  const { messagesMs, entriesMs, deletedMs } = ages
  if (messagesMs !== undefined) await go('messages', () => pruneOld(db, 'messages', messagesMs))
  if (entriesMs !== undefined) await go('entries', () => pruneOld(db, 'entries', entriesMs))
  if (deletedMs !== undefined) {
    for (const { id, messages, entries } of await readDeleted(db, deletedMs)) {
      await go('messages', () => pruneDeleted(db, 'messages', id, messages))
      await go('entries', () => pruneDeleted(db, 'entries', id, entries))
      for (let removed = BITE_ROWS; removed === BITE_ROWS && !signal?.aborted;)
        removed = await pruneCursors(db, id, entries)
      // Done: what marks the session as deleted from now on is that it has no message beyond `purge_seq`.
      if (!signal?.aborted) await forgetDeletion(db, id, messages)
    }
  }
  return pruned
}

/** What is pruned, and what numbers its rows within a session. */
const TABLES = {
  messages: { table: 'butler_messages', number: 'seq' },
  entries: { table: 'butler_entries', number: 'entry_seq' },
} as const

/** Reads a page of keys first: a DELETE with a join and a limit exists in neither database. */
async function pruneOld(db: Db, what: keyof Pruned, ms: number): Promise<number> {
  const { table, number } = TABLES[what]
  const { rows } = await sql<{ id: string; n: number }>`
    select t.session_id as id, ${sql.ref(`t.${number}`)} as n
    from ${sql.table(table)} t join butler_sessions s on s.id = t.session_id
    where t.created_at < ${ago(ms)} and t.seq <= s.done_seq
    order by t.created_at limit ${BITE_ROWS}`.execute(db)
  let removed = 0
  for (const [id, numbers] of bySession(rows.map((row) => [row.id, Number(row.n)]))) {
    const result = await db
      .deleteFrom(table)
      .where('session_id', '=', id)
      .where(sql<number>`${sql.ref(number)}`, 'in', numbers)
      .executeTakeFirst()
    removed += Number(result.numDeletedRows)
  }
  return removed
}

/** Deleted sessions, with the last number of each kind of row that goes. */
async function readDeleted(db: Db, ms: number): Promise<({ id: string } & Pruned)[]> {
  const rows = await db
    .selectFrom('butler_sessions')
    .select(['id', 'purge_seq', 'purge_entry_seq'])
    .where('deleted_at', '<', ago(ms))
    .execute()
  return rows.map((row) => ({
    id: row.id,
    messages: Number(row.purge_seq),
    entries: Number(row.purge_entry_seq),
  }))
}

async function pruneDeleted(db: Db, what: keyof Pruned, id: string, through: number): Promise<number> {
  const { table, number } = TABLES[what]
  const result = await db
    .deleteFrom(table)
    .where('session_id', '=', id)
    .where(sql<boolean>`${sql.ref(number)} <= ${through}`)
    .limit(BITE_ROWS)
    .executeTakeFirst()
  return Number(result.numDeletedRows)
}

/**
 * Positions within the entries that went. A reader that has gone on in the next life keeps its own: it cannot say it
 * again. What was last written when proves nothing, since both lives may be older than what is kept.
 */
async function pruneCursors(db: Db, id: string, through: number): Promise<number> {
  const result = await sql`delete from butler_cursors where session_id = ${id}
    and (seen is null or cast(substring_index(seen, '.', 1) as unsigned) <= ${through})
    limit ${BITE_ROWS}`.execute(db)
  return Number(result.numAffectedRows)
}

async function forgetDeletion(db: Db, id: string, seq: number): Promise<void> {
  await db
    .updateTable('butler_sessions')
    .set({ deleted_at: null })
    .where('id', '=', id)
    .where('purge_seq', '=', seq)
    .execute()
}

function bySession(keys: readonly (readonly [string, number])[]): Map<string, number[]> {
  const grouped = new Map<string, number[]>()
  for (const [id, number] of keys) grouped.set(id, [...(grouped.get(id) ?? []), number])
  return grouped
}
