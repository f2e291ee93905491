/** When messages were accepted and when their last turn ended, both by the database's clock. For audits; decides nothing. */
import { type Kysely, sql } from 'kysely'
import type { Database } from './schema.ts'

export interface MessageTimes {
  readonly seq: number
  /** ISO time. */
  readonly acceptedAt: string
  /** ISO time of the newest `turn_ended` entry; null when no turn has ended. */
  readonly endedAt: string | null
}

/** Messages after a seq, oldest first. */
export async function readMessageTimes(
  db: Kysely<Database>,
  sessionId: string,
  options: { after: number; limit: number },
): Promise<MessageTimes[]> {
  const rows = await db
    .selectFrom('butler_messages as m')
    .leftJoin('butler_entries as e', (join) =>
      join
        .onRef('e.session_id', '=', 'm.session_id')
        .onRef('e.seq', '=', 'm.seq')
        .on('e.type', '=', 'turn_ended'),
    )
    .select(['m.seq', 'm.created_at', sql<Date | null>`max(e.created_at)`.as('ended_at')])
    .where('m.session_id', '=', sessionId)
    .where('m.seq', '>', options.after)
    .groupBy(['m.seq', 'm.created_at'])
    .orderBy('m.seq')
    .limit(options.limit)
    .execute()
  return rows.map((row) => ({
    seq: Number(row.seq),
    acceptedAt: row.created_at.toISOString(),
    endedAt: row.ended_at?.toISOString() ?? null,
  }))
}
