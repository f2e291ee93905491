// The lanes on which faults come: one fault after the other on each, the lanes side by side. What comes in a lane, on
// whom and for how long is thrown with the lane's own dice, so it is the same for the same seed.
import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { eventually } from '../support/eventually.ts'
import type { Note } from '../support/history.ts'
import { Dice } from './dice.ts'
import type { Fault, Heal } from './fault.ts'
import { keyFaults } from './key-faults.ts'
import { type Line, lineFaults } from './line-faults.ts'
import { mysqlFaults } from './mysql-faults.ts'
import { occupied, producerFaults, workerFaults } from './process-faults.ts'
import { redisFaults } from './redis-faults.ts'
import type { Post, Stage } from './stage.ts'

const FAULTS: readonly Pick<Fault, 'name' | 'costs' | 'gentle'>[] = [
  ...redisFaults,
  ...mysqlFaults,
  ...workerFaults,
  ...lineFaults,
  ...keyFaults,
  ...producerFaults,
]

export const KINDS: readonly string[] = FAULTS.map(({ name }) => name)

/** Kinds that make nobody wait, except for the session whose keys they meet. */
export const CALM: readonly string[] = FAULTS.filter(
  ({ name, gentle }) => gentle || keyFaults.some((fault) => fault.name === name),
).map(({ name }) => name)

/** Kinds that cost nobody a running turn, as long as the database is there. */
export const MILD: readonly string[] = FAULTS.filter(
  ({ name, costs }) => costs === 'none' && !name.startsWith('mysql-'),
).map(({ name }) => name)

export interface LaneOptions {
  readonly stage: Stage
  readonly seed: number
  readonly ttlMs: number
  readonly kinds: readonly string[]
  /** Told of each fault that took effect. */
  readonly onFault: (name: string) => void
  readonly over: AbortSignal
}

/** Pause between two faults of a lane, in lock TTLs: a process takes a while to start, and is to do something then. */
const PAUSES = {
  redis: [0.5, 2.5],
  mysql: [1, 4],
  keys: [0.1, 1],
  worker: [1, 4],
  line: [0.5, 2.5],
  producer: [3, 9],
} as const
/** Servers and workers that may be away at the same time. */
const AWAY_MAX = 2
/** On a busy machine a server may not answer at once when it is told that all is well again. */
const HEAL_MS = 90_000

interface Lane<Target> {
  readonly name: string
  readonly pause: readonly [low: number, high: number]
  readonly faults: readonly Fault<Target>[]
  readonly target: (dice: Dice) => Target
  /** What is noted of the target. */
  readonly about?: (target: Target) => { process?: string; store?: string; session?: string }
  readonly ready?: () => Promise<unknown>
  /** Its faults take somebody away. */
  readonly takesAway?: boolean
}

/** Runs all lanes until `over`; settles when every fault is healed. Rejects when the rig itself fails. */
export async function runLanes(given: LaneOptions): Promise<void> {
  const failed = new AbortController()
  const options = { ...given, over: AbortSignal.any([given.over, failed.signal]) }
  setMaxListeners(0, options.over)
  const { stage } = options
  const away = new Places(AWAY_MAX)
  const store = (name: 'redis' | 'mysql', faults: readonly Fault[]) =>
    runLane(options, away, {
      name,
      faults,
      pause: PAUSES[name],
      takesAway: true,
      target: () => undefined,
    })
  const line = (name: string, lines: readonly Line[], process: () => string) =>
    runLane(options, away, {
      name: `line-${name}`,
      pause: PAUSES.line,
      faults: lineFaults,
      target: (dice: Dice) => dice.pick(lines),
      about: ({ store: to }: Line) => ({ store: to, process: process() }),
    })
  const lanes = [
    store('redis', redisFaults),
    store('mysql', mysqlFaults),
    runLane(options, away, {
      name: 'keys',
      faults: keyFaults,
      pause: PAUSES.keys,
      target: (dice: Dice) => dice.pick(stage.options.sessions),
      about: (session: string) => ({ session }),
    }),
    ...stage.posts.flatMap((post, index) => [
      runLane(options, away, {
        name: `worker-${index}`,
        pause: PAUSES.worker,
        faults: workerFaults,
        target: () => post,
        about: () => ({ process: post.member.processId }),
        ready: () => occupied(post),
        takesAway: true,
      }),
      line(String(index), linesOf(post), () => post.member.processId),
    ]),
    ...stage.desks.flatMap((desk) => [
      runLane(options, away, {
        name: desk.name,
        pause: PAUSES.producer,
        faults: producerFaults,
        target: () => desk,
        about: () => ({ process: desk.name }),
      }),
      line(desk.name, desk.lines, () => desk.name),
    ]),
    ...(stage.window ? [stage.window] : []).map(({ name, lines }) => line(name, lines, () => name)),
  ]
  for (const lane of lanes) lane.catch(() => failed.abort())
  await Promise.allSettled(lanes)
  await Promise.all(lanes)
}

const linesOf = ({ lines: { redis, mysql } }: Post): Line[] => [
  { store: 'redis', proxy: redis, ofWorker: true },
  { store: 'mysql', proxy: mysql, ofWorker: true },
]

async function runLane<Target>(
  { stage, seed, ttlMs, kinds, onFault, over }: LaneOptions,
  away: Places,
  lane: Lane<Target>,
): Promise<void> {
  const faults = lane.faults.filter(({ name }) => kinds.includes(name))
  if (faults.length === 0) return
  for (let number = 1; !over.aborted; number++) {
    const dice = Dice.of(seed, lane.name, number)
    await pause(ttlMs * (lane.pause[0] + (lane.pause[1] - lane.pause[0]) * dice.next()), over)
    const target = lane.target(dice)
    const fitting = faults.filter(({ fits }) => fits?.(target) ?? true)
    if (fitting.length === 0) continue
    const fault = dice.weighted(fitting)
    const lastsMs = ttlMs * (fault.lasts[0] + (fault.lasts[1] - fault.lasts[0]) * dice.next())
    const place = lane.takesAway && fault.lasts[1] > 0 ? await away.take() : undefined
    try {
      await lane.ready?.()
      if (over.aborted) return
      const { name, costs, gentle = false, silences = false } = fault
      const fields = { id: `${lane.name}.${number}`, costs, gentle, silences, ...lane.about?.(target) }
      const say = (what: Note['what'], more: Record<string, unknown> = {}) =>
        stage.note({ what, name, fields: { ...fields, ...more } })
      say('fault')
      let heal: Heal | false | void = false
      try {
        heal = await fault.begin(stage, dice, target)
        if (heal === false) say('void')
      } catch (error) {
        // Something else is broken already: Redis cannot be flushed while it is away.
        say('void', { reason: String(error) })
      }
      if (heal === false) continue
      if (lastsMs > 0) await pause(lastsMs, over)
      const met = heal && (await eventually(heal, { ms: HEAL_MS, everyMs: 500, what: `the end of ${name}` }))
      if (met === false) {
        say('void')
        continue
      }
      say('healed', lane.about?.(target))
      onFault(name)
    } finally {
      place?.()
    }
  }
}

/** So many at the same time; the others wait for their turn. */
class Places {
  #free: number
  readonly #line: (() => void)[] = []

  constructor(places: number) {
    this.#free = places
  }

  async take(): Promise<() => void> {
    if (this.#free === 0) await new Promise<void>((resolve) => this.#line.push(resolve))
    else this.#free -= 1
    return () => {
      const next = this.#line.shift()
      if (next) next()
      else this.#free += 1
    }
  }
}

const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  sleep(ms, undefined, { signal }).then(
    () => undefined,
    () => undefined,
  )
