/**
 * The life of one message under its owner: start → append … → finish. Each rule is fenced by (owner, seq, starts) in
 * the row, so a replaced owner, a detached handler or a late callback of an earlier attempt cannot write.
 *
 *                    ┌────────────── retry (back-off), handed over, lost ─────────────┐
 *                    ▼                                                                │
 *     waiting ──▶ running ──▶ completed | stopped | failed          ── not final: ────┘
 *        └──────────────────▶ stopped | withdrawn | failed (counted out) | missing     (never started)
 */
import type { Draft } from './draft.ts'
import {
  ENTRY,
  type EntryDraft,
  isTurn,
  type Message,
  type SessionRow,
  type TurnName,
  type TurnOutcome,
} from './session-row.ts'

/** What the process that wants to start a turn can and may run now. */
export interface StartLimits {
  readonly maxStarts: number
  readonly maxCrashes: number
  /** The newest form of messages that this process understands. */
  readonly version: number
  /** Whether this process has a handler for a message kind. */
  readonly runs: (kind: string) => boolean
  /** Whether this process may run a message that is one crash away from being given up. */
  readonly maySuspect: () => boolean
  /** Whether the lock is confirmed at this moment; asked again inside the transaction, which may have waited. */
  readonly holdsLock: () => boolean
}

export interface StartedTurn {
  readonly outcome: 'started'
  readonly turn: TurnName
  readonly epoch: number
  readonly entrySeq: number
  readonly message: Message
  readonly suspect: boolean
}

export type Started =
  | StartedTurn
  /** The message got its final state without running: look for the next one. */
  | { readonly outcome: 'skipped'; readonly seq: number; readonly as: TurnOutcome; readonly epoch: number }
  | { readonly outcome: 'nothing'; readonly doneSeq: number }
  | { readonly outcome: 'later'; readonly retryInMs: number }
  | { readonly outcome: 'suspect' }
  /** Nothing that this process has a handler for, or of a newer form than it understands. */
  | ({ readonly outcome: 'unrunnable'; readonly seq: number } & Pick<Message, 'kind' | 'version'>)
  | { readonly outcome: 'unheld' }
  | { readonly outcome: 'lost' }

/**
 * Starts the turn of `doneSeq + 1`, or gives that message its final state when it must not run. The tombstone is read
 * here, in the start transaction itself: checked any earlier, a Stop could slip in between and stop nothing.
 */
export function start(draft: Draft, token: string, limits: StartLimits): Started {
  const { row } = draft
  if (row.owner !== token || row.runningSeq !== null) return { outcome: 'lost' }
  if (row.doneSeq >= row.inboxSeq) return { outcome: 'nothing', doneSeq: row.doneSeq }
  const seq = row.doneSeq + 1
  const { head } = draft
  if (!head) return skip(draft, seq, 'missing')
  if (head.status === 'withdrawn') return skip(draft, seq, 'withdrawn')
  if (row.stopSeq >= seq) return skip(draft, seq, 'stopped')
  const { kind, version } = head
  // Also not counted out: whoever understands it may have other limits, and other reasons to start it anew.
  if (version > limits.version) return { outcome: 'unrunnable', kind, version, seq }
  if (row.crashes >= limits.maxCrashes)
    return giveUp(draft, seq, `its worker process died ${row.crashes} times`)
  if (row.starts >= limits.maxStarts)
    return giveUp(draft, seq, `it was started ${row.starts} times without an end`)
  if (row.retryInMs !== null && row.retryInMs > 0) return { outcome: 'later', retryInMs: row.retryInMs }
  if (!limits.runs(kind)) return { outcome: 'unrunnable', kind, version, seq }
  const suspect = isSuspect(row, limits.maxCrashes)
  if (suspect && !limits.maySuspect()) return { outcome: 'suspect' }
  if (!limits.holdsLock()) return { outcome: 'unheld' }

  const first = row.starts === 0
  draft.set({ runningSeq: seq, starts: row.starts + 1, retryInMs: null })
  draft.add(seq, {
    type: ENTRY.turnStarted,
    payload: JSON.stringify({ process: token.slice(0, token.indexOf('.')) }),
  })
  if (first) addMessage(draft, head)
  return {
    outcome: 'started',
    turn: { owner: token, seq, starts: row.starts },
    epoch: row.epoch,
    entrySeq: row.entrySeq,
    message: head,
    suspect,
  }
}

/** Whether the next message is one crash away from being given up. */
export const isSuspect = ({ crashes }: Pick<SessionRow, 'crashes'>, maxCrashes: number): boolean =>
  maxCrashes > 1 && crashes >= maxCrashes - 1

/**
 * Adds entries of a running turn. `expected` is the transcript number the turn last knew: if the row is already
 * beyond it, an earlier try of this very call was committed and only its answer got lost.
 */
export function append(
  draft: Draft,
  turn: TurnName,
  entries: readonly EntryDraft[],
  expected: number,
): { outcome: 'appended'; entrySeq: number } | { outcome: 'lost' } {
  if (!isTurn(draft.row, turn)) return { outcome: 'lost' }
  if (draft.row.entrySeq === expected) for (const entry of entries) draft.add(turn.seq, entry)
  return { outcome: 'appended', entrySeq: draft.row.entrySeq }
}

/** How the handler's run ended, as the butler saw it. `detached`: the handler itself still runs, and is cut off. */
export type Ending =
  | { readonly as: 'completed'; readonly entries: readonly EntryDraft[] }
  | { readonly as: 'stopped'; readonly detached?: boolean }
  | { readonly as: 'handed_over'; readonly detached?: boolean }
  /** The handler failed: run again after a delay, or for good. */
  | { readonly as: 'retrying'; readonly error: string; readonly delayMs: number }
  | { readonly as: 'failed'; readonly error: string; readonly detached?: boolean }

export type Finished =
  | {
      readonly outcome: 'finished'
      readonly doneSeq: number
      readonly inboxSeq: number
      readonly failures: number
    }
  | { readonly outcome: 'lost' }

/**
 * Ends a running turn: its last entries, one interrupted result for each tool call left open, and the message's
 * state, all or nothing. `successor` replaces the owner when the handler is still running and must be cut off.
 */
export function finish(
  draft: Draft,
  turn: TurnName,
  ending: Ending,
  openCalls: readonly string[],
  successor?: string,
): Finished {
  const { row } = draft
  if (!isTurn(row, turn)) return { outcome: 'lost' }
  const failures = row.failures + (ending.as === 'retrying' || ending.as === 'failed' ? 1 : 0)
  if (ending.as === 'completed') for (const entry of ending.entries) draft.add(turn.seq, entry)
  if ('error' in ending) draft.add(turn.seq, { type: ENTRY.error, payload: ending.error })
  const detail = 'detached' in ending && ending.detached ? { detached: true } : {}
  endTurn(draft, turn.seq, { outcome: ending.as, openCalls, detail })
  switch (ending.as) {
    case 'completed':
      complete(draft, turn.seq)
      break
    case 'stopped':
      draft.mark(turn.seq, 'stopped')
      complete(draft, turn.seq)
      break
    case 'failed':
      draft.mark(turn.seq, 'failed', ending.error)
      complete(draft, turn.seq)
      break
    case 'retrying':
      draft.set({ failures, retryInMs: ending.delayMs })
      break
    case 'handed_over':
      draft.set({ handovers: row.handovers + 1, owner: null })
      break
  }
  if (successor) draft.set({ owner: successor, epoch: row.epoch + 1 })
  return { outcome: 'finished', doneSeq: row.doneSeq, inboxSeq: row.inboxSeq, failures }
}

/** Closes the turn in the transcript: no tool call stays open, and the row no longer says that it runs. */
export function endTurn(
  draft: Draft,
  seq: number,
  end: { outcome: TurnOutcome; openCalls: readonly string[]; detail?: Record<string, string | boolean> },
): void {
  for (const callId of end.openCalls) {
    draft.add(seq, { type: ENTRY.toolResult, callId, payload: JSON.stringify({ interrupted: true }) })
  }
  draft.add(seq, { type: ENTRY.turnEnded, payload: JSON.stringify({ outcome: end.outcome, ...end.detail }) })
  draft.set({ runningSeq: null })
}

/** The message has its final state: the counters start anew for the next one. */
function complete(draft: Draft, seq: number): void {
  draft.set({ doneSeq: seq, starts: 0, failures: 0, handovers: 0, crashes: 0, retryInMs: null })
}

function skip(draft: Draft, seq: number, as: 'stopped' | 'withdrawn' | 'missing'): Started {
  if (as === 'stopped') draft.mark(seq, as)
  passOver(draft, as)
  return { outcome: 'skipped', seq, as, epoch: draft.row.epoch }
}

/** The next message has its final state without running. */
export function passOver(draft: Draft, as: 'stopped' | 'withdrawn' | 'missing'): void {
  const { head, row } = draft
  const seq = row.doneSeq + 1
  if (head && row.starts === 0) addMessage(draft, head)
  endTurn(draft, seq, { outcome: as, openCalls: [] })
  complete(draft, seq)
}

function giveUp(draft: Draft, seq: number, why: string): Started {
  const error = JSON.stringify({ code: 'COUNTED_OUT', message: `The message was given up: ${why}.` })
  draft.add(seq, { type: ENTRY.error, payload: error })
  draft.mark(seq, 'failed', error)
  endTurn(draft, seq, { outcome: 'failed', openCalls: [] })
  complete(draft, seq)
  return { outcome: 'skipped', seq, as: 'failed', epoch: draft.row.epoch }
}

/** The message's own entry, once: when it first starts, or when it is finished without ever starting. */
function addMessage(draft: Draft, { id, kind, source, payload }: Message): void {
  const head = JSON.stringify({ id, kind, source })
  draft.add(draft.row.doneSeq + 1, {
    type: ENTRY.message,
    payload: `${head.slice(0, -1)},"payload":${payload}}`,
  })
}
