/**
 * Admits messages within one transaction:
 *
 *     raise inbox_seq (upsert: creates and locks the session rows, in id order) → read the rows
 *     → look up known keys, under the locks → decide message by message → insert → correct the rows that differ
 *
 * The upsert guesses that all will be accepted, which is nearly always true; the correction is for the rest.
 * INSERT IGNORE followed by a lock would deadlock, and a key looked up before the lock would miss a committed row.
 */
import { type Kysely, sql } from 'kysely'
import type { ButlerError } from '../base/errors.ts'
import { type Accepted, admit, type Earlier, type Submission } from '../protocol/intake.ts'
import { BulkInsert, NOW } from './bulk-insert.ts'
import type { Database } from './schema.ts'
import { isDuplicate } from './trouble.ts'

type Trx = Kysely<Database>

interface SessionNumbers {
  inboxSeq: number
  doneSeq: number
  stopSeq: number
  runningSeq: number | null
  purgeSeq: number
}

/** Per submission, its place or the reason why it was refused. Any error means: roll back. */
export async function admitAll(
  trx: Trx,
  submissions: readonly Submission[],
  options: { queueMax: number; repeated: boolean; shared: boolean },
): Promise<(Accepted | ButlerError)[]> {
  const counts = new Map<string, number>()
  for (const { sessionId } of submissions) counts.set(sessionId, (counts.get(sessionId) ?? 0) + 1)
  const ids = [...counts.keys()].sort()
  await raiseInbox.execute(trx, [...counts].sort(byId))
  const rows = await readNumbers(trx, ids)
  for (const [id, count] of counts) {
    const row = rows.get(id)
    if (row) row.inboxSeq -= count
  }
  const decideBy = async (locked: boolean) =>
    decide(
      submissions,
      rows,
      await readEarlier(trx, submissions, rows, { ...options, locked }),
      options.queueMax,
    )
  let decision = await decideBy(false)
  if (!options.shared) await insertMessages(trx, decision.accepted)
  else if (decision.refused || !(await areNew(insertMessages(trx, decision.accepted)))) {
    decision = await decideBy(true)
    await insertMessages(trx, decision.accepted)
  }
  const { results, accepted, numbers } = decision
  const interrupting = new Set(submissions.filter((s) => s.whenBusy === 'interrupt').map((s) => s.sessionId))
  const admitted = new Map<string, number>()
  for (const { submission } of accepted) {
    admitted.set(submission.sessionId, (admitted.get(submission.sessionId) ?? 0) + 1)
  }
  for (const id of ids) {
    if (interrupting.has(id) || admitted.get(id) !== counts.get(id)) await correct(trx, id, numbers.get(id))
  }
  return results
}

/**
 * In a caller's transaction a plain read may be older than the row lock, and a locking read of a key that is not there
 * would keep other sessions from inserting theirs until the caller commits. So the unique key is asked by inserting;
 * only what it refuses is read with a lock. (A refused INSERT undoes itself and leaves the transaction as it was.)
 */
async function areNew(inserted: Promise<void>): Promise<boolean> {
  try {
    await inserted
    return true
  } catch (error) {
    if (isDuplicate(error)) return false
    throw error
  }
}

/** Decides message by message; `rows` stay as they are. */
function decide(
  submissions: readonly Submission[],
  rows: ReadonlyMap<string, SessionNumbers>,
  earlier: Map<string, Earlier>,
  queueMax: number,
) {
  const numbers = new Map([...rows].map(([id, row]) => [id, { ...row }]))
  const accepted: { submission: Submission; seq: number }[] = []
  const results = submissions.map((submission) => {
    const row = numbers.get(submission.sessionId)
    if (!row) throw new Error(`session row ${submission.sessionId} vanished under its lock`)
    const key = keyOf(submission.sessionId, submission.key)
    const result = admit(row, submission, earlier.get(key), queueMax)
    if (!(result instanceof Error) && !earlier.has(key)) {
      accepted.push({ submission, seq: result.seq })
      earlier.set(key, { seq: result.seq, id: submission.id, fingerprint: submission.fingerprint })
    }
    return result
  })
  return { results, accepted, numbers, refused: results.some((result) => result instanceof Error) }
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

async function readNumbers(trx: Trx, ids: readonly string[]): Promise<Map<string, SessionNumbers>> {
  // A locking read: in the caller's transaction a plain one could show an old snapshot.
  const rows = await trx
    .selectFrom('butler_sessions')
    .select(['id', 'inbox_seq', 'done_seq', 'stop_seq', 'running_seq', 'purge_seq'])
    .where('id', 'in', ids)
    .orderBy('id')
    .forUpdate()
    .execute()
  return new Map(
    rows.map((row) => [
      row.id,
      {
        inboxSeq: Number(row.inbox_seq),
        doneSeq: Number(row.done_seq),
        stopSeq: Number(row.stop_seq),
        runningSeq: row.running_seq === null ? null : Number(row.running_seq),
        purgeSeq: Number(row.purge_seq),
      },
    ]),
  )
}

/** Messages already known under the given keys. A key that nobody else can have (a fresh message id) is not looked up. */
async function readEarlier(
  trx: Trx,
  submissions: readonly Submission[],
  sessions: ReadonlyMap<string, SessionNumbers>,
  options: { repeated: boolean; locked: boolean },
): Promise<Map<string, Earlier>> {
  const keys = new Map<string, string[]>()
  for (const { sessionId, key, id } of submissions) {
    if (key !== id || options.repeated) keys.set(sessionId, [...(keys.get(sessionId) ?? []), key])
  }
  const earlier = new Map<string, Earlier>()
  if (keys.size === 0) return earlier
  let query = trx
    .selectFrom('butler_messages')
    .select(['session_id', 'idempotency_key', 'seq', 'id', 'fingerprint'])
    // One range per session: a list of pairs makes MariaDB scan the index.
    .where((eb) =>
      eb.or(
        [...keys].map(([id, list]) =>
          eb.and([eb('session_id', '=', id), eb('idempotency_key', 'in', [...new Set(list)])]),
        ),
      ),
    )
  if (options.locked) query = query.modifyEnd(sql`lock in share mode`)
  for (const row of await query.execute()) {
    // Of a deleted life of the session: the key is free again, whenever the old row is removed.
    if (Number(row.seq) <= (sessions.get(row.session_id)?.purgeSeq ?? 0)) {
      await freeKey(trx, row.session_id, row.id, Number(row.seq))
      continue
    }
    earlier.set(keyOf(row.session_id, row.idempotency_key), {
      seq: Number(row.seq),
      id: row.id,
      fingerprint: row.fingerprint,
    })
  }
  return earlier
}

function freeKey(trx: Trx, sessionId: string, messageId: string, seq: number) {
  return trx
    .updateTable('butler_messages')
    .set({ idempotency_key: messageId })
    .where('session_id', '=', sessionId)
    .where('seq', '=', seq)
    .execute()
}

const byId = ([a]: readonly [string, number], [b]: readonly [string, number]) => (a < b ? -1 : 1)

const keyOf = (sessionId: string, key: string): string => `${sessionId} ${key}`

const insertMessage = new BulkInsert('butler_messages', {
  session_id: '?',
  seq: '?',
  id: '?',
  idempotency_key: '?',
  fingerprint: '?',
  kind: '?',
  source: '?',
  payload: '?',
  traceparent: '?',
  retry_of: '?',
  created_at: NOW,
})

async function insertMessages(
  trx: Trx,
  accepted: readonly { submission: Submission; seq: number }[],
): Promise<void> {
  await insertMessage.execute(
    trx,
    accepted.map(
      ({ submission: { sessionId, id, key, fingerprint, kind, source, payload, ...rest }, seq }) => {
        return [sessionId, seq, id, key, fingerprint, kind, source, payload, rest.traceparent, rest.retryOf]
      },
    ),
  )
}

/** Fewer were accepted than the upsert had guessed, or the tombstone moved. */
async function correct(trx: Trx, id: string, numbers: SessionNumbers | undefined): Promise<void> {
  if (!numbers) return
  await trx
    .updateTable('butler_sessions')
    .set({
      inbox_seq: numbers.inboxSeq,
      stop_seq: numbers.stopSeq,
      waiting_since: numbers.inboxSeq > numbers.doneSeq ? sql`waiting_since` : null,
    })
    .where('id', '=', id)
    .execute()
}
