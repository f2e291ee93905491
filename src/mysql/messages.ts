/** Reads of accepted messages, and of the tool calls a running turn left open. */
import { CompiledQuery, type Kysely, sql } from 'kysely'
import { ENTRY, type Message, type MessageSource, type MessageStatus } from '../protocol/session-row.ts'
import type { Question } from './exchange.ts'
import { marks, NOW } from './hot-text.ts'
import type { Database } from './schema.ts'

type Db = Kysely<Database>

const COLUMNS = [
  'm.seq',
  'm.id',
  'm.kind',
  'm.version',
  'm.source',
  'm.payload',
  'm.status',
  'm.traceparent',
  'm.created_at',
] as const

interface Row {
  seq: number
  id: string
  kind: string
  version: number
  source: string
  payload: string
  status: string | null
  traceparent: string | null
  created_at: Date
}

const WAITED_US = `timestampdiff(microsecond, m.created_at, ${NOW})`
type HeadRow = Row & { session_id: string; waited_us: number }

function toMessage(row: Row): Message {
  return {
    seq: Number(row.seq),
    id: row.id,
    kind: row.kind,
    version: Number(row.version),
    source: row.source as MessageSource,
    payload: row.payload,
    status: row.status as MessageStatus | null,
    traceparent: row.traceparent,
    createdAt: row.created_at.toISOString(),
  }
}

/**
 * The message at `done_seq + 1` of each session, or at `done_seq + 2` for sessions in `after`: the one that is next when
 * the running one is done. For sessions whose rows the transaction has locked.
 */
export function headsOf(
  sessionIds: readonly string[],
  after: readonly string[],
): Question<Map<string, Message>> {
  const step = after.length === 0 ? '1' : `case when s.id in (${marks(after)}) then 2 else 1 end`
  return {
    query: asked(
      sessionIds,
      `select m.session_id, ${COLUMNS.join(', ')}, ${WAITED_US} as waited_us from butler_sessions s ` +
        `join butler_messages m on m.session_id = s.id and m.seq = s.done_seq + ${step} ` +
        `where s.id in (${marks(sessionIds)})`,
      [...after, ...sessionIds],
    ),
    answer: (rows) =>
      new Map(
        (rows as HeadRow[]).map((row) => [
          row.session_id,
          { ...toMessage(row), waitedMs: Number(row.waited_us) / 1000 },
        ]),
      ),
  }
}

/** Call ids that the running attempt of each session opened and did not close. */
export function openCallsOf(sessionIds: readonly string[]): Question<Map<string, string[]>> {
  return {
    query: asked(
      sessionIds,
      'select e.session_id, e.type, e.call_id from butler_sessions s join butler_entries e ' +
        'on e.session_id = s.id and e.seq = s.running_seq and e.attempt = s.starts ' +
        `where s.id in (${marks(sessionIds)}) and e.call_id is not null order by e.session_id, e.entry_seq`,
      sessionIds,
    ),
    answer: (rows) => {
      const open = new Map<string, Set<string>>()
      for (const { session_id: id, type, call_id: callId } of rows as Record<string, string>[]) {
        if (id === undefined || callId === undefined) continue
        const calls = open.get(id) ?? new Set()
        open.set(id, calls)
        if (type === ENTRY.toolCall) calls.add(callId)
        else calls.delete(callId)
      }
      return new Map([...open].map(([id, calls]) => [id, [...calls]]))
    },
  }
}

/** Nobody to ask about: no statement. */
const asked = (sessionIds: readonly string[], text: string, values: readonly unknown[]) =>
  sessionIds.length === 0 ? undefined : CompiledQuery.raw(text, [...values])

/** Messages without a final state, in order. */
export async function readQueue(
  db: Db,
  sessionId: string,
  options: { after: number; limit: number },
): Promise<Message[]> {
  const rows = await db
    .selectFrom('butler_sessions as s')
    .innerJoin('butler_messages as m', (join) =>
      join.onRef('m.session_id', '=', 's.id').on(sql<boolean>`m.seq > s.done_seq`),
    )
    .select(COLUMNS)
    .where('s.id', '=', sessionId)
    .where('m.session_id', '=', sessionId)
    .where('m.seq', '>', options.after)
    .where(sql<boolean>`(s.running_seq is null or m.seq <> s.running_seq)`)
    .where(sql<boolean>`m.seq > s.stop_seq`)
    .where('m.status', 'is', null)
    .orderBy('m.seq')
    .limit(options.limit)
    .execute()
  return rows.map(toMessage)
}

/** One message with whether it is final, or undefined. */
export async function readMessage(
  db: Db,
  sessionId: string,
  seq: number,
): Promise<(Message & { final: boolean; error: string | null }) | undefined> {
  const row = await db
    .selectFrom('butler_sessions as s')
    .innerJoin('butler_messages as m', 'm.session_id', 's.id')
    .select(COLUMNS)
    .select(['m.error', 's.done_seq'])
    .where('s.id', '=', sessionId)
    .where('m.session_id', '=', sessionId)
    .where('m.seq', '=', seq)
    .whereRef('m.seq', '>', 's.purge_seq')
    .executeTakeFirst()
  if (!row) return undefined
  return { ...toMessage(row), final: Number(row.seq) <= Number(row.done_seq), error: row.error }
}
