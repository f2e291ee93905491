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
export const QUICK: readonly Configuration[] = [
  of(1, 0, 0, [], PROMPT),
  of(1, 1, 0, [], PROMPT),
  of(1, 1, 1, ['detach'], ONCE),
  of(1, 0, 1, ['lost commit', 'drain', 'throw'], ONCE),
  of(1, 0, 1, ['lost notice', 'late command', 'crash', 'fail-over'], ONCE),
]

/** A handler ignores its signal only where there is one. Each message may wait for a sweep. */
const single = (messages: number, fault: FaultName) =>
  of(messages, fault === 'detach' ? 1 : 0, 1, [fault], { sweeps: messages })

export const SINGLE: readonly Configuration[] = [
  of(2, 0, 0, [], PROMPT),
  of(1, 0, 0, [], { ...PROMPT, crowded: true }),
  of(2, 0, 0, [], { ...PROMPT, interrupts: true }),
  of(2, 0, 0, [], { ...PROMPT, withdrawals: 1 }),
  of(3, 0, 0, [], PROMPT),
  ...FAULTS.map((fault) => single(1, fault)),
  ...FAULTS.filter((fault) => fault !== 'wrong verdict').map((fault) => single(2, fault)),
]

type Pair = readonly [FaultName, FaultName]

/** Each fault with itself and with every later one. */
const PAIRS: readonly Pair[] = FAULTS.filter((fault) => fault !== 'fail-over' && fault !== 'error').flatMap(
  (one, place, all) => all.slice(place).map((other): Pair => [one, other]),
)

/** Not searched: their smallest world is not at its end after 800,000 states. */
const isTooLarge = (pair: Pair): boolean => pair.includes('wrong verdict') || pair.join() === 'freeze,detach'

/** Their worlds are ten to a hundred times as large as those of the others. */
const HEAVY: readonly FaultName[] = ['freeze', 'expiry', 'flush']
const HALF_AS_HEAVY: readonly FaultName[] = ['late command', 'drain', 'throw']

/** Searched with one message alone: with a stop as well it makes a million states and more. */
function isWithoutStop(pair: Pair): boolean {
  if (pair.includes('detach')) return false
  const heavy = pair.filter((one) => HEAVY.includes(one))
  return (
    pair.includes('freeze') ||
    heavy.length === 2 ||
    (heavy.length === 1 && pair.some((one) => HALF_AS_HEAVY.includes(one))) ||
    pair.join() === 'crash,drain'
  )
}

const SEARCHED = PAIRS.filter((pair) => !isTooLarge(pair))

/** Every pair of faults that fits, with a message and, where that fits, a stop. */
export const DOUBLE: readonly Configuration[] = SEARCHED.map((pair) =>
  of(1, isWithoutStop(pair) ? 0 : 1, 2, [...new Set(pair)], { sweeps: 2 }),
)

const listOf = (pairs: readonly Pair[]): string => pairs.map((pair) => pair.join(' + ')).join(', ')

/** What a search of all pairs leaves out. */
export const LEFT_OUT: readonly string[] = [
  `pairs that are not searched: ${listOf(PAIRS.filter(isTooLarge))}`,
  `pairs that are searched without the stop: ${listOf(SEARCHED.filter(isWithoutStop))}`,
]

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
  earlyStartWaits: of(2, 0, 1, ['flush']),
  wokenWhileServing: of(2, 0, 0, [], PROMPT),
  sweep: of(1, 0, 1, ['lost notice']),
  bury: of(1, 0, 1, ['crash']),
  contests: of(1, 0, 1, ['freeze']),
  idleIsFree: of(2, 0, 1, ['freeze']),
  loserLetsGo: of(1, 0, 1, ['wrong verdict'], PROMPT),
  lockFollows: of(2, 1, 1, ['detach'], PROMPT),
  giveUpTells: of(1, 0, 1, ['lost commit'], PROMPT),
  passOn: of(1, 0, 1, ['drain'], PROMPT),
}

/** Rules whose search takes more than a second or two. */
export const SLOW: readonly RuleName[] = [
  'verdictNamesStart',
  'stopTick',
  'orphans',
  'heedBeforeHandler',
  'ownerOnlyAdvance',
  'earlyStartWaits',
  'idleIsFree',
  'loserLetsGo',
  'lockFollows',
  'wokenWhileServing',
  'contests',
]

export function titleOf({
  messages,
  stops,
  budget,
  faults,
  crowded,
  interrupts,
  withdrawals,
}: Configuration): string {
  const kinds = faults.length === FAULTS.length ? 'any' : faults.join(', ')
  const fault = budget === 0 ? 'no fault' : `${budget} fault${budget > 1 ? 's' : ''} of ${kinds}`
  return [
    `${messages} message${messages > 1 ? 's' : ''}`,
    stops > 0 ? '1 stop' : '',
    interrupts ? 'the last interrupts' : '',
    withdrawals ? '1 withdrawal' : '',
    fault,
    crowded ? 'crowded' : '',
  ]
    .filter(Boolean)
    .join(' · ')
}
