/**
 * Between session rows and drafts: locks and reads the rows of a batch, and writes what the rules changed: entries,
 * statuses and the rows' numbers, each kind in one statement for the whole batch.
 */
import { type Kysely, sql } from 'kysely'
import type { Draft } from '../protocol/draft.ts'
import type { SessionRow } from '../protocol/session-row.ts'
import { BulkInsert, NOW } from './bulk-insert.ts'
import type { Database } from './schema.ts'

/**
 * Locks rows in id order, so that no two batches wait for each other. `skipLocked`: leaves out what somebody else holds.
 */
export async function lockRows(
  trx: Kysely<Database>,
  ids: readonly string[],
  skipLocked: boolean,
): Promise<Map<string, SessionRow>> {
  let query = trx
    .selectFrom('butler_sessions')
    .select([
      'id',
      'inbox_seq',
      'done_seq',
      'stop_seq',
      'running_seq',
      'owner',
      'epoch',
      'starts',
      'failures',
      'handovers',
      'crashes',
      'entry_seq',
      'purge_seq',
    ])
    .select(sql<number | null>`timestampdiff(microsecond, utc_timestamp(3), retry_at)`.as('retry_in'))
    .where('id', 'in', ids)
    .orderBy('id')
    .forUpdate()
  if (skipLocked) query = query.skipLocked()
  const rows = await query.execute()
  return new Map(
    rows.map((row) => [
      row.id,
      {
        id: row.id,
        inboxSeq: Number(row.inbox_seq),
        doneSeq: Number(row.done_seq),
        stopSeq: Number(row.stop_seq),
        runningSeq: row.running_seq === null ? null : Number(row.running_seq),
        owner: row.owner,
        epoch: Number(row.epoch),
        starts: Number(row.starts),
        failures: Number(row.failures),
        handovers: Number(row.handovers),
        crashes: Number(row.crashes),
        retryInMs: row.retry_in === null ? null : Math.ceil(Number(row.retry_in) / 1000),
        entrySeq: Number(row.entry_seq),
        purgeSeq: Number(row.purge_seq),
      },
    ]),
  )
}

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

/** The drafts' rows must be locked by this transaction. */
export async function writeDrafts(trx: Kysely<Database>, drafts: readonly Draft[]): Promise<void> {
  await insertEntries.execute(
    trx,
    drafts.flatMap(({ row, entries }) =>
      entries.map(({ entrySeq, seq, epoch, attempt, type, stepKey = null, callId = null, payload }) => {
        return [row.id, entrySeq, seq, epoch, attempt, type, stepKey, callId, payload]
      }),
    ),
  )
  for (const { row, statuses } of drafts) {
    for (const { seq, status, error } of statuses) {
      await trx
        .updateTable('butler_messages')
        .set({ status, error })
        .where('session_id', '=', row.id)
        .where('seq', '=', seq)
        .where('status', 'is', null)
        .execute()
    }
  }
  await updateSessions.execute(
    trx,
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
}
