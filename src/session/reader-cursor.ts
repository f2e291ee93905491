/** Where a reader says it is: what it has seen, and what it has dealt with. Kept in MySQL, for any process and any time. */
import { checkOptions } from '../base/arguments.ts'
import { InvalidInputError } from '../base/errors.ts'
import { checkReader } from '../base/ids.ts'
import { type CursorRow, moveCursor, readCursor, type ReaderRow } from '../mysql/cursors.ts'
import type { Mysql } from '../mysql/connect.ts'
import { patiently } from '../mysql/patience.ts'
import { comparePlaces, parseCursor } from '../protocol/cursor.ts'
import { unknownSession } from './unknown.ts'

export interface ReaderCursor {
  readonly reader: string
  /** Everything up to here was seen; null: nothing yet. */
  readonly read: string | null
  /** Everything up to here was dealt with; null: nothing yet. Never beyond `read`. */
  readonly acknowledged: string | null
  /** ISO time by the database's clock; null when it was never written. */
  readonly updatedAt: string | null
}

export interface CursorMove {
  readonly read?: string | number | undefined
  /** Implies that it was read. */
  readonly acknowledged?: string | number | undefined
}

export async function readerCursor(mysql: Mysql, sessionId: string, reader: unknown): Promise<ReaderCursor> {
  const name = checkReader(reader)
  const row = await readCursor(mysql, sessionId, name)
  if (!row) throw unknownSession(sessionId)
  return toCursor(name, row)
}

export async function moveReader(
  mysql: Mysql,
  sessionId: string,
  reader: unknown,
  move: CursorMove,
  giveUp: AbortSignal,
): Promise<ReaderCursor> {
  const name = checkReader(reader)
  checkOptions(move, ['read', 'acknowledged'])
  const acknowledged = textOf(move.acknowledged)
  const read = later(textOf(move.read), acknowledged)
  if (read === null)
    throw new InvalidInputError('INVALID_ARGUMENT', 'Say how far the reader is: read, acknowledged, or both.')
  const decide = (before: ReaderRow) => {
    if (parseCursor(read).entry > before.head)
      throw new InvalidInputError(
        'INVALID_CURSOR',
        `Cursor ${read} lies beyond the session's last entry, ${before.head}.`,
      )
    const [known, said] = [living(before, before), living({ seen: read, acknowledged }, before)]
    const after = {
      seen: later(known.seen, said.seen),
      acknowledged: later(known.acknowledged, said.acknowledged),
    }
    const isNews = after.seen !== known.seen || after.acknowledged !== known.acknowledged
    return isNews ? after : undefined
  }
  const row = await patiently(() => moveCursor(mysql, sessionId, name, decide), giveUp)
  if (!row) throw unknownSession(sessionId)
  return toCursor(name, row)
}

const textOf = (cursor: string | number | undefined): string | null => {
  if (cursor === undefined) return null
  parseCursor(cursor)
  return String(cursor)
}

function later(one: string | null, other: string | null): string | null {
  if (one === null || other === null) return one ?? other
  return comparePlaces(parseCursor(other), parseCursor(one)) > 0 ? other : one
}

type Positions = Pick<CursorRow, 'seen' | 'acknowledged'>

/** What was read of a deleted life of the session says nothing of this one. */
function living({ seen, acknowledged }: Positions, { purged }: ReaderRow): Positions {
  const ofThisLife = (cursor: string | null) =>
    cursor !== null && (purged === 0 || parseCursor(cursor).entry > purged) ? cursor : null
  return { seen: ofThisLife(seen), acknowledged: ofThisLife(acknowledged) }
}

function toCursor(reader: string, row: ReaderRow): ReaderCursor {
  const { seen, acknowledged } = living(row, row)
  return { reader, read: seen, acknowledged, updatedAt: seen === null ? null : row.updatedAt }
}
