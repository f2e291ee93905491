/** Transcript entries as handlers write them and readers get them. */
import { InvalidInputError } from '../base/errors.ts'
import { checkKey, checkKind, show } from '../base/ids.ts'
import { type Json, parse, serialise } from '../base/payload.ts'
import type { EntryRow } from '../mysql/transcript.ts'
import { ENTRY, type EntryDraft } from '../protocol/session-row.ts'

/** What a handler appends or returns. */
export interface EntryInput {
  /** `reply`, `tool_call`, `tool_result`, or a type of your own; 1 to 64 of letters, digits and . _ : - */
  readonly type: string
  /** Any JSON value; null when left out. */
  readonly payload?: unknown
  /** Required for `tool_call` and `tool_result`: pairs the two. */
  readonly callId?: string
}

/** One line of a transcript. */
export interface Entry {
  /** Position in the session's transcript: 1, 2, 3, … without holes. The cursor of a reader. */
  readonly entry: number
  /** The message whose turn wrote it. */
  readonly seq: number
  /** Which owner of the session wrote it; never decreases along a transcript. */
  readonly epoch: number
  /** Which start of the message wrote it: 1 for the first. 0: the message never started. */
  readonly attempt: number
  readonly type: string
  readonly callId: string | null
  readonly stepKey: string | null
  readonly payload: Json
  /** ISO time by the database's clock. */
  readonly createdAt: string
}

/** Types that only the runtime writes. */
const RESERVED: ReadonlySet<string> = new Set([
  ENTRY.message,
  ENTRY.step,
  ENTRY.error,
  ENTRY.turnStarted,
  ENTRY.turnEnded,
])

export interface EntryLimits {
  readonly maxBytes: number
  readonly maxDepth: number
}

/** Checks and serialises; throws InvalidInputError and writes nothing. */
export function toDraft(input: unknown, limits: EntryLimits): EntryDraft {
  if (typeof input !== 'object' || input === null || !('type' in input)) {
    throw new InvalidInputError('INVALID_ENTRY', `An entry is an object with a type, not ${show(input)}.`)
  }
  const { type: given, payload, callId, ...rest } = input as EntryInput
  const [unknown] = Object.keys(rest)
  if (unknown !== undefined) {
    throw new InvalidInputError(
      'INVALID_ENTRY',
      `An entry has type, payload and callId, no ${show(unknown)}: put it into the payload.`,
    )
  }
  const type = checkKind('Entry type', given)
  if (RESERVED.has(type)) {
    throw new InvalidInputError(
      'INVALID_ENTRY',
      `Entries of type "${type}" are written by the runtime: choose another.`,
    )
  }
  if ((type === ENTRY.toolCall || type === ENTRY.toolResult) && callId === undefined) {
    throw new InvalidInputError(
      'INVALID_ENTRY',
      `An entry of type "${type}" needs the callId that pairs call and result.`,
    )
  }
  const text = serialise(payload ?? null, { ...limits, what: 'Entry payload' })
  return callId === undefined
    ? { type, payload: text }
    : { type, payload: text, callId: checkKey('Call id', callId) }
}

/** What a handler returned: nothing, a reply's text, an entry, or several. */
export function toDrafts(returned: unknown, limits: EntryLimits): EntryDraft[] {
  if (returned === undefined || returned === null) return []
  if (typeof returned === 'string') return [toDraft({ type: ENTRY.reply, payload: returned }, limits)]
  return (Array.isArray(returned) ? returned : [returned]).map((entry) => toDraft(entry, limits))
}

export function toEntry(row: EntryRow): Entry {
  const { entrySeq, payload, ...rest } = row
  return { entry: entrySeq, ...rest, payload: parse(payload) }
}
