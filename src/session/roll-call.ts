/**
 * Finds processes that died and ends the turns they left, so that others can run them within seconds instead of a TTL.
 * A killed process's sockets close: its channel has no subscriber any more, and soon its heartbeat key is gone too.
 * Once a second one process of the fleet calls the roll; whoever is missing is a suspect, and so is a process that did
 * not hear a message meant for it. A suspect that stays away for several looks is dead.
 *
 * A frozen or cut-off process still looks subscribed; its sessions wait for the TTL. After a restart of Redis nobody
 * is judged: only who has been subscribed for clearly longer than the silence it judges may do so. In a Redis Cluster
 * one node knows only its own subscribers, so there are no verdicts at all.
 */
import { now, Ticker } from '../base/timing.ts'
import { readWorkOf } from '../mysql/sessions.ts'
import { evict } from '../protocol/ownership.ts'
import { elect, forget, look, memberIds } from '../redis/fleet.ts'
import { releaseMany, tokenOf } from '../redis/lock.ts'
import type { Stores } from './stores.ts'

interface Suspect {
  /** Start of the unbroken run of looks at which it was missing. */
  since: number
  looks: number
  /** Locks in its name that somebody ran into. */
  readonly locks: Map<string, string>
}

const LOOKS_MIN = 3
const DEAD_MAX = 1000

export class RollCall {
  readonly #stores: Stores
  readonly #processId: string
  readonly #hearingSince: () => number | null
  readonly #onWork: (sessionIds: readonly string[]) => void
  readonly #suspects = new Map<string, Suspect>()
  /** Judged when. A verdict counts for as long as a lock of the dead may stand, and ends when the process is seen again. */
  readonly #dead = new Map<string, number>()
  readonly #call: Ticker
  readonly #looks: Ticker

  constructor(options: {
    stores: Stores
    processId: string
    hearingSince: () => number | null
    /** Sessions that have work and no owner any more. */
    onWork: (sessionIds: readonly string[]) => void
  }) {
    const { telemetry, tunables } = options.stores
    this.#stores = options.stores
    this.#processId = options.processId
    this.#hearingSince = options.hearingSince
    this.#onWork = options.onWork
    const onError = (error: unknown) => telemetry.trouble(error)
    this.#call = new Ticker({
      tick: () => this.#callRoll(),
      intervalMs: tunables.retakeMs,
      jitter: 0.2,
      onError,
    })
    this.#looks = new Ticker({
      tick: () => this.#lookAtSuspects(),
      intervalMs: tunables.deadAfterMs / 4,
      onError,
    })
  }

  start(): void {
    if (this.#stores.redis.cluster) return
    this.#call.start()
    this.#looks.start()
  }

  get overdue(): boolean {
    return this.#call.overdue || this.#looks.overdue
  }

  async stop(): Promise<void> {
    await Promise.all([this.#call.stop(), this.#looks.stop()])
  }

  isDead(processId: string): boolean {
    const judgedAt = this.#dead.get(processId)
    return judgedAt !== undefined && now() - judgedAt < this.#stores.tunables.lockTtlMs * 2
  }

  /** A message to this process was not heard; `sessionId` and `lockValue` are what its lock is in the way of. */
  suspect(processId: string, sessionId?: string, lockValue?: string): void {
    if (processId === this.#processId || this.#stores.redis.cluster) return
    let suspect = this.#suspects.get(processId)
    if (!suspect) {
      suspect = { since: now(), looks: 0, locks: new Map() }
      this.#suspects.set(processId, suspect)
      this.#stores.telemetry.emit('process.suspected', { process: processId })
    }
    if (sessionId !== undefined && lockValue !== undefined) suspect.locks.set(sessionId, lockValue)
  }

  async #callRoll(): Promise<void> {
    const { redis, keys, tunables } = this.#stores
    if (!(await elect(redis.commands, keys, 'roll-call', this.#processId, tunables.retakeMs * 0.9))) return
    const others = (await memberIds(redis.commands, keys)).filter((id) => id !== this.#processId)
    for (const [processId, { subscribed }] of await look(redis.commands, keys, others)) {
      if (subscribed) this.#dead.delete(processId)
      else this.suspect(processId)
    }
  }

  async #lookAtSuspects(): Promise<void> {
    await this.#lookAtDead()
    if (this.#suspects.size === 0) return
    const { redis, keys, tunables } = this.#stores
    const hearingSince = this.#hearingSince()
    if (hearingSince === null || now() - hearingSince < tunables.deadAfterMs) {
      for (const suspect of this.#suspects.values()) Object.assign(suspect, { since: now(), looks: 0 })
      return
    }
    for (const [processId, { subscribed, beating }] of await look(redis.commands, keys, [
      ...this.#suspects.keys(),
    ])) {
      const suspect = this.#suspects.get(processId)
      if (!suspect) continue
      if (subscribed) {
        this.#dead.delete(processId)
        this.#suspects.delete(processId)
        continue
      }
      if (suspect.looks === 0) suspect.since = now()
      suspect.looks += 1
      const isDead = !beating && suspect.looks >= LOOKS_MIN && now() - suspect.since >= tunables.deadAfterMs
      if (isDead) await this.#bury(processId, suspect)
    }
  }

  /** A process that was cut off looks dead and may come back; from then on the verdict is void. */
  async #lookAtDead(): Promise<void> {
    for (const processId of this.#dead.keys()) if (!this.isDead(processId)) this.#dead.delete(processId)
    const { redis, keys } = this.#stores
    for (const [processId, { subscribed }] of await look(redis.commands, keys, [...this.#dead.keys()])) {
      if (subscribed) this.#dead.delete(processId)
    }
  }

  /** Ends the dead process's turns, takes its locks away, and tells the living what there is to do. */
  async #bury(processId: string, suspect: Suspect): Promise<void> {
    const { redis, keys, mysql, ledger, telemetry } = this.#stores
    this.#remember(processId)
    telemetry.emit('process.dead', { process: processId })
    const afterMs = Math.round(now() - suspect.since)
    const left = await readWorkOf(mysql.db, processId)
    await Promise.all(
      left.map(async ({ sessionId, running }) => {
        if (!running) return
        const result = await ledger.commit(sessionId, (draft) => evict(draft, running, 'dead'), {
          openCalls: true,
        })
        if (!result?.evicted) return
        const { seq, owner } = running
        telemetry.emit('session.evicted', { session: sessionId, seq, owner, verdict: 'dead', afterMs })
      }),
    )
    const locks = new Map([...suspect.locks].map(([id, value]) => [id, tokenOf(value)]))
    for (const { sessionId, owner } of left) locks.set(sessionId, owner)
    await releaseMany(
      redis.commands,
      keys,
      [...locks].map(([id, token]) => ({ id, token })),
    )
    await forget(redis.commands, keys, processId)
    this.#suspects.delete(processId)
    this.#onWork([...locks.keys()])
  }

  #remember(processId: string): void {
    this.#dead.delete(processId)
    this.#dead.set(processId, now())
    const [oldest] = this.#dead.keys()
    if (this.#dead.size > DEAD_MAX && oldest !== undefined) this.#dead.delete(oldest)
  }
}
