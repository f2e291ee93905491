/** What a replay came to, in numbers: for people, and as one JSON object. Pure. */
import { table } from './output.ts'
import { type Problem, PROBLEMS } from './transcript-check.ts'

export interface Spread {
  readonly p50: number
  readonly p95: number
  readonly p99: number
  readonly max: number
}

export interface ReplaySummary {
  readonly ok: boolean
  readonly checked: boolean
  readonly messages: number
  readonly sessions: number
  readonly accepted: number
  /** Of the accepted, those that an earlier run with the same id had sent. */
  readonly duplicates: number
  readonly done: number
  readonly counts: Readonly<Record<Problem['kind'], number>>
  readonly seconds: number
  readonly messagesPerSecond: number
  /** From the call to the acknowledgement, by this host's clock. Null when nothing was measured. */
  readonly ackMs: Spread | null
  /** From acceptance to the end of the last turn, by the database's clock. */
  readonly doneMs: Spread | null
  readonly problems: readonly Problem[]
}

/** As many problems are told one by one. */
const SHOWN_MAX = 20

export function countProblems(problems: readonly Problem[]): Record<Problem['kind'], number> {
  const counts = Object.fromEntries(PROBLEMS.map((kind) => [kind, 0])) as Record<Problem['kind'], number>
  for (const { kind } of problems) counts[kind] += 1
  return counts
}

/** Null for no values at all. */
export function spreadOf(values: readonly number[]): Spread | null {
  if (values.length === 0) return null
  const sorted = Float64Array.from(values).sort()
  const at = (share: number) => Math.round((sorted[Math.ceil(sorted.length * share) - 1] ?? 0) * 10) / 10
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1) }
}

export function summaryLines(summary: ReplaySummary): string[] {
  const { checked, messages, sessions, accepted, duplicates, done, counts, seconds, messagesPerSecond } =
    summary
  const judged = checked
    ? PROBLEMS.map((kind) => [NAMES[kind], String(counts[kind])])
    : [['not checked', 'use --check to compare with the transcript']]
  return table([
    ['messages', `${messages} in ${sessions} sessions`],
    ['accepted', `${accepted}${duplicates > 0 ? ` (${duplicates} had been sent before)` : ''}`],
    ['done', String(done)],
    ...judged,
    ['time', `${seconds} s, ${messagesPerSecond} messages/s`],
    ['enqueue acknowledged', spreadText(summary.ackMs)],
    ['enqueue to done', spreadText(summary.doneMs)],
  ])
}

export function problemLines(problems: readonly Problem[]): string[] {
  const lines = problems.slice(0, SHOWN_MAX).map(({ kind, session, line, detail }) => {
    return `${NAMES[kind]}: ${session}${line === undefined ? '' : ` (line ${line})`}: ${detail}`
  })
  return problems.length > SHOWN_MAX ? [...lines, `and ${problems.length - SHOWN_MAX} more`] : lines
}

const NAMES: Record<Problem['kind'], string> = {
  lost: 'lost',
  doubled: 'doubled',
  outOfOrder: 'out of order',
  altered: 'altered',
  notCompleted: 'not completed',
  gap: 'gaps',
  epoch: 'replaced owners',
}

const spreadText = (spread: Spread | null): string =>
  spread ? `p50 ${spread.p50} ms, p95 ${spread.p95} ms, p99 ${spread.p99} ms, max ${spread.max} ms` : '-'
