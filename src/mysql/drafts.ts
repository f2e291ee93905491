/**
 * Between session rows and drafts: locks and reads the rows of a batch, and writes what the rules changed: entries,
 * statuses and the rows' numbers, each kind in one statement for the whole batch.
 */
import { type Kysely, sql } from 'kysely'
import type { Draft } from '../protocol/draft.ts'
import type { SessionRow } from '../protocol/session-row.ts'
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

/** The drafts' rows must be locked by this transaction. */
export async function writeDrafts(trx: Kysely<Database>, drafts: readonly Draft[]): Promise<void> {
  if (drafts.length === 0) return
  const entries = drafts.flatMap((draft) =>
    draft.entries.map((entry) => ({ sessionId: draft.row.id, ...entry })),
  )
  if (entries.length > 0) {
    await trx
      .insertInto('butler_entries')
      .values(
        entries.map((entry) => ({
          session_id: entry.sessionId,
          entry_seq: entry.entrySeq,
          seq: entry.seq,
          epoch: entry.epoch,
          attempt: entry.attempt,
          type: entry.type,
          step_key: entry.stepKey ?? null,
          call_id: entry.callId ?? null,
          payload: entry.payload,
          created_at: sql<Date>`utc_timestamp(3)`,
        })),
      )
      .execute()
  }
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
  // An upsert of locked, existing rows is the one statement that sets different values for many of them.
  const later = (ms: number) =>
    sql<Date>`timestampadd(microsecond, ${Math.round(ms * 1000)}, utc_timestamp(3))`
  await trx
    .insertInto('butler_sessions')
    .values(
      drafts.map(({ row }) => ({
        id: row.id,
        done_seq: row.doneSeq,
        stop_seq: row.stopSeq,
        running_seq: row.runningSeq,
        owner: row.owner,
        epoch: row.epoch,
        starts: row.starts,
        failures: row.failures,
        handovers: row.handovers,
        crashes: row.crashes,
        retry_at: row.retryInMs === null ? null : later(row.retryInMs),
        entry_seq: row.entrySeq,
        created_at: sql<Date>`utc_timestamp(3)`,
        updated_at: sql<Date>`utc_timestamp(3)`,
      })),
    )
    .onDuplicateKeyUpdate({
      done_seq: sql`values(done_seq)`,
      stop_seq: sql`values(stop_seq)`,
      running_seq: sql`values(running_seq)`,
      owner: sql`values(owner)`,
      epoch: sql`values(epoch)`,
      starts: sql`values(starts)`,
      failures: sql`values(failures)`,
      handovers: sql`values(handovers)`,
      crashes: sql`values(crashes)`,
      retry_at: sql`values(retry_at)`,
      entry_seq: sql`values(entry_seq)`,
      waiting_since: sql`if(inbox_seq > values(done_seq), waiting_since, null)`,
      updated_at: sql`values(updated_at)`,
    })
    .execute()
}
