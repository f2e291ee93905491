/**
 * Where a reader of a session stands: the last entry it has, and, while a reply is under way, the last delta. Entries
 * are numbered by the session, deltas by their attempt; an attempt is one start of one message. Outside of this file a
 * cursor is an opaque text: `17`, or `17.3.1.42` for delta 42 of message 3's first attempt.
 */
import { InvalidInputError } from '../base/errors.ts'
import { show } from '../base/ids.ts'

/** One start of a message. Numbers of messages never repeat, so attempts have one order for the session's whole life. */
export interface Attempt {
  readonly seq: number
  readonly attempt: number
}

export interface Place {
  readonly entry: number
  /** The last delta seen of an attempt that was not over. */
  readonly delta?: Attempt & { readonly index: number }
}

export const isBefore = (one: Attempt, other: Attempt): boolean =>
  one.seq < other.seq || (one.seq === other.seq && one.attempt < other.attempt)

export const isSame = (one: Attempt, other: Attempt): boolean =>
  one.seq === other.seq && one.attempt === other.attempt

/** Negative: `one` comes before `other`. Deltas lie behind the entry they follow. */
export function comparePlaces(one: Place, other: Place): number {
  const [a, b] = [one, other].map(({ entry, delta }) => [
    entry,
    delta?.seq ?? 0,
    delta?.attempt ?? 0,
    delta?.index ?? 0,
  ])
  const at = a!.findIndex((part, index) => part !== b![index])
  return at === -1 ? 0 : a![at]! - b![at]!
}

export const formatCursor = ({ entry, delta }: Place): string =>
  delta ? `${entry}.${delta.seq}.${delta.attempt}.${delta.index}` : `${entry}`

const CURSOR = /^(0|[1-9]\d{0,15})(?:\.([1-9]\d{0,15})\.([1-9]\d{0,15})\.([1-9]\d{0,15}))?$/

/** Takes a cursor's text, or an entry's number. Throws InvalidInputError INVALID_CURSOR for anything else. */
export function parseCursor(cursor: unknown): Place {
  const text = typeof cursor === 'number' ? String(cursor) : cursor
  const match = typeof text === 'string' ? CURSOR.exec(text) : null
  const [entry = NaN, ...delta] = (match?.slice(1) ?? []).filter((part) => part !== undefined).map(Number)
  if (![entry, ...delta].every(Number.isSafeInteger)) {
    throw new InvalidInputError(
      'INVALID_CURSOR',
      `Cursor ${show(cursor)} is none: pass the cursor of an event as it came, or an entry's number.`,
    )
  }
  const [seq, attempt, index] = delta
  return seq === undefined || attempt === undefined || index === undefined
    ? { entry }
    : { entry, delta: { seq, attempt, index } }
}
