// A campaign: round after round on the same servers, and what came of them in numbers.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { bundle } from '../support/bundle.ts'
import { CALM, KINDS, MILD } from './lanes.ts'
import { quantiles } from './passages.ts'
import { playRound, type Round, type Watched } from './round.ts'
import { addUp, type Judged } from './rules.ts'
import { Servers } from './servers.ts'
import { PROGRAMS } from './stage.ts'
import type { Through } from './way.ts'

export interface CampaignOptions {
  readonly seed: number
  readonly ttlMs: number
  readonly workers: number
  readonly forMs: number
  /** Ends with this many faults, if that comes first. */
  readonly faultsMax: number
  readonly kinds?: readonly string[]
  /** Default: the library. */
  readonly through?: Through
  readonly roundMs?: number
  readonly perSecond?: number
  readonly onFault?: (faults: number) => void
  readonly onRound?: (round: Round) => void
  /** Ends the campaign in mid-round; the report is about the rounds before. */
  readonly signal?: AbortSignal
}

export interface Report {
  readonly seed: number
  readonly seconds: number
  readonly rounds: number
  readonly messages: number
  readonly turns: number
  readonly calls: Readonly<Record<string, number>>
  readonly faults: Readonly<Record<string, number>>
  readonly takeoverMs: ReturnType<typeof quantiles>
  readonly handOverMs: ReturnType<typeof quantiles>
  /** The longest takeover and hand-over of each round, told like violations. */
  readonly slowest: readonly string[]
  readonly settledMs: ReturnType<typeof quantiles>
  readonly watched: Watched
  readonly judged: Judged
  readonly violations: readonly { seed: number; problem: string; tale: string }[]
}

const ROUND_MS = 60_000
const PER_SECOND = 20
/** In so long a time every kind that was asked for takes effect at some time. */
const LONG_S = 600

/**
 * The kinds of a round. In one of four there is nothing that could excuse that a session waits whose own keys were left
 * alone, or that a stop goes unheard; in another one nothing that could excuse a lost turn.
 */
export function kindsOf(seed: number, kinds: readonly string[]): readonly string[] {
  const wanted = seed % 4 === 0 ? CALM : seed % 4 === 2 ? MILD : KINDS
  const some = kinds.filter((kind) => wanted.includes(kind))
  return some.length > 0 ? some : kinds
}

export async function runCampaign(options: CampaignOptions): Promise<Report> {
  const { seed, ttlMs, forMs, kinds = KINDS, roundMs = ROUND_MS, perSecond = PER_SECOND } = options
  const { through = 'library' } = options
  const { signal = new AbortController().signal } = options
  const folder = await mkdtemp(join(tmpdir(), 'butler-torture-'))
  const remove = () => rm(folder, { recursive: true, force: true, maxRetries: 5 })
  const code = join(folder, 'code')
  const made = Promise.all([Servers.start(folder), bundle(code, PROGRAMS)])
  const [servers] = await made.catch(async (error) => {
    await remove()
    throw error
  })
  const rounds: Round[] = []
  const faults: string[] = []
  const began = performance.now()
  const leftMs = () => forMs - (performance.now() - began)
  try {
    // A round that is too short to break anything is not worth its start.
    while (
      !signal.aborted &&
      (rounds.length === 0 || (leftMs() > roundMs / 4 && faults.length < options.faultsMax))
    ) {
      // The next round of this seed is the first one of the next seed.
      const own = seed + rounds.length
      const played = playRound({
        servers,
        folder,
        code,
        ttlMs,
        perSecond,
        through,
        seed: own,
        workers: options.workers,
        signal,
        kinds: kindsOf(own, kinds),
        forMs: Math.min(roundMs, leftMs()),
        faultsMax: options.faultsMax - faults.length,
        onFault: (name) => {
          const count = faults.push(name)
          options.onFault?.(count)
        },
      })
      const round = await played.catch((error: unknown) => {
        if (!signal.aborted) throw error
      })
      if (!round) break
      rounds.push(round)
      options.onRound?.(round)
    }
    const seconds = (performance.now() - began) / 1000
    const report = summary(seed, seconds, rounds, faults)
    if (signal.aborted) return report
    const missing = kinds.filter((kind) => !faults.includes(kind))
    const idle = faults.length === 0 ? ['no fault took effect'] : seconds < LONG_S ? [] : missing.map(never)
    const more = idle.map((problem) => ({ seed, problem: `: ${problem}`, tale: '' }))
    return { ...report, violations: [...report.violations, ...more] }
  } finally {
    await servers.stop()
    await remove()
  }
}

const never = (kind: string) => `${kind} never took effect`

function summary(seed: number, seconds: number, rounds: readonly Round[], faults: readonly string[]): Report {
  const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)
  const calls: Record<string, number> = {}
  for (const round of rounds)
    for (const [name, count] of Object.entries(round.calls)) calls[name] = (calls[name] ?? 0) + count
  const kinds: Record<string, number> = {}
  for (const name of faults.toSorted()) kinds[name] = (kinds[name] ?? 0) + 1
  return {
    seed,
    seconds: Math.round(seconds),
    rounds: rounds.length,
    messages: sum(rounds.map(({ messages }) => messages)),
    turns: sum(rounds.map(({ turns }) => turns)),
    calls,
    faults: kinds,
    takeoverMs: quantiles(rounds.flatMap(({ takeovers }) => takeovers)),
    handOverMs: quantiles(rounds.flatMap(({ handOvers }) => handOvers)),
    slowest: rounds.flatMap(({ slowest }) => slowest),
    settledMs: quantiles(rounds.map(({ settledMs }) => settledMs)),
    watched: {
      watchers: sum(rounds.map(({ watched }) => watched.watchers)),
      breaks: sum(rounds.map(({ watched }) => watched.breaks)),
      entries: sum(rounds.map(({ watched }) => watched.entries)),
      deltas: sum(rounds.map(({ watched }) => watched.deltas)),
    },
    judged: addUp(rounds.map(({ judged }) => judged)),
    violations: rounds.flatMap((round) =>
      round.problems.map((problem, index) => ({ seed: round.seed, problem, tale: round.tales[index] ?? '' })),
    ),
  }
}
