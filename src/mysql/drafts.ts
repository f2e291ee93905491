/**
 * Between session rows and drafts: locks and reads the rows of a batch, and writes what the rules changed: entries,
 * statuses and the rows' numbers, each kind in one statement for the whole batch.
 */
import { CompiledQuery, type Kysely } from 'kysely'
import type { Draft } from '../protocol/draft.ts'
import type { SessionRow } from '../protocol/session-row.ts'
import { BulkInsert, marks, NOW } from './hot-text.ts'
import type { Question } from './exchange.ts'
import type { Database } from './schema.ts'
import { RETRY_IN, SESSION_COLUMNS, type SessionColumns, toSessionRow } from './session-columns.ts'

/**
 * Locks rows in id order, so that no two batches wait for each other. `skipLocked`: leaves out what somebody else holds.
 */
export function lockRows(ids: readonly string[], skipLocked: boolean): Question<Map<string, SessionRow>> {
  return {
    query: CompiledQuery.raw(
      `${SELECT_ROWS} (${marks(ids)}) order by id for update${skipLocked ? ' skip locked' : ''}`,
      [...ids],
    ),
    answer: (rows) => new Map((rows as SessionColumns[]).map((row) => [row.id, toSessionRow(row)])),
  }
}

const SELECT_ROWS = `select ${SESSION_COLUMNS.join(', ')}, ${RETRY_IN} as retry_in from butler_sessions where id in`

const insertEntries = new BulkInsert('butler_entries', {
  session_id: '?',
  entry_seq: '?',
  seq: '?',
  epoch: '?',
  attempt: '?',
  type: '?',
  step_key: '?',
  call_id: '?',
  payload: '?',
  created_at: NOW,
})

/** An upsert of locked, existing rows is the one statement that sets different values for many of them. */
const updateSessions = new BulkInsert(
  'butler_sessions',
  {
    id: '?',
    done_seq: '?',
    stop_seq: '?',
    running_seq: '?',
    owner: '?',
    epoch: '?',
    starts: '?',
    failures: '?',
    handovers: '?',
    crashes: '?',
    retry_at: `timestampadd(microsecond, ?, ${NOW})`,
    entry_seq: '?',
    created_at: NOW,
    updated_at: NOW,
  },
  {
    done_seq: 'values(done_seq)',
    stop_seq: 'values(stop_seq)',
    running_seq: 'values(running_seq)',
    owner: 'values(owner)',
    epoch: 'values(epoch)',
    starts: 'values(starts)',
    failures: 'values(failures)',
    handovers: 'values(handovers)',
    crashes: 'values(crashes)',
    retry_at: 'values(retry_at)',
    entry_seq: 'values(entry_seq)',
    waiting_since: 'if(inbox_seq > values(done_seq), waiting_since, null)',
    updated_at: 'values(updated_at)',
  },
)

/** The drafts' rows must be locked by the transaction that writes this. */
export function writesOf(db: Kysely<Database>, drafts: readonly Draft[]): CompiledQuery[] {
  const entries = insertEntries.of(
    drafts.flatMap(({ row, entries: added }) =>
      added.map(({ entrySeq, seq, epoch, attempt, type, stepKey = null, callId = null, payload }) => {
        return [row.id, entrySeq, seq, epoch, attempt, type, stepKey, callId, payload]
      }),
    ),
  )
  const statuses = drafts.flatMap(({ row, statuses: changes }) =>
    changes.map(({ seq, status, error }) =>
      db
        .updateTable('butler_messages')
        .set({ status, error })
        .where('session_id', '=', row.id)
        .where('seq', '=', seq)
        .where('status', 'is', null)
        .compile(),
    ),
  )
  const numbers = updateSessions.of(
    drafts.map(({ row }) => [
      row.id,
      row.doneSeq,
      row.stopSeq,
      row.runningSeq,
      row.owner,
      row.epoch,
      row.starts,
      row.failures,
      row.handovers,
      row.crashes,
      row.retryInMs === null ? null : Math.round(row.retryInMs * 1000),
      row.entrySeq,
    ]),
  )
  return [...entries, ...statuses, ...numbers]
}
