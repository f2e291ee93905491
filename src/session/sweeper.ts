/**
 * Finds sessions with work that nobody is running, whatever notification was lost, and wakes one process for each.
 * One process of the fleet sweeps per tick, elected anew each time, so there is no leader to lose. Retention prunes
 * along the way.
 */
import { processOf } from '../base/ids.ts'
import { now, Ticker } from '../base/timing.ts'
import { prune } from '../mysql/retention.ts'
import { readWaiting, type WaitingSession, type WorkCursor } from '../mysql/sessions.ts'
import { canRun, elect, type HeartbeatValue, members, type Wanted } from '../redis/fleet.ts'
import { isIdle, readMany, tokenOf } from '../redis/lock.ts'
import type { Stores } from './stores.ts'

const PAGE = 500
const PAGES_MAX = 20
/** One process with a long interval must not silence the others' sweeps. */
const TICK_MAX_MS = 5000
const PRUNE_EVERY_MS = 3_600_000

export class Sweeper {
  readonly #stores: Stores
  readonly #processId: string
  readonly #onSuspect: (processId: string, sessionId: string, lockValue: string) => void
  readonly #onUnrunnable: (sessionId: string, message: Wanted) => void
  readonly #onWork: (sessionIds: readonly string[]) => void
  readonly #ticker: Ticker
  readonly #stopped = new AbortController()
  #prunedAt = now()

  constructor(options: {
    stores: Stores
    processId: string
    onSuspect: (processId: string, sessionId: string, lockValue: string) => void
    onUnrunnable: (sessionId: string, message: Wanted) => void
    /** Sessions for this process to serve. */
    onWork: (sessionIds: readonly string[]) => void
  }) {
    const { telemetry, tunables } = options.stores
    this.#stores = options.stores
    this.#processId = options.processId
    this.#onSuspect = options.onSuspect
    this.#onUnrunnable = options.onUnrunnable
    this.#onWork = options.onWork
    this.#ticker = new Ticker({
      tick: () => this.#tick(),
      intervalMs: tunables.sweepMs,
      jitter: 0.2,
      onError: (error) => telemetry.trouble(error, { where: 'sweeper' }),
    })
  }

  start(): void {
    this.#ticker.start()
  }

  get overdue(): boolean {
    return this.#ticker.overdue
  }

  async stop(): Promise<void> {
    this.#stopped.abort()
    await this.#ticker.stop()
  }

  /** Notifications may have been missed: sweep now rather than at the next tick. */
  soon(): void {
    this.#ticker.soon()
  }

  async #tick(): Promise<void> {
    const { redis, keys, tunables } = this.#stores
    if (
      !(await elect(
        redis.commands,
        keys,
        'sweep',
        this.#processId,
        Math.min(tunables.sweepMs * 0.8, TICK_MAX_MS),
      ))
    )
      return
    await this.#sweep()
    await this.#prune()
  }

  async #sweep(): Promise<void> {
    const { redis, keys, mysql, telemetry } = this.#stores
    const alive = new Map(
      [...(await members(redis.commands, keys))].flatMap(([id, value]) =>
        value ? [[id, value] as const] : [],
      ),
    )
    const shares = new Shares(alive)
    let found = 0
    let after: WorkCursor | undefined
    for (let page = 0; page < PAGES_MAX && !this.#stopped.signal.aborted; page++) {
      const { sessions, next } = await readWaiting(mysql.db, { alive: [...alive.keys()], after, limit: PAGE })
      found += sessions.length
      await this.#distribute(sessions, shares)
      if (!next || shares.spent) break
      after = next
    }
    telemetry.emit('sweep.done', { found, woken: shares.given })
  }

  /** A busy lock's owner is told itself; the rest is dealt out to whoever has a free slot and can run it. */
  async #distribute(sessions: readonly WaitingSession[], shares: Shares): Promise<void> {
    const { redis, keys } = this.#stores
    const locks = await readMany(
      redis.commands,
      keys,
      sessions.map(({ sessionId }) => sessionId),
    )
    for (const [index, { sessionId, next }] of sessions.entries()) {
      const value = locks[index] ?? null
      const owner = value === null || isIdle(value) ? undefined : processOf(tokenOf(value))
      if (owner !== undefined && shares.isAlive(owner)) shares.give(owner, sessionId)
      else {
        if (owner !== undefined && value !== null) this.#onSuspect(owner, sessionId, value)
        if (!shares.deal(sessionId, next) && next !== null) this.#onUnrunnable(sessionId, next)
      }
    }
    await Promise.all([...shares.take()].map(([processId, ids]) => this.#tell(processId, ids)))
  }

  /** The last resort must not hang on a notification itself: what nobody else hears, this process serves. */
  async #tell(processId: string, ids: readonly string[]): Promise<void> {
    if (processId === this.#processId) return this.#onWork(ids)
    const { redis, publisher, telemetry } = this.#stores
    const heard = await publisher.wakeProcess(processId, ids).catch((error: unknown) => {
      telemetry.trouble(error, { where: 'sweeper' })
      return null
    })
    // In a cluster one node's 0 says nothing.
    if (heard === null || (heard === 0 && !redis.cluster)) this.#onWork(ids)
  }

  async #prune(): Promise<void> {
    const { mysql, telemetry, tunables } = this.#stores
    if (Object.keys(tunables.retention).length === 0 || now() - this.#prunedAt < PRUNE_EVERY_MS) return
    this.#prunedAt = now()
    const counts = await prune(mysql.db, tunables.retention, this.#stopped.signal)
    telemetry.emit('retention.pruned', { counts: { ...counts } })
  }
}

/** Who gets which sessions in one sweep: round robin over the processes that can run the next message, within their free slots. */
class Shares {
  readonly #alive: ReadonlyMap<string, HeartbeatValue>
  readonly #free: Map<string, number>
  readonly #shares = new Map<string, string[]>()
  /** At random, so that a process that does not act on what it gets is not the first choice of every sweep. */
  #turn = Math.floor(Math.random() * 1000)
  given = 0

  constructor(alive: ReadonlyMap<string, HeartbeatValue>) {
    this.#alive = alive
    this.#free = new Map(
      [...alive].flatMap(([id, { free, draining }]) => (draining ? [] : [[id, free] as const])),
    )
  }

  isAlive(processId: string): boolean {
    return this.#alive.has(processId)
  }

  /** Nobody has a free slot left. */
  get spent(): boolean {
    return ![...this.#free.values()].some((free) => free > 0)
  }

  give(processId: string, sessionId: string): void {
    const share = this.#shares.get(processId)
    if (share) share.push(sessionId)
    else this.#shares.set(processId, [sessionId])
    this.given += 1
  }

  /** False: no process of the fleet can run the next message. True also when all that can are full, or unseen. */
  deal(sessionId: string, next: Wanted | null): boolean {
    const able = [...this.#alive].filter(([, value]) => canRun(value, next ?? {})).map(([id]) => id)
    const free = able.filter((id) => (this.#free.get(id) ?? 0) > 0)
    const chosen = free[this.#turn++ % free.length]
    if (chosen !== undefined) {
      this.#free.set(chosen, (this.#free.get(chosen) ?? 1) - 1)
      this.give(chosen, sessionId)
    }
    return able.length > 0 || this.#alive.size === 0
  }

  /** The shares so far; they start anew. */
  take(): Map<string, string[]> {
    const shares = new Map(this.#shares)
    this.#shares.clear()
    return shares
  }
}
