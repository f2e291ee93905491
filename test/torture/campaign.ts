// A campaign: round after round on the same servers, and what came of them in numbers.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { bundle } from '../support/bundle.ts'
import { KINDS, MILD } from './lanes.ts'
import { quantiles } from './passages.ts'
import { playRound, type Round } from './round.ts'
import { Servers } from './servers.ts'
import { PROGRAMS } from './stage.ts'

export interface CampaignOptions {
  readonly seed: number
  readonly ttlMs: number
  readonly workers: number
  readonly forMs: number
  /** Ends with this many faults, if that comes first. */
  readonly faultsMax: number
  readonly kinds?: readonly string[]
  readonly roundMs?: number
  readonly perSecond?: number
  readonly onFault?: (faults: number) => void
  readonly onRound?: (round: Round) => void
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
  readonly violations: readonly { seed: number; problem: string; tale: string }[]
}

const ROUND_MS = 60_000
const PER_SECOND = 20

export async function runCampaign(options: CampaignOptions): Promise<Report> {
  const { seed, ttlMs, forMs, kinds = KINDS, roundMs = ROUND_MS, perSecond = PER_SECOND } = options
  const folder = await mkdtemp(join(tmpdir(), 'butler-torture-'))
  const remove = () => rm(folder, { recursive: true, force: true, maxRetries: 5 })
  const code = join(folder, 'code')
  const made = Promise.all([Servers.start(folder), bundle(code, PROGRAMS)])
  const [servers] = await made.catch(async (error) => {
    await remove()
    throw error
  })
  const mild = kinds.filter((kind) => MILD.includes(kind))
  const rounds: Round[] = []
  const faults: string[] = []
  const began = performance.now()
  const leftMs = () => forMs - (performance.now() - began)
  try {
    // A round that is too short to break anything is not worth its start.
    while (rounds.length === 0 || (leftMs() > roundMs / 4 && faults.length < options.faultsMax)) {
      // The next round of this seed is the first one of the next seed.
      const own = seed + rounds.length
      const round = await playRound({
        servers,
        folder,
        code,
        ttlMs,
        perSecond,
        seed: own,
        workers: options.workers,
        // In every third one there is nothing that could excuse a lost turn.
        kinds: own % 3 === 0 && mild.length > 0 ? mild : kinds,
        forMs: Math.min(roundMs, leftMs()),
        faultsMax: options.faultsMax - faults.length,
        onFault: (name) => {
          const count = faults.push(name)
          options.onFault?.(count)
        },
      })
      rounds.push(round)
      options.onRound?.(round)
    }
    return summary(seed, (performance.now() - began) / 1000, rounds, faults)
  } finally {
    await servers.stop()
    await remove()
  }
}

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
    violations: rounds.flatMap((round) =>
      round.problems.map((problem, index) => ({ seed: round.seed, problem, tale: round.tales[index] ?? '' })),
    ),
  }
}
