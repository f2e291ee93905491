/**
 * Who owns a session: acquire, evict. A strange or missing lock in Redis is only a reason to look at the row; "lost"
 * means that the row names somebody else, nothing weaker.
 */
import type { Draft } from './draft.ts'
import { isTurn, runningTurn, type TurnName } from './session-row.ts'
import { endTurn } from './turn-rules.ts'

export type Acquired =
  /** The row is ours; `epoch` rose unless it was ours before (a repeated call whose answer was lost). */
  | {
      readonly outcome: 'acquired'
      readonly epoch: number
      readonly doneSeq: number
      readonly stopSeq: number
    }
  /** Nothing waits, so there is nothing to own. */
  | { readonly outcome: 'nothing' }
  /** A turn runs under an owner whom nobody has judged. */
  | { readonly outcome: 'refused'; readonly running: TurnName }

/**
 * Makes `token` the owner, unless a turn is running under somebody else. A free lock is not enough: after a flush of
 * Redis the healthy owner's turn is still in the row.
 */
export function acquire(draft: Draft, token: string): Acquired {
  const { row } = draft
  if (row.owner !== token) {
    const running = runningTurn(row)
    if (running) return { outcome: 'refused', running }
    if (row.doneSeq >= row.inboxSeq) return { outcome: 'nothing' }
    draft.set({ owner: token, epoch: row.epoch + 1, runningSeq: null })
  }
  return { outcome: 'acquired', epoch: draft.row.epoch, doneSeq: row.doneSeq, stopSeq: row.stopSeq }
}

/**
 * Why a running turn may be taken from its owner: its process is `dead` (no subscriber, no heartbeat), `hung` (no
 * heartbeat, and it did not take its lock back), `silent` (alive, but it did not come back for a full TTL), or the
 * owner itself found a turn in its name that it does not run (`orphan`).
 */
export type Verdict = 'dead' | 'hung' | 'silent' | 'orphan'

/**
 * Ends a turn in its owner's absence. The verdict names the turn as the judge read it: a token lives for many turns,
 * and a later, healthy one must not be taken for the judged one. Only death counts as a crash of the message.
 */
export function evict(draft: Draft, turn: TurnName, verdict: Verdict): { evicted: boolean } {
  if (!isTurn(draft.row, turn)) return { evicted: false }
  const crashes = draft.row.crashes + (verdict === 'dead' ? 1 : 0)
  endTurn(draft, turn.seq, { outcome: 'lost', detail: { verdict }, openCalls: draft.openCalls })
  draft.set({ owner: null, crashes })
  return { evicted: true }
}
