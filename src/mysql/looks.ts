/** What watching needs of MySQL: how sessions stand, one statement for many of them, and bounded pages of entries. */
import { type Kysely, sql } from 'kysely'
import type { Database } from './schema.ts'
import { RETRY_IN } from './session-columns.ts'
import { ENTRY_COLUMNS, type EntryRow, toEntryRow } from './transcript.ts'

type Db = Kysely<Database>

/** A session as its row has it. */
export interface Look {
  /** The last entry. */
  readonly head: number
  /** Entries up to here belong to a deleted life of the session. */
  readonly purged: number
  /** The message that runs or would run next, and which start of it that is. */
  readonly seq: number
  readonly attempt: number
  readonly state: 'idle' | 'waiting' | 'running' | 'retrying'
  /** Messages that have not started. */
  readonly waiting: number
}

/** Sessions that do not exist, or are deleted, are left out. */
export async function readLooks(db: Db, ids: readonly string[]): Promise<Map<string, Look>> {
  const rows = await db
    .selectFrom('butler_sessions')
    .select(['id', 'entry_seq', 'purge_entry_seq', 'inbox_seq', 'done_seq', 'running_seq', 'starts'])
    .select(sql.raw<number | null>(RETRY_IN).as('retry_in'))
    .where('id', 'in', ids)
    .whereRef('inbox_seq', '>', 'purge_seq')
    .execute()
  return new Map(
    rows.map((row): [string, Look] => {
      const [inbox, done, starts] = [Number(row.inbox_seq), Number(row.done_seq), Number(row.starts)]
      const running = row.running_seq !== null
      const state = running
        ? 'running'
        : inbox === done
          ? 'idle'
          : row.retry_in !== null
            ? 'retrying'
            : 'waiting'
      return [
        row.id,
        {
          head: Number(row.entry_seq),
          purged: Number(row.purge_entry_seq),
          seq: done + 1,
          attempt: running ? starts : starts + 1,
          state,
          waiting: inbox - done - (running || starts > 0 ? 1 : 0),
        },
      ]
    }),
  )
}

const PAGE_ENTRIES = 100
/** A page ends with the entry that reaches this: a reader's memory is bounded whatever the entries' size. */
const PAGE_BYTES = 2 ** 20

/**
 * Entries behind `after`, up to `through`; at most a page. Begins later than expected when entries were removed, and is
 * empty when none is left.
 */
export async function readPage(
  db: Db,
  sessionId: string,
  { after, through }: { after: number; through: number },
): Promise<EntryRow[]> {
  const within = await pageWithin(db, sessionId, after, Math.min(through, after + PAGE_ENTRIES))
  if (within.length > 0 || through <= after + PAGE_ENTRIES) return within
  const { next } = await db
    .selectFrom('butler_entries')
    .select((eb) => eb.fn.min('entry_seq').as('next'))
    .where('session_id', '=', sessionId)
    .where('entry_seq', '>', after)
    .where('entry_seq', '<=', through)
    .executeTakeFirstOrThrow()
  if (next === null) return []
  return pageWithin(db, sessionId, Number(next) - 1, Math.min(through, Number(next) + PAGE_ENTRIES - 1))
}

async function pageWithin(db: Db, sessionId: string, after: number, through: number): Promise<EntryRow[]> {
  const sizes = db
    .selectFrom('butler_entries')
    .select(['session_id', 'entry_seq'])
    .select(
      sql<number>`sum(octet_length(payload)) over (order by entry_seq) - octet_length(payload)`.as('before'),
    )
    .where('session_id', '=', sessionId)
    .where('entry_seq', '>', after)
    .where('entry_seq', '<=', through)
  const rows = await db
    .selectFrom(sizes.as('page'))
    .innerJoin('butler_entries as e', (join) =>
      join.onRef('e.session_id', '=', 'page.session_id').onRef('e.entry_seq', '=', 'page.entry_seq'),
    )
    .select(ENTRY_COLUMNS.map((column) => `e.${column}` as const))
    .where('page.before', '<', PAGE_BYTES)
    .orderBy('e.entry_seq')
    .execute()
  return rows.map(toEntryRow)
}
