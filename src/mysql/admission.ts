/**
 * Admits messages within one transaction:
 *
 *     raise inbox_seq (upsert: creates and locks the session rows, in id order) → read the rows
 *     → look up known keys, under the locks → decide message by message → insert → correct the rows that differ
 *
 * The upsert guesses that all will be accepted, which is nearly always true; the correction is for the rest.
 * INSERT IGNORE followed by a lock would deadlock, and a key looked up before the lock would miss a committed row.
 */
import { CompiledQuery, type Kysely, type Selectable, sql } from 'kysely'
import type { ButlerError } from '../base/errors.ts'
import {
  type Accepted,
  type Admission,
  admitAll,
  type InboxNumbers,
  keyOf,
  type KnownMessage,
  type Submission,
} from '../protocol/intake.ts'
import { MESSAGE_VERSION } from '../protocol/session-row.ts'
import type { Decide, Question } from './exchange.ts'
import { BulkInsert, marks, NOW } from './hot-text.ts'
import type { Database, MessagesTable, SessionsTable } from './schema.ts'
import { isDuplicate } from './trouble.ts'

type Db = Kysely<Database>

interface Options {
  readonly queueMax: number
  /** An earlier try may have been committed: the messages' own ids are looked up too. */
  readonly repeated: boolean
}

type Results = (Accepted | ButlerError)[]

/** What to ask and how to decide, for a transaction of our own. Per submission: its place, or why it was refused. */
export function admission(db: Db, submissions: readonly Submission[], options: Options) {
  const counts = countBySession(submissions)
  const questions = [
    raise(counts),
    numbersOf([...counts.keys()]),
    earlierOf(db, submissions, options),
  ] as const
  const decide: Decide<typeof questions, Results> = (_raised, rows, earlier) => {
    const decision = admitAll(submissions, { counts, rows, earlier, queueMax: options.queueMax })
    return { writes: writesOf(db, decision), result: decision.results }
  }
  return [questions, decide] as const
}

/**
 * The same in a caller's transaction, where a plain read may be older than the row lock, and a locking read of a key
 * that is not there would keep other sessions from inserting theirs until the caller commits. So the unique key is
 * asked by inserting; only what it refuses is read with a lock. (A refused INSERT undoes itself.) Any error is the
 * caller's to handle.
 */
export async function admitWithin(
  trx: Db,
  submissions: readonly Submission[],
  queueMax: number,
): Promise<Results> {
  const ask = async <T>({ query, answer }: Question<T>) =>
    answer(query ? (await trx.executeQuery(query)).rows : [])
  const counts = countBySession(submissions)
  await ask(raise(counts))
  const rows = await ask(numbersOf([...counts.keys()]))
  const decide = async (locked: boolean) => {
    const earlier = await ask(earlierOf(trx, submissions, { repeated: false, locked }))
    return admitAll(submissions, { counts, rows, earlier, queueMax })
  }
  let decision = await decide(false)
  const write = async () => {
    for (const query of writesOf(trx, decision)) await trx.executeQuery(query)
  }
  try {
    if (decision.results.some((result) => result instanceof Error)) decision = await decide(true)
    await write()
  } catch (error) {
    if (!isDuplicate(error)) throw error
    decision = await decide(true)
    await write()
  }
  return decision.results
}

function countBySession(submissions: readonly Submission[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const { sessionId } of submissions) counts.set(sessionId, (counts.get(sessionId) ?? 0) + 1)
  // In id order, as every batch locks its rows.
  return new Map([...counts].sort(([a], [b]) => (a < b ? -1 : 1)))
}

function writesOf(db: Db, { accepted, corrections, freed }: Admission): CompiledQuery[] {
  return [
    ...freed.map((message) => freeKey(db, message)),
    ...insertMessages.of(
      accepted.map(
        ({ submission: { sessionId, id, key, fingerprint, kind, source, payload, ...rest }, seq }) => {
          const { traceparent, retryOf } = rest
          const version = MESSAGE_VERSION
          return [sessionId, seq, id, key, fingerprint, kind, version, source, payload, traceparent, retryOf]
        },
      ),
    ),
    ...corrections.map(([id, numbers]) => correct(db, id, numbers)),
  ]
}

const raiseInbox = new BulkInsert(
  'butler_sessions',
  { id: '?', inbox_seq: '?', waiting_since: NOW, created_at: NOW, updated_at: NOW },
  {
    inbox_seq: 'inbox_seq + values(inbox_seq)',
    waiting_since: 'coalesce(waiting_since, values(waiting_since))',
    updated_at: 'values(updated_at)',
  },
)

const raise = (counts: ReadonlyMap<string, number>): Question<void> => ({
  query: raiseInbox.of([...counts])[0],
  answer: () => undefined,
})

/** A locking read: in the caller's transaction a plain one could show an old snapshot. */
function numbersOf(ids: readonly string[]): Question<Map<string, InboxNumbers>> {
  return {
    query: CompiledQuery.raw(`${SELECT_NUMBERS} (${marks(ids)}) order by id for update`, [...ids]),
    answer: (rows) =>
      new Map(
        (rows as NumbersRow[]).map((row) => [
          row.id,
          {
            inboxSeq: Number(row.inbox_seq),
            doneSeq: Number(row.done_seq),
            stopSeq: Number(row.stop_seq),
            runningSeq: row.running_seq === null ? null : Number(row.running_seq),
            purgeSeq: Number(row.purge_seq),
          },
        ]),
      ),
  }
}

const NUMBERS = ['id', 'inbox_seq', 'done_seq', 'stop_seq', 'running_seq', 'purge_seq'] as const
const SELECT_NUMBERS = `select ${NUMBERS.join(', ')} from butler_sessions where id in`
type NumbersRow = Pick<Selectable<SessionsTable>, (typeof NUMBERS)[number]>

/** Messages already known under the given keys. A key that nobody else can have (a fresh message id) is not looked up. */
function earlierOf(
  db: Db,
  submissions: readonly Submission[],
  { repeated, locked = false }: { repeated: boolean; locked?: boolean },
): Question<Map<string, KnownMessage>> {
  const keys = new Map<string, Set<string>>()
  for (const { sessionId, key, id } of submissions) {
    if (key !== id || repeated) keys.set(sessionId, (keys.get(sessionId) ?? new Set()).add(key))
  }
  return {
    query: keys.size === 0 ? undefined : selectEarlier(db, keys, locked),
    answer: (rows) =>
      new Map(
        (rows as KnownRow[]).map(({ session_id: sessionId, idempotency_key: key, seq, id, fingerprint }) => [
          keyOf(sessionId, key),
          { sessionId, seq: Number(seq), id, fingerprint },
        ]),
      ),
  }
}

const KNOWN = ['session_id', 'idempotency_key', 'seq', 'id', 'fingerprint'] as const
type KnownRow = Pick<Selectable<MessagesTable>, (typeof KNOWN)[number]>

function selectEarlier(db: Db, keys: ReadonlyMap<string, Set<string>>, locked: boolean): CompiledQuery {
  const query = db
    .selectFrom('butler_messages')
    .select(KNOWN)
    // One range per session: a list of pairs makes MariaDB scan the index.
    .where((eb) =>
      eb.or(
        [...keys].map(([id, list]) =>
          eb.and([eb('session_id', '=', id), eb('idempotency_key', 'in', [...list])]),
        ),
      ),
    )
  return (locked ? query.modifyEnd(sql`lock in share mode`) : query).compile()
}

const insertMessages = new BulkInsert('butler_messages', {
  session_id: '?',
  seq: '?',
  id: '?',
  idempotency_key: '?',
  fingerprint: '?',
  kind: '?',
  version: '?',
  source: '?',
  payload: '?',
  traceparent: '?',
  retry_of: '?',
  created_at: NOW,
})

const freeKey = (db: Db, { sessionId, seq, id }: KnownMessage): CompiledQuery =>
  db
    .updateTable('butler_messages')
    .set({ idempotency_key: id })
    .where('session_id', '=', sessionId)
    .where('seq', '=', seq)
    .compile()

const correct = (db: Db, id: string, numbers: InboxNumbers): CompiledQuery =>
  db
    .updateTable('butler_sessions')
    .set({
      inbox_seq: numbers.inboxSeq,
      stop_seq: numbers.stopSeq,
      waiting_since: numbers.inboxSeq > numbers.doneSeq ? sql`waiting_since` : null,
      retry_at: numbers.stopSeq > numbers.doneSeq ? null : sql`retry_at`,
    })
    .where('id', '=', id)
    .compile()
