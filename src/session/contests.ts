/**
 * Sessions whose lock was free although the row says that a turn runs there. Mostly Redis was flushed and the owner is
 * about to take its lock back; sometimes the owner is frozen, cut off or gone. Each second the owner is asked to take
 * it back; when it does, the contest is over. When it shows no heartbeat for a while, or does not come back for a full
 * TTL, the turn is taken from it.
 */
import { processOf } from '../base/ids.ts'
import { now, Ticker } from '../base/timing.ts'
import type { Verdict } from '../protocol/ownership.ts'
import type { TurnName } from '../protocol/session-row.ts'
import { type Look, look } from '../redis/fleet.ts'
import { readMany, tokenOf } from '../redis/lock.ts'
import type { Judged } from './hold.ts'
import type { Stores } from './stores.ts'

interface Contest {
  readonly turn: TurnName
  readonly since: number
  /** Since when every look missed the owner's heartbeat. */
  missingSince: number | undefined
}

const CONTESTS_MAX = 10_000

export class Contests {
  readonly #stores: Stores
  /** Since when this process hears notifications without a break; a verdict needs longer than the silence it judges. */
  readonly #hearingSince: () => number | null
  readonly #isDead: (processId: string) => boolean
  readonly #onSuspect: (processId: string) => void
  readonly #onVerdict: (sessionId: string, judged: Judged) => void
  readonly #contests = new Map<string, Contest>()
  readonly #ticker: Ticker

  constructor(options: {
    stores: Stores
    hearingSince: () => number | null
    /** The roll call's verdict. */
    isDead: (processId: string) => boolean
    /** An owner that shows no sign of life: whether it is dead is for the roll call to find out. */
    onSuspect: (processId: string) => void
    onVerdict: (sessionId: string, judged: Judged) => void
  }) {
    const { telemetry, tunables } = options.stores
    this.#stores = options.stores
    this.#hearingSince = options.hearingSince
    this.#isDead = options.isDead
    this.#onSuspect = options.onSuspect
    this.#onVerdict = options.onVerdict
    this.#ticker = new Ticker({
      tick: () => this.#look(),
      intervalMs: tunables.retakeMs,
      onError: (error) => telemetry.trouble(error),
    })
  }

  start(): void {
    this.#ticker.start()
  }

  stop(): Promise<void> {
    return this.#ticker.stop()
  }

  add(sessionId: string, turn: TurnName): void {
    const known = this.#contests.get(sessionId)
    if (
      known &&
      known.turn.owner === turn.owner &&
      known.turn.seq === turn.seq &&
      known.turn.starts === turn.starts
    )
      return
    if (!known && this.#contests.size >= CONTESTS_MAX) return
    this.#stores.telemetry.emit('session.refused', { session: sessionId, owner: turn.owner })
    this.#contests.set(sessionId, { turn, since: now(), missingSince: undefined })
    this.#ask(sessionId, turn)
  }

  async #look(): Promise<void> {
    if (this.#contests.size === 0) return
    const { redis, keys } = this.#stores
    const contests = [...this.#contests]
    const locks = await readMany(
      redis.commands,
      keys,
      contests.map(([sessionId]) => sessionId),
    )
    const owners = [...new Set(contests.map(([, { turn }]) => processOf(turn.owner)))]
    const looks = await look(redis.commands, keys, owners)
    for (const [index, [sessionId, contest]] of contests.entries()) {
      const value = locks[index]
      if (typeof value === 'string' && tokenOf(value) === contest.turn.owner) {
        this.#contests.delete(sessionId)
        continue
      }
      const verdict = this.#judge(contest, looks.get(processOf(contest.turn.owner)))
      if (verdict) {
        this.#contests.delete(sessionId)
        this.#onVerdict(sessionId, { turn: contest.turn, verdict, since: contest.since })
      } else this.#ask(sessionId, contest.turn)
    }
  }

  /**
   * Hung is who is still connected but shows no heartbeat. Who is neither is left to the roll call, because a death
   * counts against its message: taken for hung, a message that kills its process would do so for ever.
   */
  #judge(contest: Contest, seen: Look = { subscribed: false, beating: false }): Verdict | undefined {
    const { redis, tunables } = this.#stores
    const owner = processOf(contest.turn.owner)
    const hearingSince = this.#hearingSince()
    contest.missingSince = seen.beating ? undefined : (contest.missingSince ?? now())
    const gone = !seen.beating && !seen.subscribed && !redis.cluster
    const heardForMs = hearingSince === null ? 0 : now() - hearingSince
    if (gone && this.#isDead(owner) && heardForMs >= tunables.deadAfterMs) return 'dead'
    if (gone) this.#onSuspect(owner)
    const hung =
      !gone &&
      contest.missingSince !== undefined &&
      now() - contest.missingSince >= tunables.hungAfterMs &&
      heardForMs >= tunables.hungAfterMs
    if (hung) return 'hung'
    // While Redis was away nobody could take a lock back: only time that we heard it counts.
    const silentMs = Math.min(now() - contest.since, heardForMs)
    return silentMs >= tunables.lockTtlMs ? 'silent' : undefined
  }

  #ask(sessionId: string, { owner }: TurnName): void {
    this.#stores.publisher
      .retake(processOf(owner), sessionId, owner)
      .catch((error: unknown) => this.#stores.telemetry.trouble(error))
  }
}
