// One round: faults and messages for a while, then everything is healed, everything must become final and quiet, and the
// rules are checked. A round is all that its seed says, so a bad one can be played again alone.
import { resolveTunables, type Tunables } from '../../src/base/options.ts'
import type { TunablesInput } from '../../src/index.ts'
import { sleep } from '../support/eventually.ts'
import { monotonicNs } from '../support/history.ts'
import { runLanes } from './lanes.ts'
import { idle, settled } from './rest.ts'
import { type Judged, judge } from './rules.ts'
import type { Servers } from './servers.ts'
import { sightingsOf } from './sightings.ts'
import { Stage } from './stage.ts'
import { taleOf } from './tale.ts'
import { millisecondsBetween, type Passages } from './passages.ts'
import type { Through } from './way.ts'
import type { World } from './world.ts'

export interface RoundOptions {
  readonly servers: Servers
  readonly folder: string
  readonly code: string
  readonly seed: number
  readonly ttlMs: number
  readonly forMs: number
  readonly workers: number
  readonly perSecond: number
  readonly through: Through
  readonly kinds: readonly string[]
  /** Faults after which the round ends before its time. */
  readonly faultsMax: number
  readonly onFault: (name: string) => void
  /** Ends the round without a judgement. */
  readonly signal: AbortSignal
}

/** What watchers saw, in numbers. */
export interface Watched {
  readonly watchers: number
  readonly breaks: number
  readonly entries: number
  readonly deltas: number
}

export interface Round extends Passages {
  readonly seed: number
  readonly faults: number
  readonly messages: number
  readonly turns: number
  readonly calls: Readonly<Record<string, number>>
  readonly settledMs: number
  readonly watched: Watched
  readonly judged: Judged
  readonly problems: readonly string[]
  /** Their stories. */
  readonly tales: readonly string[]
}

const SESSIONS = 32
const WATCHED_SESSIONS = 6
const PRODUCERS = 2
const TALES_MAX = 5
const POOL_SIZE = 6
/** How long an interrupted round waits for its faults to be healed. */
const HEAL_MS = 15_000

export async function playRound(options: RoundOptions): Promise<Round> {
  const { servers, seed, ttlMs, workers, perSecond, kinds, signal } = options
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
    watched: WATCHED_SESSIONS,
    through: options.through,
    sessions: Array.from({ length: SESSIONS }, (_, index) => `chat-${seed}-${index}`),
  })
  const over = new AbortController()
  let faults = 0
  const onFault = (name: string) => {
    faults += 1
    options.onFault(name)
    if (faults >= options.faultsMax) over.abort()
  }
  const play = async (): Promise<Round> => {
    const end = setTimeout(() => over.abort(), options.forMs)
    await lanes
    clearTimeout(end)
    await stage.endProducers()
    const rest = await settled(stage, ttlMs * 2 + (tunables.turnTimeoutMs ?? 0) + 12_000)
    // Who watches keeps the fleet busy.
    await stage.endWatchers()
    const unquiet =
      rest.problems.length > 0
        ? []
        : await idle(stage, { quietMs: Math.max(1000, ttlMs), poolSize: POOL_SIZE })
    const offset = Date.now() - monotonicNs() / 1e6
    const { problems, judged, world } = await judge({
      mysqlUrl: stage.mysqlUrl,
      history: stage.history(),
      times: timesOf(resolveTunables(tunables)),
      wallMs: (ns) => offset + ns / 1e6,
    })
    const passages = millisecondsBetween(world)
    const silent = world.facts.messages.size === 0 ? [': I1: nothing was accepted in a whole round'] : []
    const all = [...silent, ...rest.problems, ...unquiet, ...problems]
    return {
      seed,
      faults,
      messages: world.facts.messages.size,
      turns: world.turns.filter(({ attempt }) => attempt > 0).length,
      calls: countBy(world.calls.map(({ name, outcome }) => `${name} ${outcome}`)),
      settledMs: Math.round(rest.ms),
      watched: watchedIn(world),
      judged,
      ...passages,
      slowest: passages.slowest.map((what) => taleOf(what, world)),
      problems: all,
      tales: all.slice(0, TALES_MAX).map((problem) => taleOf(problem, world)),
    }
  }
  const lanes = runLanes({ stage, seed, ttlMs, kinds, onFault, over: AbortSignal.any([over.signal, signal]) })
  const interrupted = new Promise<never>((_, reject) => {
    const give = () => reject(new Error('The round was interrupted.'))
    // What is frozen cannot be ended: it is healed first, if that is possible at all.
    const heal = () => void Promise.race([lanes, sleep(HEAL_MS)]).then(give, give)
    if (signal.aborted) heal()
    else signal.addEventListener('abort', heal, { once: true })
  })
  try {
    return await Promise.race([play(), interrupted])
  } finally {
    await stage.close({ dropped: !signal.aborted })
  }
}

function watchedIn({ history }: World): Watched {
  const all = sightingsOf(history)
  const count = (type: string) =>
    all.reduce((sum, { events }) => sum + events.filter((event) => event.type === type).length, 0)
  const breaks = all.reduce((sum, one) => sum + one.breaks, 0)
  return { watchers: all.length, breaks, entries: count('entry'), deltas: count('delta') }
}

/** With short times a busy machine's pauses must not pass for deaths, nor a slow answer for silence. */
const tunablesFor = (ttlMs: number): TunablesInput => ({
  lockTtlMs: ttlMs,
  ...(ttlMs < 10_000
    ? {
        heartbeatTtlMs: Math.round(ttlMs / 3),
        deadAfterMs: Math.round(ttlMs / 3),
        hungAfterMs: Math.round(ttlMs / 2),
        lookFastMs: Math.round(ttlMs / 6),
        retryDelaysMs: [100, 200],
      }
    : {}),
  stopGraceMs: Math.round(ttlMs / 6),
  drainGraceMs: Math.round(ttlMs / 6),
  turnTimeoutMs: Math.max(8000, ttlMs),
  enqueueTimeoutMs: 4000,
  mysqlTimeoutMs: 2500,
  mysqlPoolSize: POOL_SIZE,
  concurrency: 16,
})

const timesOf = ({
  lockTtlMs,
  sweepMs,
  lookMs,
  enqueueTimeoutMs,
  mysqlTimeoutMs,
  turnTimeoutMs,
}: Tunables) => ({
  ttlMs: lockTtlMs,
  sweepMs,
  lookMs,
  enqueueMs: enqueueTimeoutMs,
  mysqlMs: mysqlTimeoutMs,
  turnTimeoutMs,
})

export function countBy(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const name of names.toSorted()) counts[name] = (counts[name] ?? 0) + 1
  return counts
}
