// What is searched: the whole protocol in worlds of growing size, and for each rule the smallest world that misses it.
import { FAULTS, type FaultName } from './moves.ts'
import type { RuleName } from './rules.ts'
import type { Configuration } from './search.ts'

const of = (
  messages: number,
  stops: number,
  budget: number,
  faults: readonly FaultName[] = [],
  more: Partial<Configuration> = {},
): Configuration => ({ messages, stops, budget, faults, ...more })

/** Not a single notice is lost: nothing waits for a sweep. */
const PROMPT = { sweeps: 0 }
const ONCE = { sweeps: 1 }
const CHEAP: readonly FaultName[] = ['lost notice', 'lost commit', 'late command', 'throw']

export const QUICK: readonly Configuration[] = [
  of(1, 0, 0, [], PROMPT),
  of(1, 1, 0, [], PROMPT),
  of(1, 0, 1, ['lost commit', 'drain', 'throw'], ONCE),
  of(1, 0, 1, ['lost notice', 'late command', 'crash', 'fail-over'], ONCE),
]

export const SINGLE: readonly Configuration[] = [
  of(2, 0, 0, [], PROMPT),
  of(1, 0, 0, [], { ...PROMPT, crowded: true }),
  // A wrong verdict is looked at with the rules that must not fall for one: whole, its world is too large.
  ...FAULTS.filter((fault) => fault !== 'wrong verdict').map((fault) =>
    of(1, fault === 'detach' ? 1 : 0, 1, [fault], ONCE),
  ),
]

export const DOUBLE: readonly Configuration[] = [of(1, 0, 2, CHEAP, { sweeps: 2 })]

/** For each rule the smallest world that misses it. */
export const MISSED_IN: Record<RuleName, Configuration> = {
  stopReadInStart: of(1, 1, 0),
  refuseWhileRunning: of(1, 0, 1, ['flush']),
  fenceByOwner: of(1, 0, 1, ['fail-over']),
  fenceByStart: of(1, 0, 1, ['throw']),
  verdictNamesTurn: of(2, 0, 1, ['wrong verdict']),
  verdictNamesStart: of(1, 0, 2, ['wrong verdict', 'throw']),
  expectedNumber: of(1, 0, 1, ['lost commit']),
  settleByComparing: of(1, 0, 1, ['lost commit']),
  handOverFirst: of(1, 0, 1, ['drain']),
  retake: of(1, 0, 1, ['flush']),
  lostMeansRow: of(1, 0, 1, ['flush']),
  lookAtAsked: of(1, 0, 0),
  stopTick: of(1, 1, 1, ['lost notice']),
  orphans: of(1, 0, 2, ['error', 'lost notice']),
  heedBeforeHandler: of(1, 1, 0),
  ownerOnlyAdvance: of(2, 0, 1, ['late command']),
  letGoUnanswered: of(2, 0, 1, ['late command']),
  ownLeftover: of(1, 0, 1, ['late command']),
  wokenWhileServing: of(2, 0, 0, [], PROMPT),
  sweep: of(1, 0, 1, ['lost notice']),
  bury: of(1, 0, 1, ['crash']),
  contests: of(1, 0, 1, ['freeze']),
  passOn: of(1, 0, 1, ['drain'], PROMPT),
}

/** Rules whose search takes more than a second or two. */
export const SLOW: readonly RuleName[] = [
  'verdictNamesStart',
  'stopTick',
  'orphans',
  'heedBeforeHandler',
  'ownerOnlyAdvance',
  'wokenWhileServing',
  'contests',
]

export function titleOf({ messages, stops, budget, faults, crowded }: Configuration): string {
  const kinds = faults.length === FAULTS.length ? 'any' : faults.join(', ')
  const fault = budget === 0 ? 'no fault' : `${budget} fault${budget > 1 ? 's' : ''} of ${kinds}`
  return [
    `${messages} message${messages > 1 ? 's' : ''}`,
    stops > 0 ? '1 stop' : '',
    fault,
    crowded ? 'crowded' : '',
  ]
    .filter(Boolean)
    .join(' · ')
}
