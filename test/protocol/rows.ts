// Rows, messages and drafts as the protocol's rules see them, for tests that need no store.
import { Draft } from '../../src/protocol/draft.ts'
import type { Submission } from '../../src/protocol/intake.ts'
import type { Message, SessionRow } from '../../src/protocol/session-row.ts'
import type { StartLimits } from '../../src/protocol/turn-rules.ts'

export const OWNER = 'P1.aaaa'

export const row = (changes: Partial<SessionRow> = {}): SessionRow => ({
  id: 'chat-1',
  inboxSeq: 0,
  doneSeq: 0,
  stopSeq: 0,
  runningSeq: null,
  owner: null,
  epoch: 0,
  starts: 0,
  failures: 0,
  handovers: 0,
  crashes: 0,
  retryInMs: null,
  entrySeq: 0,
  purgeSeq: 0,
  ...changes,
})

export const message = (seq: number, changes: Partial<Message> = {}): Message => ({
  seq,
  id: `m-${seq}`,
  kind: 'message',
  version: 1,
  source: 'user',
  payload: '"hello"',
  status: null,
  traceparent: null,
  createdAt: '2026-01-01T00:00:00.000Z',
  ...changes,
})

/** A draft whose next message was read, and exists unless `next` is null. */
export function draft(
  changes: Partial<SessionRow> = {},
  next?: Partial<Message> | null,
  openCalls: readonly string[] = [],
): Draft {
  const locked = row(changes)
  const seq = locked.doneSeq + 1
  return new Draft(locked, {
    message: { seq, message: next === null ? undefined : message(seq, next) },
    openCalls,
  })
}

export const limits = (changes: Partial<StartLimits> = {}): StartLimits => ({
  maxStarts: 20,
  maxCrashes: 3,
  version: 1,
  runs: () => true,
  maySuspect: () => true,
  holdsLock: () => true,
  ...changes,
})

export const submission = (id: string, changes: Partial<Submission> = {}): Submission => ({
  sessionId: 'chat-1',
  id,
  key: id,
  fingerprint: 'f'.repeat(43),
  kind: 'message',
  source: 'user',
  payload: '"hello"',
  whenBusy: 'enqueue',
  traceparent: null,
  retryOf: null,
  ...changes,
})
