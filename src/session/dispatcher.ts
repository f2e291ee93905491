/**
 * Gives work to other processes: to the one that has the session's lock, to one that has the handler, to whoever has
 * free slots. Everything here is a notification, so nothing of it may fail; the sweep repairs what is lost.
 */
import { processOf } from '../base/ids.ts'
import { now, Ticker } from '../base/timing.ts'
import { canRun, type HeartbeatValue, members, pickMember } from '../redis/fleet.ts'
import { tokenOf } from '../redis/lock.ts'
import type { Unrunnable } from './house.ts'
import type { Notifier } from './notifier.ts'
import type { Registry } from './registry.ts'
import type { Stores } from './stores.ts'

/** A process and how many turns it could start. */
type FreeSlots = readonly [processId: string, slots: number]

export class Dispatcher {
  readonly #stores: Stores
  readonly #processId: string
  readonly #version: number
  readonly #notifier: Notifier
  readonly #registry: Registry
  readonly #onDeaf: (processId: string, sessionId: string, lockValue: string) => void
  readonly #onFull: () => void
  readonly #ticker: Ticker
  #crowded = false
  /** Nobody had a free slot, or nothing here was to be given away: until then another look is not worth it. */
  #relievedUntil = 0

  constructor(options: {
    stores: Stores
    processId: string
    /** The newest form of messages that this process understands. */
    version: number
    notifier: Notifier
    registry: Registry
    /** Somebody believes that there is a free slot here, and there is none. */
    onFull: () => void
    /** A process did not hear what was meant for it. */
    onDeaf: (processId: string, sessionId: string, lockValue: string) => void
  }) {
    const { telemetry, tunables } = options.stores
    this.#stores = options.stores
    this.#processId = options.processId
    this.#version = options.version
    this.#notifier = options.notifier
    this.#registry = options.registry
    this.#onDeaf = options.onDeaf
    this.#onFull = options.onFull
    this.#ticker = new Ticker({
      tick: () => this.#giveAway(),
      intervalMs: tunables.giveAwayMs / 2,
      jitter: 0.5,
      onError: (error) => telemetry.trouble(error),
    })
  }

  start(): void {
    this.#ticker.start()
  }

  stop(): Promise<void> {
    return this.#ticker.stop()
  }

  /** The session's lock is another process's: tell that one, and look closer when it does not hear. */
  async passOn(session: string, lockValue: string): Promise<void> {
    const owner = processOf(tokenOf(lockValue))
    await this.#quietly(session, async () => {
      const heard = await this.#stores.publisher.wakeProcess(owner, [session])
      if (heard === 0) this.#onDeaf(owner, session, lockValue)
    })
  }

  /** This process cannot run the session's next message. One that can but is full gets it from a sweep. */
  async findCapable(session: string, { seq, kind, version }: Unrunnable): Promise<void> {
    const { redis, keys, publisher, telemetry } = this.#stores
    await this.#quietly(session, async () => {
      const able = await pickMember(redis.commands, keys, { kind, version, not: this.#processId })
      if (able !== null) return void (await publisher.wakeProcess(able, [session]))
      const fleet = await members(redis.commands, keys)
      const others = [...fleet].flatMap(([id, value]) => (value && id !== this.#processId ? [value] : []))
      if (others.some((value) => canRun(value, { kind, version }))) return
      telemetry.emit('message.unrunnable', { session, seq, kind, version })
    })
  }

  /** Sessions of a dead process: some for us, as far as we have slots, the others for the rest of the fleet. */
  async share(sessionIds: readonly string[]): Promise<void> {
    const here = Math.ceil(this.#registry.free / 2)
    for (const id of sessionIds.slice(0, here)) this.#registry.wake(id)
    await this.#dealOut(sessionIds.slice(here))
  }

  /**
   * We were woken for sessions because of a heartbeat that was no longer true. A slot that is free elsewhere now is
   * better than one here later. Everybody who passes on says first that it is full, so nothing goes round in circles.
   */
  relieve(): void {
    if (this.#registry.waiting === 0 || now() < this.#relievedUntil) return
    this.#crowded = true
    this.#onFull()
    this.#ticker.soon()
  }

  /** Sessions that have waited here for too long go to processes with a free slot, if there are any. */
  async #giveAway(): Promise<void> {
    const crowded = this.#crowded
    this.#crowded = false
    if (this.#registry.waiting === 0) return
    const { telemetry, tunables } = this.#stores
    const free = await this.#freeElsewhere()
    const most = free.reduce((sum, [, slots]) => sum + slots, 0)
    if (most === 0) {
      this.#relievedUntil = now() + tunables.heartbeatMs
      telemetry.emit('worker.overloaded', { process: this.#processId, waiting: this.#registry.waiting })
      return
    }
    const ids = await this.#registry.giveAway(tunables.giveAwayMs, most, crowded)
    if (crowded && ids.length === 0) this.#relievedUntil = now() + tunables.heartbeatMs
    for (const session of ids) telemetry.emit('session.givenAway', { session })
    await this.#dealOut(ids, free)
  }

  async #dealOut(ids: readonly string[], free?: readonly FreeSlots[]): Promise<void> {
    if (ids.length === 0) return
    const { publisher, redis } = this.#stores
    await this.#quietly(undefined, async () => {
      const rest = [...ids]
      for (const [processId, slots] of free ?? (await this.#freeElsewhere())) {
        const share = rest.splice(0, slots)
        if (share.length === 0) continue
        const heard = await publisher.wakeProcess(processId, share)
        // In a cluster one node answers for itself only: 0 says nothing there.
        if (heard === 0 && !redis.cluster) rest.push(...share)
      }
      if (rest.length > 0) await this.#notifier.wakeSomebody(rest)
    })
  }

  /** What waits here may be of the newest form that is understood here: it is no work for an older version. */
  async #freeElsewhere(): Promise<FreeSlots[]> {
    const { redis, keys } = this.#stores
    const isAble = (value: HeartbeatValue) =>
      !value.draining && value.free > 0 && canRun(value, { version: this.#version })
    return [...(await members(redis.commands, keys))].flatMap(([id, value]) =>
      value && id !== this.#processId && isAble(value) ? [[id, value.free] as const] : [],
    )
  }

  async #quietly(session: string | undefined, work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      this.#stores.telemetry.trouble(error, { session })
    }
  }
}
