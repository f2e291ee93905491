// The protocol's rules as the model applies them: those of src/protocol themselves, and what is left of each when one
// thing is taken out of it. A rule of the runtime (renewer, reconciler, …) is asked for by name where the model has it.
import type { Draft } from '../../src/protocol/draft.ts'
import { acquire, evict, type Verdict } from '../../src/protocol/ownership.ts'
import { runningTurn, type TurnName } from '../../src/protocol/session-row.ts'
import { append, type Ending, finish, start, type StartLimits } from '../../src/protocol/turn-rules.ts'

/** What can be taken out, and what it is for. */
export const RULES = {
  stopReadInStart: 'the tombstone is read in the start transaction, not when the butler last heard of it',
  refuseWhileRunning: 'acquire is refused while a turn runs under somebody whom nobody has judged',
  fenceByOwner: 'a write of a turn needs its owner token',
  fenceByStart: 'a write of a turn needs its number of starts',
  verdictNamesTurn: 'a verdict ends the turn it named, not a later one of the same token',
  verdictNamesStart: 'a verdict ends the attempt it named, not a later one of the same message',
  expectedNumber: 'an append says which entry number it expects',
  settleByComparing: 'a commit without an answer is compared with the row before it is tried again',
  handOverFirst: 'a turn that is handed over ends in the row before its lock goes',
  retake: 'a renewal takes a missing lock back',
  lostMeansRow: 'a missing or strange lock is a reason to read the row, not a loss',
  lookAtAsked: 'an answer of the database says nothing about a turn younger than the question',
  stopTick: 'the look at the rows finds stops that no notice brought',
  orphans: 'a row that names a process for a turn which it does not run is released',
  heedBeforeHandler: 'a stop that was heard between start and handler fires the signal',
  ownerOnlyAdvance: 'only the busy token may clear the lists and turn the lock idle',
  letGoUnanswered: 'after a lock command without an answer a butler lets go',
  ownLeftover: 'a lock in the name of the own process that no butler holds is taken',
  earlyStartWaits: 'a start sent with the idle lock waits for its answer, whatever an older renewal says',
  wokenWhileServing: 'a call during a stay in the slot is answered after it',
  sweep: 'work that nobody was told of is looked for',
  bury: 'the turn of a dead process is ended and its lock deleted',
  contests: 'the turn of a hung owner whose lock is gone is taken from it',
  idleIsFree: 'an idle lock is a preference: anybody may take it',
  giveUpTells: 'whoever gives up an acquisition that may have happened tells somebody',
  loserLetsGo: 'whoever learns from the row that it has lost the session gives its lock back',
  lockFollows: 'after a detach the lock follows the new token, then or when it is renewed',
  passOn: 'a draining process passes on what it hears',
} as const

export type RuleName = keyof typeof RULES

/** The protocol without one of its rules, or whole. */
export class Protocol {
  readonly without: RuleName | undefined

  constructor(without?: RuleName) {
    this.without = without
  }

  has(rule: RuleName): boolean {
    return rule !== this.without
  }

  start(draft: Draft, token: string, limits: StartLimits, heard: number) {
    if (this.has('stopReadInStart')) return start(draft, token, limits)
    const { stopSeq } = draft.row
    draft.row.stopSeq = heard
    const started = start(draft, token, limits)
    draft.row.stopSeq = stopSeq
    return started
  }

  acquire(draft: Draft, token: string) {
    if (!this.has('refuseWhileRunning')) draft.row.runningSeq = null
    return acquire(draft, token)
  }

  append(draft: Draft, turn: TurnName, expected: number) {
    const number = this.has('expectedNumber') ? expected : draft.row.entrySeq
    return append(draft, this.#fence(draft, turn), [{ type: 'note', payload: '1' }], number)
  }

  finish(draft: Draft, turn: TurnName, ending: Ending, successor: string | undefined) {
    return finish(draft, this.#fence(draft, turn), ending, [], successor)
  }

  evict(draft: Draft, turn: TurnName, verdict: Verdict) {
    const running = runningTurn(draft.row)
    const seq = this.has('verdictNamesTurn') ? turn.seq : (running?.seq ?? 0)
    const starts =
      this.has('verdictNamesTurn') && this.has('verdictNamesStart') ? turn.starts : draft.row.starts
    return evict(draft, { owner: turn.owner, seq, starts }, verdict)
  }

  #fence(draft: Draft, turn: TurnName): TurnName {
    return {
      owner: this.has('fenceByOwner') ? turn.owner : (draft.row.owner ?? turn.owner),
      seq: turn.seq,
      starts: this.has('fenceByStart') ? turn.starts : draft.row.starts,
    }
  }
}
