/**
 * Whether a process does what it is there for, as readiness probes ask it: not whether a ping is answered, but what has
 * been got through lately. A sign must last for a grace before it counts, so that a short outage, which everything
 * survives, does not take a whole fleet out of service at once.
 */
import { checkOptions, whole } from '../base/arguments.ts'
import { now, Ticker, withDeadline } from '../base/timing.ts'
import { pingMysql } from '../mysql/diagnosis.ts'
import { pingRedis } from '../redis/diagnosis.ts'
import type { Stores } from './stores.ts'

/**
 * `starting`, `draining`, `stopped`: as they say. `redis`, `mysql`: does not answer. `deaf`: notifications are not heard.
 * `stalled`: the event loop stood still. `renewals`: locks are not kept alive. `looks`, `sweep`, `roll-call`: this loop
 * does not get through.
 */
export type ProblemCode = Phase | Sign | 'stalled'
export interface Problem {
  readonly code: ProblemCode
  /** ISO time. */
  readonly since: string
}

export interface Health {
  /** Whether it should get work or requests. */
  readonly ready: boolean
  /** Why not; the longest first. */
  readonly problems: readonly Problem[]
}

export interface HealthOptions {
  /** How long a store or a loop may be away before it counts, milliseconds. Default 5,000, at most 60,000. */
  readonly graceMs?: number | undefined
}

export type Phase = 'starting' | 'draining' | 'stopped'
export type Sign = 'redis' | 'mysql' | 'deaf' | 'renewals' | 'looks' | 'sweep' | 'roll-call'

const GRACE_MS = 5000
const EXAMINE_MS = 500
const PING_MS = 2000

function graceOf(options: HealthOptions): number {
  checkOptions(options, ['graceMs'])
  return whole('graceMs', options.graceMs ?? GRACE_MS, 0, 60_000)
}

/** Since when there has been what. */
class Symptoms {
  readonly #since = new Map<ProblemCode, number>()

  note(code: ProblemCode, isThere: boolean, since = now()): void {
    if (!isThere) this.#since.delete(code)
    else if (!this.#since.has(code)) this.#since.set(code, since)
  }

  health(graceMs: number): Health {
    const counting = [...this.#since].filter(([code, at]) => !(code in LASTING) || now() - at >= graceMs)
    const problems = counting
      .sort(([, a], [, b]) => a - b)
      .map(([code, at]) => ({ code, since: new Date(Date.now() - (now() - at)).toISOString() }))
    return { ready: problems.length === 0, problems }
  }
}

/** What counts only when it lasts. */
const LASTING: Readonly<Record<Sign, true>> = {
  redis: true,
  mysql: true,
  deaf: true,
  renewals: true,
  looks: true,
  sweep: true,
  'roll-call': true,
}

/** Of a worker: examined all the time, so that it is known since when. */
export class Checkup {
  readonly #symptoms = new Symptoms()
  readonly #signs: Readonly<Record<Sign, () => boolean>>
  readonly #phase: () => Phase | undefined
  readonly #stallMs: number
  readonly #ticker: Ticker
  #examinedAt: number | undefined
  #stall: { readonly since: number; readonly until: number } | undefined

  constructor(options: {
    stores: Stores
    signs: Readonly<Record<Sign, () => boolean>>
    /** Undefined: it serves. */
    phase: () => Phase | undefined
  }) {
    const { telemetry, tunables } = options.stores
    this.#signs = options.signs
    this.#phase = options.phase
    this.#stallMs = tunables.renewMs
    this.#ticker = new Ticker({
      tick: () => this.#examine(),
      intervalMs: EXAMINE_MS,
      onError: (error) => telemetry.emit('background.error', { where: 'health', error }),
    })
  }

  start(): void {
    this.#examinedAt = now()
    this.#ticker.start()
  }

  stop(): Promise<void> {
    return this.#ticker.stop()
  }

  health(options: HealthOptions = {}): Health {
    const graceMs = graceOf(options)
    this.#examine()
    return this.#symptoms.health(graceMs)
  }

  #examine(): void {
    const phase = this.#phase()
    for (const each of ['starting', 'draining', 'stopped'] as const) this.#symptoms.note(each, phase === each)
    const isServing = phase === undefined
    for (const [sign, shows] of Object.entries(this.#signs) as [Sign, () => boolean][])
      this.#symptoms.note(sign, isServing && shows())
    if (this.#examinedAt !== undefined) this.#noteStall(this.#examinedAt, isServing)
    this.#examinedAt = now()
  }

  /** For as long again as the grace: whoever asks could not be answered while it lasted. */
  #noteStall(examinedAt: number, isServing: boolean): void {
    if (now() - examinedAt - EXAMINE_MS > this.#stallMs)
      this.#stall = { since: examinedAt, until: now() + GRACE_MS }
    const { since = now(), until = 0 } = this.#stall ?? {}
    this.#symptoms.note('stalled', isServing && now() < until, since)
  }
}

/** Of a client: both stores are asked when somebody wants to know. */
export class StoreCheck {
  readonly #stores: Stores
  readonly #symptoms = new Symptoms()
  #asking: Promise<void> | undefined
  #closed = false

  constructor(stores: Stores) {
    this.#stores = stores
  }

  /** Nothing is asked any more. */
  close(): void {
    this.#closed = true
    this.#symptoms.note('stopped', true)
  }

  /** Never rejects but for options that cannot be meant. However many ask at once, the stores are asked once. */
  async health(options: HealthOptions = {}): Promise<Health> {
    const graceMs = graceOf(options)
    if (!this.#closed) await (this.#asking ??= this.#ask())
    return this.#symptoms.health(graceMs)
  }

  async #ask(): Promise<void> {
    const { redis, mysql } = this.#stores
    await Promise.all([
      this.#try('redis', pingRedis(redis.commands)),
      this.#try('mysql', pingMysql(mysql.db)),
    ])
    this.#asking = undefined
  }

  async #try(sign: Sign, ping: Promise<unknown>): Promise<void> {
    const askedAt = now()
    const isAway = await withDeadline(ping, PING_MS, () => new Error('no answer')).then(
      () => false,
      () => true,
    )
    this.#symptoms.note(sign, isAway, askedAt)
  }
}
