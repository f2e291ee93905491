/**
 * Says that this process lives and what it can do: a heartbeat key, and membership of the fleet. The same tick notices
 * when the event loop stood still, because then it comes late.
 */
import { hostname } from 'node:os'
import { now, Ticker } from '../base/timing.ts'
import { beat, type HeartbeatValue, leave } from '../redis/fleet.ts'
import type { Stores } from './stores.ts'

const HERE = { host: hostname(), pid: process.pid }

/** Membership is confirmed with every so many beats; it only gets lost when Redis does. */
const JOIN_EVERY = 8

export class Presence {
  readonly #stores: Stores
  readonly #processId: string
  readonly #state: () => HeartbeatValue
  readonly #ticker: Ticker
  #beats = 0
  #lastAt = now()

  constructor(options: { stores: Stores; processId: string; state: () => HeartbeatValue }) {
    const { telemetry, tunables } = options.stores
    this.#stores = options.stores
    this.#processId = options.processId
    this.#state = options.state
    this.#ticker = new Ticker({
      tick: () => this.#beat(),
      intervalMs: tunables.heartbeatMs,
      onError: (error) => telemetry.emit('redis.trouble', { error }),
    })
  }

  start(): void {
    this.#lastAt = now()
    this.#ticker.start()
    this.#ticker.soon()
  }

  /** Redis may have forgotten us, or should know at once what changed. */
  soon(): void {
    this.#beats = 0
    this.#ticker.soon()
  }

  /** The fleet does not hear of this process. */
  get unseen(): boolean {
    return this.#ticker.failing || this.#ticker.overdue
  }

  /** Ends the heartbeat and leaves the fleet. */
  async stop(): Promise<void> {
    await this.#ticker.stop()
    const { redis, keys, telemetry } = this.#stores
    await leave(redis.commands, keys, this.#processId).catch((error: unknown) =>
      telemetry.emit('redis.trouble', { error }),
    )
  }

  async #beat(): Promise<void> {
    const { redis, keys, tunables, telemetry } = this.#stores
    const lagMs = Math.round(now() - this.#lastAt - tunables.heartbeatMs)
    this.#lastAt = now()
    if (lagMs > tunables.renewMs) telemetry.emit('worker.stalled', { process: this.#processId, lagMs })
    const join = this.#beats++ % JOIN_EVERY === 0
    const value = { ...this.#state(), ...HERE }
    await beat(redis.commands, keys, this.#processId, value, tunables.heartbeatTtlMs, { join })
  }
}
