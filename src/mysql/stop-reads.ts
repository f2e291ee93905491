/** What a stop is answered from, after its commit: who of the waiting was taken back before, and how turns ended. */
import type { Kysely } from 'kysely'
import { ENTRY } from '../protocol/session-row.ts'
import type { TurnEndMark } from '../protocol/stop-outcome.ts'
import type { Database } from './schema.ts'

type Db = Kysely<Database>

/** Numbers of withdrawn messages behind `after`, up to `upTo`. */
export async function readWithdrawn(
  db: Db,
  sessionId: string,
  { after, upTo }: { after: number; upTo: number },
): Promise<Set<number>> {
  const rows = await db
    .selectFrom('butler_messages')
    .select('seq')
    .where('session_id', '=', sessionId)
    .where('seq', '>', after)
    .where('seq', '<=', upTo)
    .where('status', '=', 'withdrawn')
    .execute()
  return new Set(rows.map(({ seq }) => Number(seq)))
}

/** Every end of a turn of one message, oldest first. */
export async function readTurnEnds(db: Db, sessionId: string, seq: number): Promise<TurnEndMark[]> {
  const rows = await db
    .selectFrom('butler_entries')
    .select(['attempt', 'payload'])
    .where('session_id', '=', sessionId)
    .where('seq', '=', seq)
    .where('type', '=', ENTRY.turnEnded)
    .orderBy('entry_seq')
    .execute()
  return rows.map(({ attempt, payload }) => {
    const end = JSON.parse(payload) as Pick<TurnEndMark, 'outcome'> & { detached?: boolean }
    return { attempt: Number(attempt), outcome: end.outcome, detached: end.detached === true }
  })
}
