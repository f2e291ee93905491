// Judges a race from outside: by what calls returned, by the order of entries, by the rows. Clocks order only calls, and
// handlers' lines, of one machine. An entry that is not yet in the transcript when a call has returned was committed later.
import type { StopOutcome } from '../../src/index.ts'
import type { Line } from '../support/history.ts'
import type { Race, StopCall } from './race.ts'

export interface Entry {
  readonly entry: number
  readonly seq: number
  readonly attempt: number
  readonly type: string
  /** Of `turn_ended`. */
  readonly outcome?: string | undefined
  readonly detached?: boolean | undefined
}

export interface Evidence {
  readonly race: Race
  readonly entries: readonly Entry[]
  /** What the rows say of each message: its status, or `completed`; `open` while it has no final state. */
  readonly states: ReadonlyMap<number, string>
  /** What handlers did. */
  readonly lines: readonly Line[]
}

export const RULES = {
  /** Whoever was sent and accepted has one final state, and rows and transcript agree on it. */
  unfinished: ({ race, entries, states }) =>
    race.sent.flatMap(({ seq }) => {
      const [state, last] = [states.get(seq), endsOf(entries, seq).at(-1)?.outcome]
      return state === last && state !== undefined
        ? []
        : [`message ${seq} is ${state} in its row and ${last} in the transcript`]
    }),

  /** Nothing at or below a returned tombstone starts. */
  stoppedButRan: ({ race, entries }) => {
    const tombstones = [
      ...race.stops.map(({ receipt, head }) => ({ through: receipt.through, head })),
      ...race.sent.flatMap(({ seq, interrupt }) => (interrupt ? [{ through: seq - 1, ...interrupt }] : [])),
    ]
    return tombstones.flatMap(({ through, head }) =>
      entries
        .filter(({ type, seq, entry }) => type === 'turn_started' && seq <= through && entry > head)
        .map(
          ({ seq, entry }) => `message ${seq} started (entry ${entry}) after it was stopped (head ${head})`,
        ),
    )
  },

  /** What is recorded as stopped was covered by some stop, and no stop covers what was sent after it had returned. */
  wronglyStopped: ({ race, states }) => {
    const stopped = race.sent.filter(({ seq }) => states.get(seq) === 'stopped')
    const isCovered = (seq: number, from: number) =>
      race.stops.some((stop) => stop.to > from && seq <= reachOf(stop)) ||
      race.sent.some((later) => later.interrupt && later.to > from && seq < later.seq)
    return [
      ...stopped
        .filter(({ seq, from }) => !isCovered(seq, from))
        .map(({ seq }) => `message ${seq} is stopped, and nobody stopped it`),
      ...race.stops.flatMap(({ receipt, to }) =>
        race.sent
          .filter(({ seq, from }) => from > to && seq <= receipt.through)
          .map(({ seq }) => `message ${seq} was sent after a stop through ${receipt.through} had returned`),
      ),
    ]
  },

  /** A stop of everything covers what was accepted before it was called. */
  missed: ({ race }) =>
    race.stops.flatMap(({ asked, receipt, from }) =>
      asked.through !== undefined || asked.turn !== undefined
        ? []
        : race.sent
            .filter(({ seq, to }) => to < from && seq > receipt.through)
            .map(({ seq }) => `message ${seq} had been accepted before a stop through ${receipt.through}`),
    ),

  /** A receipt says what the transcript says. */
  wrongReceipt: (evidence) =>
    evidence.race.stops.flatMap((stop) => {
      const { outcomes, quiet, running, through } = stop.receipt
      const open = outcomes.filter(({ outcome }) => outcome === 'stopping').length
      const isSound =
        quiet === (open === 0) &&
        (running === null || outcomes.some(({ seq }) => seq === running)) &&
        (stop.asked.turn !== undefined || outcomes.every(({ seq }) => seq <= through))
      return [
        ...(isSound ? [] : [`the receipt ${JSON.stringify(stop.receipt)} contradicts itself`]),
        ...outcomes
          .filter((outcome) => !agrees(evidence, stop, outcome))
          .map(
            ({ seq, outcome }) => `message ${seq} was said to be ${outcome}: ${tell(evidence.entries, seq)}`,
          ),
      ]
    }),

  /** Once it was said to be quiet, a handler that was said to have returned has, and nothing of the message is written. */
  notQuiet: ({ race, entries, lines }) =>
    race.stops.flatMap(({ receipt, head, to }) =>
      receipt.outcomes.flatMap(({ seq, outcome }) => {
        if (outcome === 'stopping') return []
        const late = entries.find((one) => one.seq === seq && one.entry > head && !PASSED_OVER.has(one.type))
        const attempt = Math.max(0, ...entries.filter((one) => one.seq === seq).map((one) => one.attempt))
        const mine = lines.filter((line) => line.seq === seq && line.attempt === attempt)
        const began = mine.some(({ what }) => what === 'start')
        const returned = mine.some(({ what, ns }) => RETURNED.has(what) && ns <= to)
        return [
          ...(late ? [`message ${seq} was ${outcome}, and wrote entry ${late.entry} (${late.type})`] : []),
          ...(outcome === 'aborted' && began && !returned
            ? [`message ${seq} was aborted, and its handler had not returned`]
            : []),
        ]
      }),
    ),

  wrongPosition: ({ race }) =>
    race.sent
      .filter(({ seq, position }) => position < 0 || position >= seq)
      .map(({ seq, position }) => `message ${seq} has position ${position}`),
} satisfies Record<string, (evidence: Evidence) => string[]>

export type RuleName = keyof typeof RULES

/** The message's own entry and the end that it has without a turn. */
const PASSED_OVER: ReadonlySet<string> = new Set(['message', 'turn_ended'])
const RETURNED: ReadonlySet<string> = new Set(['end', 'abort', 'threw'])

/** What does not hold, each with the name of its rule. */
export function judge(evidence: Evidence): { rule: RuleName; problem: string }[] {
  // What a receipt says of the end can only be compared with an end.
  const isOpen = RULES.unfinished(evidence).length > 0
  return (Object.keys(RULES) as RuleName[])
    .filter((rule) => !isOpen || rule !== 'wrongReceipt')
    .flatMap((rule) => RULES[rule](evidence).map((problem) => ({ rule, problem })))
}

const endsOf = (entries: readonly Entry[], seq: number) =>
  entries.filter((one) => one.seq === seq && one.type === 'turn_ended')

/** The last message that this call itself may have stopped. */
function reachOf({ asked, receipt }: StopCall): number {
  if (asked.turn === 'running') return receipt.outcomes[0]?.seq ?? 0
  return Math.min(asked.turn ?? asked.through ?? Infinity, receipt.through)
}

/** How the last turn of the message ended; a message that was passed over between two attempts has a later end. */
function ownEnd(entries: readonly Entry[], seq: number): Entry | undefined {
  const started = entries.findLast((one) => one.seq === seq && one.type === 'turn_started')
  return started && entries.find((one) => one.type === 'turn_ended' && one.entry > started.entry)
}

function agrees({ entries, race }: Evidence, stop: StopCall, { seq, outcome }: StopOutcome): boolean {
  const own = ownEnd(entries, seq)
  const isStopped = endsOf(entries, seq).at(-1)?.outcome === 'stopped'
  const isCutOff = own?.outcome === 'lost' || own?.detached === true
  switch (outcome) {
    case 'never-started':
      return isStopped && own === undefined
    case 'aborted':
      return isStopped && own !== undefined && !isCutOff
    case 'fenced':
      return isStopped && isCutOff
    case 'already-done':
      return !isStopped || isStoppedByOthers(race, stop, seq)
    case 'stopping':
      return own !== undefined
  }
}

const isStoppedByOthers = ({ stops, sent }: Race, stop: StopCall, seq: number): boolean =>
  stops.some((other) => other !== stop && other.from < stop.to && seq <= reachOf(other)) ||
  sent.some((other) => other.interrupt && other.from < stop.to && seq < other.seq)

const tell = (entries: readonly Entry[], seq: number): string =>
  entries
    .filter((one) => one.seq === seq && one.type.startsWith('turn_'))
    .map(({ entry, type, attempt, outcome, detached }) =>
      [entry, type, attempt, outcome, detached && 'detached'].filter(Boolean).join(' '),
    )
    .join(', ') || 'no turn'
