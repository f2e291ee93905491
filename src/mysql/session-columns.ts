/** The numbers of a session row: as columns, and as the protocol has them. */
import type { Selectable } from 'kysely'
import type { SessionRow } from '../protocol/session-row.ts'
import type { SessionsTable } from './schema.ts'

export const SESSION_COLUMNS = [
  ...(['id', 'inbox_seq', 'done_seq', 'stop_seq', 'running_seq', 'owner', 'epoch'] as const),
  ...(['starts', 'failures', 'handovers', 'crashes', 'entry_seq', 'purge_seq'] as const),
]

/** What is left of a back-off, in microseconds: only the database's clock counts. To be read as `retry_in`. */
export const RETRY_IN = 'timestampdiff(microsecond, utc_timestamp(3), retry_at)'

export type SessionColumns = Pick<Selectable<SessionsTable>, (typeof SESSION_COLUMNS)[number]> & {
  retry_in: number | null
}

export function toSessionRow(row: SessionColumns): SessionRow {
  return {
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
  }
}
