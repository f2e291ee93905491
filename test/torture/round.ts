// One round: faults and messages for a while, then everything is healed, everything must become final and quiet, and the
// rules are checked. A round is all that its seed says, so a bad one can be played again alone.
import type { TunablesInput } from '../../src/index.ts'
import { monotonicNs } from '../support/history.ts'
import { runLanes } from './lanes.ts'
import { idle, settled } from './rest.ts'
import { judge } from './rules.ts'
import type { Servers } from './servers.ts'
import { Stage } from './stage.ts'
import { taleOf } from './tale.ts'
import { millisecondsBetween, type Passages } from './passages.ts'

export interface RoundOptions {
  readonly servers: Servers
  readonly folder: string
  readonly code: string
  readonly seed: number
  readonly ttlMs: number
  readonly forMs: number
  readonly workers: number
  readonly perSecond: number
  readonly kinds: readonly string[]
  /** Faults after which the round ends before its time. */
  readonly faultsMax: number
  readonly onFault: (name: string) => void
}

export interface Round extends Passages {
  readonly seed: number
  readonly messages: number
  readonly turns: number
  readonly calls: Readonly<Record<string, number>>
  readonly settledMs: number
  readonly problems: readonly string[]
  /** Their stories. */
  readonly tales: readonly string[]
}

const SESSIONS = 32
const PRODUCERS = 2
const TALES_MAX = 5
const POOL_SIZE = 6

export async function playRound(options: RoundOptions): Promise<Round> {
  const { servers, seed, ttlMs, workers, perSecond, kinds } = options
  const tunables = tunablesFor(ttlMs)
  const stage = await Stage.open({
    servers,
    seed,
    workers,
    perSecond,
    tunables,
    folder: options.folder,
    code: options.code,
    producers: PRODUCERS,
    sessions: Array.from({ length: SESSIONS }, (_, index) => `chat-${seed}-${index}`),
  })
  try {
    const over = new AbortController()
    const end = setTimeout(() => over.abort(), options.forMs)
    let faults = 0
    const onFault = (name: string) => {
      options.onFault(name)
      if (++faults >= options.faultsMax) over.abort()
    }
    await runLanes({ stage, seed, ttlMs, kinds, onFault, over: over.signal })
    clearTimeout(end)
    await stage.endProducers()
    const rest = await settled(stage, ttlMs * 2 + (tunables.turnTimeoutMs ?? 0) + 12_000)
    const unquiet = rest.problems.length > 0 ? [] : await idle(stage, { quietMs: 1000, poolSize: POOL_SIZE })
    const offset = Date.now() - monotonicNs() / 1e6
    const { problems, world } = await judge({
      mysqlUrl: stage.mysqlUrl,
      history: stage.history(),
      times: { ttlMs, sweepMs: ttlMs / 6, lookMs: ttlMs / 6 },
      wallMs: (ns) => offset + ns / 1e6,
    })
    const passages = millisecondsBetween(world)
    const silent = world.facts.messages.size === 0 ? [': I1: nothing was accepted in a whole round'] : []
    const all = [...silent, ...rest.problems, ...unquiet, ...problems]
    return {
      seed,
      messages: world.facts.messages.size,
      turns: world.turns.filter(({ attempt }) => attempt > 0).length,
      calls: countBy(world.calls.map(({ name, outcome }) => `${name} ${outcome}`)),
      settledMs: Math.round(rest.ms),
      ...passages,
      slowest: passages.slowest.map((what) => taleOf(what, world)),
      problems: all,
      tales: all.slice(0, TALES_MAX).map((problem) => taleOf(problem, world)),
    }
  } finally {
    await stage.close()
  }
}

/** With short times a busy machine's pauses must not pass for deaths, nor a slow answer for silence. */
const tunablesFor = (ttlMs: number): TunablesInput => ({
  lockTtlMs: ttlMs,
  ...(ttlMs < 10_000
    ? {
        heartbeatTtlMs: ttlMs / 3,
        deadAfterMs: ttlMs / 3,
        hungAfterMs: ttlMs / 2,
        lookFastMs: ttlMs / 6,
        retryDelaysMs: [100, 200],
      }
    : {}),
  stopGraceMs: ttlMs / 6,
  drainGraceMs: ttlMs / 6,
  turnTimeoutMs: Math.max(8000, ttlMs),
  enqueueTimeoutMs: 4000,
  mysqlTimeoutMs: 2500,
  mysqlPoolSize: POOL_SIZE,
  concurrency: 16,
})

export function countBy(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const name of names.toSorted()) counts[name] = (counts[name] ?? 0) + 1
  return counts
}
