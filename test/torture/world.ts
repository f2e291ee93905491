// What the rules look at: everything that is known of a round, in one place.
import type { Facts } from '../support/checker-facts.ts'
import type { Line } from '../support/history.ts'
import type { Call, Span, Turn } from './record.ts'

export interface Times {
  readonly ttlMs: number
  readonly sweepMs: number
  readonly lookMs: number
  readonly enqueueMs: number
  readonly mysqlMs: number
  readonly turnTimeoutMs: number
}

export interface World {
  readonly facts: Facts
  readonly history: readonly Line[]
  readonly calls: readonly Call[]
  readonly faults: readonly Span[]
  readonly turns: readonly Turn[]
  readonly times: Times
  /** The database's clock, in milliseconds, at that monotonic nanosecond. */
  readonly wallMs: (ns: number) => number
}

/** Something that a rule looked at. `excused`: a fault may be the reason, so whatever happened was allowed. */
export interface Case {
  readonly problem?: string | undefined
  readonly excused?: boolean
}

export type Rule = (world: World) => Case[]

/** A busy machine stands still for so long now and then. */
export const SLACK_MS = 3000
/** Two clocks are read one after the other. */
export const CLOCK_MS = 20
