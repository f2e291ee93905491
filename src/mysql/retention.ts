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
  if (ages.messagesMs !== undefined) {
    const ms = ages.messagesMs
    await go('messages', () => pruneMessages(db, ms))
  }
  if (ages.entriesMs !== undefined) {
    const ms = ages.entriesMs
    await go('entries', () => pruneEntries(db, ms))
  }
  if (ages.deletedMs !== undefined) {
    for (const { id, seq, entrySeq } of await readDeleted(db, ages.deletedMs)) {
      await go('messages', () => bite(db, 'butler_messages', id, 'seq', seq))
      await go('entries', () => bite(db, 'butler_entries', id, 'entry_seq', entrySeq))
      // Done: what marks the session as deleted from now on is that it has no message beyond `purge_seq`.
      if (!signal?.aborted) await forgetDeletion(db, id, seq)
    }
  }
  return pruned
}

/** Reads a page of keys first: a DELETE with a join and a limit exists in neither database. */
async function pruneMessages(db: Db, ms: number): Promise<number> {
  const keys = await db
    .selectFrom('butler_messages as m')
    .innerJoin('butler_sessions as s', 's.id', 'm.session_id')
    .select(['m.session_id', 'm.seq'])
    .where('m.created_at', '<', ago(ms))
    .whereRef('m.seq', '<=', 's.done_seq')
    .orderBy('m.created_at')
    .limit(BITE_ROWS)
    .execute()
  let removed = 0
  for (const [id, seqs] of bySession(keys.map((key) => [key.session_id, Number(key.seq)]))) {
    const result = await db
      .deleteFrom('butler_messages')
      .where('session_id', '=', id)
      .where('seq', 'in', seqs)
      .executeTakeFirst()
    removed += Number(result.numDeletedRows)
  }
  return removed
}

async function pruneEntries(db: Db, ms: number): Promise<number> {
  const keys = await db
    .selectFrom('butler_entries as e')
    .innerJoin('butler_sessions as s', 's.id', 'e.session_id')
    .select(['e.session_id', 'e.entry_seq'])
    .where('e.created_at', '<', ago(ms))
    .whereRef('e.seq', '<=', 's.done_seq')
    .orderBy('e.created_at')
    .limit(BITE_ROWS)
    .execute()
  let removed = 0
  for (const [id, numbers] of bySession(keys.map((key) => [key.session_id, Number(key.entry_seq)]))) {
    const result = await db
      .deleteFrom('butler_entries')
      .where('session_id', '=', id)
      .where('entry_seq', 'in', numbers)
      .executeTakeFirst()
    removed += Number(result.numDeletedRows)
  }
  return removed
}

async function readDeleted(db: Db, ms: number): Promise<{ id: string; seq: number; entrySeq: number }[]> {
  const rows = await db
    .selectFrom('butler_sessions')
    .select(['id', 'purge_seq', 'purge_entry_seq'])
    .where('deleted_at', '<', ago(ms))
    .execute()
  return rows.map((row) => ({
    id: row.id,
    seq: Number(row.purge_seq),
    entrySeq: Number(row.purge_entry_seq),
  }))
}

async function forgetDeletion(db: Db, id: string, seq: number): Promise<void> {
  await db
    .updateTable('butler_sessions')
    .set({ deleted_at: null })
    .where('id', '=', id)
    .where('purge_seq', '=', seq)
    .execute()
}

async function bite(
  db: Db,
  table: 'butler_messages' | 'butler_entries',
  id: string,
  column: 'seq' | 'entry_seq',
  through: number,
): Promise<number> {
  const result = await db
    .deleteFrom(table)
    .where('session_id', '=', id)
    .where(sql<boolean>`${sql.ref(column)} <= ${through}`)
    .limit(BITE_ROWS)
    .executeTakeFirst()
  return Number(result.numDeletedRows)
}

function bySession(keys: readonly (readonly [string, number])[]): Map<string, number[]> {
  const grouped = new Map<string, number[]>()
  for (const [id, number] of keys) grouped.set(id, [...(grouped.get(id) ?? []), number])
  return grouped
}
