/** All that the rows say of how one session stands, in one snapshot: for people who ask why it does not move. No payloads. */
import { type Kysely, sql } from 'kysely'
import { ENTRY, type MessageStatus, type TurnOutcome } from '../protocol/session-row.ts'
import type { Database } from './schema.ts'
import { readSession, type SessionSummary } from './sessions.ts'
import { readTurnStart } from './transcript.ts'

type Db = Kysely<Database>

export interface MessageMark {
  readonly seq: number
  readonly kind: string
  readonly version: number
  readonly status: MessageStatus | null
  readonly createdAt: string
}

export interface EntryMark {
  readonly entry: number
  readonly seq: number
  readonly attempt: number
  readonly epoch: number
  readonly type: string
  readonly stepKey: string | null
  readonly createdAt: string
}

/** A turn that started, or that ended; also the end of a message that never started. */
export interface TransitionMark extends EntryMark {
  readonly outcome: TurnOutcome | null
}

export interface Standing {
  readonly session: SessionSummary
  /** The database's clock; all other times are by it too. */
  readonly now: string
  /** The message at `doneSeq + 1`; undefined when there is none, or its row is missing. */
  readonly next: MessageMark | undefined
  /** The first messages that wait, oldest first. */
  readonly queue: readonly MessageMark[]
  readonly runningSince: string | undefined
  /** The last entry of the running attempt, and the last finished step of its message, of whichever attempt. */
  readonly lastEntry: EntryMark | undefined
  readonly lastStep: EntryMark | undefined
  /** Oldest first. */
  readonly transitions: readonly TransitionMark[]
}

export interface StandingLimits {
  /** Most messages of the queue. */
  readonly queue: number
  readonly transitions: number
}

/** Transitions further back are not looked for: a single turn may have written any number of entries. */
const LOOK_BACK = 5000

/** Undefined: there is no such session. */
export async function readStanding(
  db: Db,
  id: string,
  limits: StandingLimits,
): Promise<Standing | undefined> {
  const builder = db.startTransaction().setIsolationLevel('repeatable read').setAccessMode('read only')
  const trx = await builder.execute()
  try {
    return await readFrom(trx, id, limits)
  } finally {
    await trx.rollback().execute()
  }
}

async function readFrom(trx: Db, id: string, limits: StandingLimits): Promise<Standing | undefined> {
  const session = await readSession(trx, id)
  if (!session) return undefined
  const { runningSeq, starts } = session
  const marks = await readMarks(trx, session, limits.queue)
  const isRunning = runningSeq !== null
  return {
    session,
    now: await readNow(trx),
    next: marks.find(({ seq }) => seq === session.doneSeq + 1),
    queue: marks.filter((mark) => waits(mark, session)).slice(0, limits.queue),
    runningSince: isRunning ? await readTurnStart(trx, id, runningSeq) : undefined,
    lastEntry: isRunning ? await readLast(trx, id, { seq: runningSeq, attempt: starts }) : undefined,
    lastStep: isRunning ? await readLast(trx, id, { seq: runningSeq, type: ENTRY.step }) : undefined,
    transitions: await readTransitions(trx, session, limits.transitions),
  }
}

const waits = ({ seq, status }: MessageMark, { stopSeq, runningSeq }: SessionSummary): boolean =>
  status === null && seq > stopSeq && seq !== runningSeq

async function readNow(db: Db): Promise<string> {
  const { rows } = await sql<{ now: Date }>`select utc_timestamp(3) as now`.execute(db)
  const [row] = rows
  return (row?.now ?? new Date(0)).toISOString()
}

/** The next message, whatever became of it, and those that wait. */
async function readMarks(
  db: Db,
  { id, doneSeq, stopSeq }: SessionSummary,
  limit: number,
): Promise<MessageMark[]> {
  const rows = await db
    .selectFrom('butler_messages')
    .select(['seq', 'kind', 'version', 'status', 'created_at'])
    .where('session_id', '=', id)
    .where('seq', '>', doneSeq)
    .where((eb) =>
      eb.or([eb('seq', '=', doneSeq + 1), eb.and([eb('seq', '>', stopSeq), eb('status', 'is', null)])]),
    )
    .orderBy('seq')
    .limit(limit + 1)
    .execute()
  return rows.map(({ seq, kind, version, status, created_at: createdAt }) => ({
    seq: Number(seq),
    kind,
    version: Number(version),
    status: status as MessageStatus | null,
    createdAt: createdAt.toISOString(),
  }))
}

const MARK_COLUMNS = ['entry_seq', 'seq', 'attempt', 'epoch', 'type', 'step_key', 'created_at'] as const

const selectMarks = (db: Db, id: string) =>
  db
    .selectFrom('butler_entries')
    .select(MARK_COLUMNS)
    .where('session_id', '=', id)
    .orderBy('entry_seq', 'desc')

async function readLast(
  db: Db,
  id: string,
  of: { seq: number; attempt?: number; type?: string },
): Promise<EntryMark | undefined> {
  const row = await selectMarks(db, id)
    .where((eb) => eb.and(of))
    .limit(1)
    .executeTakeFirst()
  return row && toMark(row)
}

async function readTransitions(
  db: Db,
  { id, entrySeq }: SessionSummary,
  limit: number,
): Promise<TransitionMark[]> {
  const rows = await selectMarks(db, id)
    .select('payload')
    .where('entry_seq', '>', entrySeq - LOOK_BACK)
    // What a deleted life left is no longer there for readers.
    .where('entry_seq', '>', (eb) =>
      eb.selectFrom('butler_sessions').select('purge_entry_seq').where('id', '=', id),
    )
    .where('type', 'in', [ENTRY.turnStarted, ENTRY.turnEnded])
    .limit(limit)
    .execute()
  return rows.map((row) => ({ ...toMark(row), outcome: outcomeOf(row) })).reverse()
}

const outcomeOf = ({ type, payload }: { type: string; payload: string }): TurnOutcome | null =>
  type === ENTRY.turnEnded ? (JSON.parse(payload) as { outcome: TurnOutcome }).outcome : null

function toMark(row: {
  entry_seq: number
  seq: number
  attempt: number
  epoch: number
  type: string
  step_key: string | null
  created_at: Date
}): EntryMark {
  return {
    entry: Number(row.entry_seq),
    seq: Number(row.seq),
    attempt: Number(row.attempt),
    epoch: Number(row.epoch),
    type: row.type,
    stepKey: row.step_key,
    createdAt: row.created_at.toISOString(),
  }
}
