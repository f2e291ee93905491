/**
 * One session as this process holds it: the lock in Redis under a token of its own, and the row in MySQL that names
 * the same token. Taken, kept, passed on to a new token, given back. The lock is what others see first; the row decides.
 *
 * No step trusts a lock command whose answer is missing: it throws, and the butler lets go of everything.
 */
import { newOwnerToken, processOf } from '../base/ids.ts'
import { deadline, now, sleep } from '../base/timing.ts'
import { acquire, evict, type Verdict } from '../protocol/ownership.ts'
import type { TurnName } from '../protocol/session-row.ts'
import { toUnavailable } from '../redis/connect.ts'
import * as lock from '../redis/lock.ts'
import { recover } from '../redis/queue.ts'
import type { House } from './house.ts'

/** A turn that may be taken from its owner, and why. */
export interface Judged {
  readonly turn: TurnName
  readonly verdict: Verdict
  /** Monotonic time at which its owner was first missed. */
  readonly since: number
}

export class Hold {
  readonly #house: House
  readonly #sessionId: string
  /** Our lock's value; a fresh one for every acquisition, undefined when we hold nothing. */
  token: string | undefined
  /** The row named `token` as owner when we last looked. */
  owned = false
  /** Until when Redis has confirmed the busy lock: request sent + TTL, never reply received + TTL. 0 while idle. */
  confirmedUntil = 0
  epoch = 0

  constructor(house: House, sessionId: string) {
    this.#house = house
    this.#sessionId = sessionId
  }

  /** Whether lock and row are ours at this moment, as far as both were asked. */
  get isConfirmed(): boolean {
    return this.owned && now() < this.confirmedUntil
  }

  /** Ours, as a preference: nobody has asked for it since it turned idle, as far as we know. */
  get isIdle(): boolean {
    return this.owned && this.token !== undefined && this.confirmedUntil === 0
  }

  /**
   * Makes sure that lock and row are ours. An idle lock turns busy by compare-and-set, in the same epoch and without
   * a word to MySQL. False: they are not ours, and what there was to do about it is done.
   */
  async ensure(judged?: Judged): Promise<boolean> {
    if (this.isConfirmed) return true
    if (this.owned && this.token !== undefined) {
      const { redis, keys, tunables } = this.#house.stores
      const asked = now()
      if (
        await redisCall(lock.toBusy(redis.commands, keys, this.#sessionId, this.token, tunables.lockTtlMs))
      ) {
        this.confirmedUntil = asked + tunables.lockTtlMs
        return true
      }
    }
    return this.#acquire(judged)
  }

  /** The row has a new token after a detach: the lock follows. */
  async succeed(successor: string): Promise<boolean> {
    const { redis, keys, tunables } = this.#house.stores
    const before = this.token
    this.token = successor
    this.epoch += 1
    if (before === undefined) return false
    const asked = now()
    const swapped = await redisCall(
      lock.swap(redis.commands, keys, this.#sessionId, before, successor, tunables.lockTtlMs),
    )
    if (swapped) this.confirmedUntil = asked + tunables.lockTtlMs
    return swapped
  }

  /** Gives the lock back, if it is ours, and lets somebody else know. Never rejects. */
  async release(options: { wake: boolean }): Promise<void> {
    const { stores, notifier } = this.#house
    const { token } = this
    this.token = undefined
    this.owned = false
    this.confirmedUntil = 0
    if (token === undefined) return
    const deleted = await lock
      .release(stores.redis.commands, stores.keys, this.#sessionId, token)
      .catch((error: unknown) => {
        stores.telemetry.emit('redis.trouble', { session: this.#sessionId, error })
        return false
      })
    if (deleted) stores.telemetry.emit('session.released', { session: this.#sessionId, epoch: this.epoch })
    // Also when the lock was gone or a stranger's: whoever has it now may have looked at the row before we let go.
    if (options.wake) await notifier.wakeSomebody([this.#sessionId])
  }

  async #acquire(judged: Judged | undefined): Promise<boolean> {
    const { stores, processId, onContested } = this.#house
    const { redis, keys, ledger, tunables, telemetry } = stores
    const session = this.#sessionId
    const token = newOwnerToken(processId)
    this.owned = false
    this.token = token
    const asked = now()
    if (!(await this.#takeLock(token))) {
      this.token = undefined
      return false
    }
    // The lock keeps everybody away meanwhile, so an outage of the database is not waited out here.
    const isLate = () => now() - asked > tunables.lockTtlMs / 3
    const acquired = await ledger.commit(
      session,
      (draft) => {
        if (isLate()) return { outcome: 'late' as const, evicted: false }
        const evicted = judged !== undefined && evict(draft, judged.turn, judged.verdict).evicted
        return { ...acquire(draft, token), evicted }
      },
      { openCalls: judged !== undefined, giveUp: deadline(tunables.lockTtlMs / 3) },
    )
    if (acquired?.outcome !== 'acquired') {
      await this.release({ wake: acquired?.outcome === 'late' })
      if (acquired?.outcome === 'refused') onContested(session, acquired.running)
      return false
    }
    if (acquired.evicted && judged) {
      const { turn, verdict, since } = judged
      const { seq, owner } = turn
      const afterMs = Math.round(now() - since)
      telemetry.emit('session.evicted', { session, seq, owner, verdict, afterMs })
      // The old owner looks at its rows once in that time: an obedient handler there is over before ours begins.
      await sleep(tunables.lookFastMs * 1.2)
    }
    if (isLate()) {
      await this.release({ wake: true })
      return false
    }
    this.owned = true
    this.epoch = acquired.epoch
    this.confirmedUntil = asked + tunables.lockTtlMs
    telemetry.emit('session.acquired', { session, epoch: acquired.epoch, process: processId })
    const recovered = await redisCall(recover(redis.commands, keys, session, token))
    // Somebody else took or deleted the lock at once: the row is still ours, so ask for it back before going on.
    if (recovered.outcome === 'lost') {
      this.confirmedUntil = 0
      await this.#house.verify(session)
    }
    return this.isConfirmed
  }

  async #takeLock(token: string): Promise<boolean> {
    const { stores, processId, isDead, onHeld } = this.#house
    const { redis, keys, tunables } = stores
    const taken = await redisCall(
      lock.acquire(redis.commands, keys, this.#sessionId, token, tunables.lockTtlMs),
    )
    if (taken.acquired) return true
    const { holder } = taken
    // A lock in our own process's name that no butler holds is a left-over of ours; a dead one's nobody holds either.
    const process = processOf(lock.tokenOf(holder))
    if (process === processId || isDead(process)) {
      return redisCall(lock.swap(redis.commands, keys, this.#sessionId, holder, token, tunables.lockTtlMs))
    }
    onHeld(this.#sessionId, holder)
    return false
  }
}

/** A command to Redis whose failure means: hold on to nothing. */
export async function redisCall<T>(command: Promise<T>): Promise<T> {
  try {
    return await command
  } catch (error) {
    throw toUnavailable(error)
  }
}
