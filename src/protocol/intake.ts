/**
 * What a producer may do to a session: enqueue, stop, withdraw. Each rule decides on a locked row; a batch is
 * decided message by message with the same function as a single call.
 */
import { RefusedError } from '../base/errors.ts'
import type { Draft } from './draft.ts'
import type { MessageSource, SessionRow } from './session-row.ts'
import { passOver } from './turn-rules.ts'

/** What to do when a turn runs or messages wait: queue up behind them, stop them, or refuse. */
export type WhenBusy = 'enqueue' | 'interrupt' | 'reject'

/** A checked message on its way in. */
export interface Submission {
  readonly sessionId: string
  readonly id: string
  /** The caller's idempotency key, else the message id. */
  readonly key: string
  /** Digest of kind, source and payload: the same key with other content is a mistake. */
  readonly fingerprint: string
  readonly kind: string
  readonly source: MessageSource
  readonly payload: string
  readonly whenBusy: WhenBusy
  readonly traceparent: string | null
  readonly retryOf: number | null
}

/** An earlier message under the same key. */
export interface Earlier {
  readonly seq: number
  readonly id: string
  readonly fingerprint: string
}

export interface Accepted {
  /** The message's place in its session: 1, 2, 3, … */
  readonly seq: number
  readonly id: string
  /** True when an earlier call with this idempotency key had already been accepted; `seq` and `id` are that one's. */
  readonly duplicate: boolean
  /** How many messages before it had no final state at this moment; 0: it is next, runs or is over. */
  readonly position: number
}

/** Decides one message; raises `inboxSeq` (and the tombstone, for an interrupt) when it is accepted. */
export function admit(
  row: Pick<SessionRow, 'inboxSeq' | 'doneSeq' | 'stopSeq' | 'runningSeq'>,
  submission: Submission,
  earlier: Earlier | undefined,
  queueMax: number,
): Accepted | RefusedError {
  const place = (seq: number) => ({ seq, position: Math.max(0, seq - 1 - row.doneSeq) })
  if (earlier) {
    if (earlier.fingerprint !== submission.fingerprint) {
      return new RefusedError(
        'IDEMPOTENCY_CONFLICT',
        `Idempotency key of message ${earlier.seq} was used with other content: choose a new key for a new message.`,
      )
    }
    // Our own message id means that this is the repeat of a call whose answer was lost, not a second call.
    return { ...place(earlier.seq), id: earlier.id, duplicate: earlier.id !== submission.id }
  }
  const waiting = row.inboxSeq - Math.max(row.doneSeq, row.stopSeq, row.runningSeq ?? 0)
  if (submission.whenBusy === 'reject' && (row.runningSeq !== null || waiting > 0)) {
    return new RefusedError(
      'SESSION_BUSY',
      'The session is busy: wait for it, or send with whenBusy "enqueue".',
    )
  }
  if (submission.whenBusy !== 'interrupt' && waiting >= queueMax) {
    return new RefusedError(
      'QUEUE_FULL',
      `The session has ${waiting} waiting messages, its limit: send again when some are done.`,
    )
  }
  row.inboxSeq += 1
  if (submission.whenBusy === 'interrupt') row.stopSeq = row.inboxSeq - 1
  return { ...place(row.inboxSeq), id: submission.id, duplicate: false }
}

/** The numbers of a session row that an enqueue looks at. */
export interface InboxNumbers extends Pick<SessionRow, 'inboxSeq' | 'doneSeq' | 'stopSeq' | 'runningSeq'> {
  readonly purgeSeq: number
}

/** A message that is known under one of the batch's keys. */
export interface KnownMessage extends Earlier {
  readonly sessionId: string
}

export const keyOf = (sessionId: string, key: string): string => `${sessionId} ${key}`

/** What became of a batch of messages, and what is to be written for it. */
export interface Admission {
  readonly results: (Accepted | RefusedError)[]
  readonly accepted: readonly { submission: Submission; seq: number }[]
  /** Sessions of which the upsert had guessed wrong, with their true numbers. */
  readonly corrections: readonly (readonly [id: string, numbers: InboxNumbers])[]
  /** Messages of a deleted life of their session: their keys are free again, whenever the old row is removed. */
  readonly freed: readonly KnownMessage[]
}

/**
 * Decides a batch message by message. `rows` are as the upsert left them, which raised each session's `inboxSeq` by its
 * count as if all were accepted.
 */
export function admitAll(
  submissions: readonly Submission[],
  {
    counts,
    rows,
    earlier,
    queueMax,
  }: {
    counts: ReadonlyMap<string, number>
    rows: ReadonlyMap<string, InboxNumbers>
    earlier: ReadonlyMap<string, KnownMessage>
    queueMax: number
  },
): Admission {
  const numbers = new Map(
    [...rows].map(([id, row]) => [id, { ...row, inboxSeq: row.inboxSeq - (counts.get(id) ?? 0) }] as const),
  )
  const isFree = ({ sessionId, seq }: KnownMessage) => seq <= (numbers.get(sessionId)?.purgeSeq ?? 0)
  const known = new Map<string, Earlier>([...earlier].filter(([, message]) => !isFree(message)))
  const accepted: { submission: Submission; seq: number }[] = []
  const results = submissions.map((submission) => {
    const row = numbers.get(submission.sessionId)
    if (!row) throw new Error(`session row ${submission.sessionId} vanished under its lock`)
    const key = keyOf(submission.sessionId, submission.key)
    const result = admit(row, submission, known.get(key), queueMax)
    if (!(result instanceof Error) && !known.has(key)) {
      accepted.push({ submission, seq: result.seq })
      known.set(key, { seq: result.seq, id: submission.id, fingerprint: submission.fingerprint })
    }
    return result
  })
  const differs = ([id, { inboxSeq, stopSeq }]: readonly [string, InboxNumbers]) =>
    rows.get(id)?.inboxSeq !== inboxSeq || rows.get(id)?.stopSeq !== stopSeq
  const freed = [...earlier.values()].filter(isFree)
  return { results, accepted, corrections: [...numbers].filter(differs), freed }
}

export interface Stopped {
  /** The tombstone: nothing with a seq up to here starts any more. */
  readonly through: number
  /** The turn that was running when the tombstone was written and is covered by it; its signal is being fired. */
  readonly running: number | null
  /** Whether anything was left to stop. */
  readonly pending: boolean
  readonly owner: string | null
  /** Messages up to here had their final state already. */
  readonly doneSeq: number
  /** What the call is about: the messages behind `after`, up to `upTo`. */
  readonly after: number
  readonly upTo: number
  /** The one of them that has started and is not done: it runs, or is between two attempts. */
  readonly underWay: number | null
}

/** Raises the tombstone to `through`, or to everything accepted so far; never beyond, never down. Undefined: deleted. */
export function stop(draft: Draft, through: number | undefined): Stopped | undefined {
  const { row } = draft
  if (row.inboxSeq === row.purgeSeq) return undefined
  raise(draft, Math.min(through ?? row.inboxSeq, row.inboxSeq))
  return stopped(row, row.doneSeq, row.stopSeq)
}

/**
 * Stops one message that is under way and leaves what waits behind it: `running` means whichever it is. A message
 * between two attempts counts as running, since it can only be stopped. Of one that is done, or when none is under way,
 * nothing is written. Undefined: deleted.
 */
export function stopTurn(
  draft: Draft,
  turn: number | 'running',
): Stopped | 'not-started' | 'missing' | undefined {
  const { row } = draft
  if (row.inboxSeq === row.purgeSeq) return undefined
  const underWay = row.starts > 0 ? row.doneSeq + 1 : undefined
  if (turn === 'running' && underWay === undefined) return stopped(row, row.doneSeq, row.doneSeq)
  const seq = turn === 'running' ? row.doneSeq + 1 : turn
  if (seq > row.inboxSeq || seq <= row.purgeSeq) return 'missing'
  if (seq > row.doneSeq && seq !== underWay) return 'not-started'
  if (seq === underWay) raise(draft, seq)
  return stopped(row, seq - 1, seq)
}

/** Never down. */
function raise(draft: Draft, target: number): void {
  const { row } = draft
  // A message that waits for its next attempt waits no longer: it is to get its final state.
  if (target > row.stopSeq)
    draft.set({ stopSeq: target, ...(target > row.doneSeq ? { retryInMs: null } : {}) })
}

function stopped(row: SessionRow, after: number, upTo: number): Stopped {
  const isCovered = (seq: number) => seq > after && seq <= upTo
  const { runningSeq, doneSeq, starts } = row
  return {
    through: row.stopSeq,
    running: runningSeq !== null && isCovered(runningSeq) ? runningSeq : null,
    pending: doneSeq < upTo,
    owner: row.owner,
    doneSeq,
    after,
    upTo,
    underWay: starts > 0 && isCovered(doneSeq + 1) ? doneSeq + 1 : null,
  }
}

/**
 * Takes a waiting message back; the next one at once, later ones when their turn has come. A message that has ever
 * started can only be stopped.
 */
export function withdraw(draft: Draft, seq: number): 'withdrawn' | 'started' | 'done' | 'missing' {
  const { row } = draft
  if (seq > row.inboxSeq || seq <= row.purgeSeq) return 'missing'
  if (seq <= row.doneSeq) return 'done'
  if (seq === row.doneSeq + 1 && row.starts > 0) return 'started'
  draft.mark(seq, 'withdrawn')
  // A row that is missing is the worker's to report.
  if (seq === row.doneSeq + 1 && row.runningSeq === null && draft.head) passOver(draft, 'withdrawn')
  return 'withdrawn'
}
