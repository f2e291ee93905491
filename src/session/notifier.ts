/**
 * Tells somebody that a session has work. A hint and nothing more: whatever is lost here, the sweep finds. So nothing
 * here may fail or hold up its caller for longer than the notification deadline.
 */
import { processOf } from '../base/ids.ts'
import { Lane } from '../base/lane.ts'
import { withDeadline } from '../base/timing.ts'
import { MESSAGE_VERSION } from '../protocol/session-row.ts'
import { pickMember } from '../redis/fleet.ts'
import { tokenOf } from '../redis/lock.ts'
import { pushAndWake, pushMany } from '../redis/queue.ts'
import type { Stores } from './stores.ts'

/** A message that was accepted. */
export interface Notice {
  readonly id: string
  readonly reference: string
  /** It interrupts: everything up to here is stopped. */
  readonly stopThrough?: number | undefined
}

interface Pending extends Notice {
  readonly resolve: () => void
}

export class Notifier {
  readonly #stores: Stores
  /** This process, when it is a worker: work that it gives away must not come back to it. */
  readonly #self: string | undefined
  /** What is told of may be of this form: it is no work for an older version. */
  readonly #version: number
  readonly #notices: Lane<Pending>
  readonly #underWay = new Set<Promise<void>>()

  constructor(stores: Stores, self?: string, version = MESSAGE_VERSION) {
    this.#version = version
    this.#stores = stores
    this.#self = self
    this.#notices = new Lane({
      run: async (notices) => {
        await this.#bounded(this.#notify(notices))
        for (const { resolve } of notices) resolve()
      },
      maxItems: 500,
    })
  }

  /** After a commit: leave a reference in the session's queue and wake its owner, or somebody. Never rejects. */
  accepted(list: readonly Notice[]): Promise<void> {
    return Promise.all(
      list.map((notice) => new Promise<void>((resolve) => this.#notices.push({ ...notice, resolve }))),
    ).then(() => undefined)
  }

  /** After the tombstone was raised: tell the owner, or wake somebody so that stopped messages get their final state. */
  stopped(id: string, owner: string | null, through: number): Promise<void> {
    return this.#bounded(
      (async () => {
        const heard = owner === null ? 0 : await this.#stores.publisher.stop(processOf(owner), id, through)
        if (heard === 0) await this.#wakeSomebody([id])
      })(),
    )
  }

  /** After a change that no entry tells: whoever watches the session looks at its row. Never rejects. */
  changed(id: string): Promise<void> {
    return this.#bounded(this.#stores.publisher.changed([id]))
  }

  /** Wakes the process a lock's value names; falls back to somebody else when nobody heard. */
  wakeOwner(lockValue: string, ids: readonly string[]): Promise<void> {
    return this.#bounded(this.#wakeProcess(processOf(tokenOf(lockValue)), ids))
  }

  /** Wakes one process that is not this one. Never rejects. */
  wakeSomebody(ids: readonly string[]): Promise<void> {
    return this.#bounded(this.#wakeSomebody(ids))
  }

  /** Resolves when nothing is being told any more; before the connection is closed. */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay)
  }

  async #notify(notices: readonly Pending[]): Promise<void> {
    const [first] = notices
    // Alone, the reference and the wake go in one round trip; many share their notifications instead.
    if (first && notices.length === 1 && first.stopThrough === undefined) await this.#notifyOne(first)
    else await this.#notifyMany(notices)
  }

  async #notifyOne(notice: Notice): Promise<void> {
    const { redis, keys } = this.#stores
    const { lock, heard } = await pushAndWake(redis.commands, keys, notice)
    if (lock === null || heard === 0) await this.#wakeSomebody([notice.id])
  }

  async #notifyMany(notices: readonly Pending[]): Promise<void> {
    const { redis, keys, publisher, telemetry } = this.#stores
    const locks = await pushMany(redis.commands, keys, notices)
    const owned = new Map<string, Set<string>>()
    const free = new Set<string>()
    const stops: Promise<unknown>[] = []
    for (const [index, { id, stopThrough }] of notices.entries()) {
      const value = locks[index]
      if (value instanceof Error) telemetry.emit('redis.trouble', { error: value, session: id })
      if (typeof value !== 'string') free.add(id)
      else {
        const process = processOf(tokenOf(value))
        if (stopThrough !== undefined) stops.push(publisher.stop(process, id, stopThrough))
        owned.set(process, (owned.get(process) ?? new Set()).add(id))
      }
    }
    await Promise.all([
      ...stops,
      ...[...owned].map(([process, ids]) => this.#wakeProcess(process, [...ids])),
      this.#wakeSomebody([...free]),
    ])
  }

  async #wakeProcess(process: string, ids: readonly string[]): Promise<void> {
    const heard = await this.#stores.publisher.wakeProcess(process, ids)
    if (heard === 0) await this.#wakeSomebody(ids)
  }

  /** One live process is enough; everybody is asked only when it did not hear. */
  async #wakeSomebody(ids: readonly string[]): Promise<void> {
    if (ids.length === 0) return
    const { redis, keys, publisher } = this.#stores
    const wanted = { version: this.#version, ...(this.#self !== undefined && { not: this.#self }) }
    const member = await pickMember(redis.commands, keys, wanted)
    const heard = member === null ? 0 : await publisher.wakeProcess(member, ids)
    if (heard === 0) await publisher.wakeAll(ids)
  }

  #bounded(work: Promise<unknown>): Promise<void> {
    const { notifyTimeoutMs } = this.#stores.tunables
    const bounded: Promise<void> = withDeadline(
      work,
      notifyTimeoutMs,
      () => new Error('The notification took too long.'),
    )
      .catch((error: unknown) => this.#stores.telemetry.emit('redis.trouble', { error }))
      .then(() => void this.#underWay.delete(bounded))
    this.#underWay.add(bounded)
    return bounded
  }
}
