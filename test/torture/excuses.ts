// Which faults may be the reason for what. A fault of a store excuses everybody, one of a session's keys that session, one
// of a process or of its lines that process; what it does to the others is bounded.
import type { Span } from './record.ts'
import { SLACK_MS, type World } from './world.ts'

/** A frozen process's transaction holds its rows until MariaDB ends it. */
const ROW_LOCK_MS = 10_000

/** Faults between `from` and `to` (the database's clock), or that had ended less than `afterMs` before. */
export const about = (
  { faults, wallMs }: World,
  { from, to, afterMs = 0 }: { from: number; to: number; afterMs?: number },
): Span[] => faults.filter((span) => wallMs(span.from) <= to && wallMs(span.to) + afterMs >= from)

export const isOf = ({ name }: Span, store: 'redis' | 'mysql'): boolean => name.startsWith(`${store}-`)

/** Whether no process had an answer from either store. */
export const bothSilent = (spans: readonly Span[]): boolean =>
  spans.some((redis) => {
    const meets = (mysql: Span) => redis.from <= mysql.to && mysql.from <= redis.to
    return (
      isOf(redis, 'redis') &&
      redis.silences &&
      spans.some((one) => isOf(one, 'mysql') && one.silences && meets(one))
    )
  })

/** After the last fault everything goes on within that time. */
export const recoveryMs = ({ times }: World): number =>
  times.ttlMs + times.sweepMs * 2 + ROW_LOCK_MS + SLACK_MS

export interface Wait {
  readonly session: string
  readonly since: number
  readonly until: number
  /** Whose faults may be the reason. */
  readonly processes: readonly string[]
  /** How long it may take with nothing broken. */
  readonly boundMs: number
  /** Faults that are the wait's beginning, not its excuse. */
  readonly causes?: readonly Span[]
}

/** How long somebody may wait, with the faults that there were. */
export function patience(world: World, wait: Wait): { boundMs: number; excused: boolean } {
  const { session, since, until, processes, boundMs, causes = [] } = wait
  const afterMs = recoveryMs(world)
  const near = about(world, { from: since, to: until, afterMs }).filter(
    (span) => !span.gentle && !causes.includes(span),
  )
  const own = near.filter(
    (span) =>
      isOf(span, 'redis') ||
      isOf(span, 'mysql') ||
      span.session === session ||
      processes.some((process) => span.processes.has(process)),
  )
  if (own.length > 0) {
    const last = Math.max(since, ...own.map(({ to }) => world.wallMs(to)))
    return { boundMs: last - since + afterMs, excused: true }
  }
  // Whoever was told of it may be the one that something happened to.
  const elsewhere = near.some((span) => span.session === undefined)
  return { boundMs: elsewhere ? Math.max(boundMs, afterMs) : boundMs, excused: false }
}
