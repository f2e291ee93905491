/** Settles an unanswered COMMIT by the row: what it would have left behind is compared with what is there now. */
import type { SessionRow } from '../protocol/session-row.ts'

/** The row before and after the rule, and what the rule had said. */
export interface Doubt {
  readonly before: SessionRow
  readonly row: SessionRow
  readonly result: unknown
}

export function hasHappened(row: SessionRow, { before, row: written }: Doubt): boolean {
  if (isSameTurnState(row, written)) return true
  // A producer may have taken the next message back since then; nobody else moves on in the owner's epoch.
  return (
    before.runningSeq !== null &&
    before.runningSeq === written.doneSeq &&
    written.runningSeq === null &&
    row.owner === written.owner &&
    row.epoch === written.epoch &&
    row.doneSeq > written.doneSeq
  )
}

/** Whether the row is what the unanswered commit would have made it; producers may have moved their numbers since. */
export function isSameTurnState(row: SessionRow, written: SessionRow): boolean {
  return (
    row.owner === written.owner &&
    row.epoch === written.epoch &&
    row.runningSeq === written.runningSeq &&
    row.starts === written.starts &&
    row.doneSeq === written.doneSeq &&
    row.entrySeq === written.entrySeq
  )
}
