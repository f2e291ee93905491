/**
 * Keeps the locks of busy sessions alive: every `renewMs`, all of them in one pipeline. A lock that is missing or a
 * stranger's is not a loss, only a reason to read the row: after a flush of Redis the healthy owner takes it back.
 */
import { processOf } from '../base/ids.ts'
import { now, Ticker } from '../base/timing.ts'
import { readOwners } from '../mysql/sessions.ts'
import { type Renewed, renewMany, swap, tokenOf } from '../redis/lock.ts'
import type { Butler } from './butler.ts'
import { redisCall } from './hold.ts'
import type { Registry } from './registry.ts'
import type { Stores } from './stores.ts'

interface Asked {
  readonly butler: Butler
  readonly token: string
  readonly wasIdle: boolean
  readonly reply: Renewed
}

export class Renewer {
  readonly #stores: Stores
  readonly #registry: Registry
  readonly #processId: string
  readonly #isDead: (processId: string) => boolean
  readonly #ticker: Ticker

  constructor(options: {
    stores: Stores
    registry: Registry
    processId: string
    isDead: (processId: string) => boolean
  }) {
    const { telemetry, tunables } = options.stores
    this.#stores = options.stores
    this.#registry = options.registry
    this.#processId = options.processId
    this.#isDead = options.isDead
    this.#ticker = new Ticker({
      tick: () => {
        this.#reportLate()
        return this.renew([...this.#registry.holding()])
      },
      intervalMs: tunables.renewMs,
      onError: (error) => telemetry.trouble(error, { where: 'renewer' }),
    })
  }

  start(): void {
    this.#ticker.start()
  }

  stop(): Promise<void> {
    return this.#ticker.stop()
  }

  /** Redis is back: locks may be missing. */
  soon(): void {
    this.#ticker.soon()
  }

  get overdue(): boolean {
    return this.#ticker.overdue
  }

  /** Whether some lock is not confirmed as freshly as it should be. */
  get late(): boolean {
    return !this.#late().next().done
  }

  *#late(): Iterator<Butler> & Iterable<Butler> {
    const { lockTtlMs, renewMs } = this.#stores.tunables
    const oldest = now() + lockTtlMs - renewMs * 1.2
    for (const butler of this.#registry.holding()) if (butler.hold.confirmedUntil < oldest) yield butler
  }

  /** At the next renewal's time, one that has been asked for before is a whole interval late. */
  #reportLate(): void {
    const { lockTtlMs, renewMs } = this.#stores.tunables
    for (const { sessionId: session, hold } of this.#late()) {
      // A lock command without an answer is no lock yet: what follows it is told there.
      if (hold.confirmedUntil === 0) continue
      const lateMs = Math.round(now() + lockTtlMs - renewMs - hold.confirmedUntil)
      this.#stores.telemetry.emit('lock.late', { session, epoch: hold.epoch, lateMs })
    }
  }

  /** Renews these locks now and settles every doubt by the row. Rejects when the row or a stranger cannot be reached. */
  async renew(butlers: readonly Butler[]): Promise<void> {
    const { redis, keys, tunables, telemetry } = this.#stores
    const holding = butlers.flatMap((butler) =>
      butler.hold.owned && butler.hold.token !== undefined
        ? [{ butler, id: butler.sessionId, token: butler.hold.token, wasIdle: butler.hold.isIdle }]
        : [],
    )
    if (holding.length === 0) return
    const askedAt = now()
    const replies = await renewMany(redis.commands, keys, holding, tunables.lockTtlMs)
    const doubtful: Asked[] = []
    for (const [index, { butler, token, wasIdle }] of holding.entries()) {
      const reply = replies[index]
      if (butler.hold.token !== token) continue
      if (reply === undefined || reply instanceof Error) {
        telemetry.emit('redis.trouble', { error: reply ?? new Error('no answer'), session: butler.sessionId })
        continue
      }
      if (reply !== 'held') doubtful.push({ butler, token, wasIdle, reply })
      // Unless it has turned idle behind the renewal.
      else if (wasIdle || !butler.hold.isIdle) butler.hold.confirmedUntil = askedAt + tunables.lockTtlMs
    }
    if (doubtful.length > 0) await this.#settle(doubtful, askedAt)
  }

  async #settle(doubtful: readonly Asked[], askedAt: number): Promise<void> {
    const { mysql, tunables, telemetry } = this.#stores
    const owners = await readOwners(
      mysql.db,
      doubtful.map(({ butler }) => butler.sessionId),
    )
    for (const { butler, token, wasIdle, reply } of doubtful) {
      // It may have got a new token, or lost its session, while we were asking.
      if (butler.hold.token !== token || !butler.hold.owned) continue
      if (owners.get(butler.sessionId)?.owner !== token) {
        this.#registry.lose(butler, 'the row names another owner')
      } else if (!wasIdle && butler.hold.isIdle) {
        // It has turned idle behind the renewal: what the lock is now, the next turn will ask.
        continue
      } else if (reply === 'retaken') {
        butler.hold.confirmedUntil = askedAt + tunables.lockTtlMs
        telemetry.emit('lock.retaken', { session: butler.sessionId, seq: butler.turn?.name.seq })
      } else if (typeof reply === 'object' && 'holder' in reply) {
        await this.#reclaim(butler, token, reply.holder, askedAt)
      }
    }
  }

  /** The row is ours but the lock is a stranger's. */
  async #reclaim(butler: Butler, token: string, holder: string, askedAt: number): Promise<void> {
    const { redis, keys, tunables, publisher, telemetry } = this.#stores
    const stranger = processOf(tokenOf(holder))
    if (stranger === this.#processId || this.#isDead(stranger)) {
      const { sessionId } = butler
      const swapped = await redisCall(
        swap(redis.commands, keys, sessionId, holder, token, tunables.lockTtlMs),
      )
      if (swapped) butler.hold.confirmedUntil = askedAt + tunables.lockTtlMs
      return
    }
    // It learns from the row that the session is not its own, and gives the lock back.
    telemetry.emit('session.contested', { session: butler.sessionId, owner: token })
    await redisCall(publisher.wakeProcess(stranger, [butler.sessionId]))
  }
}
