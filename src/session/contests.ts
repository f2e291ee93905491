/**
 * Sessions whose lock was free although the row says that a turn runs there. Mostly Redis was flushed and the owner is
 * about to take its lock back; sometimes the owner is frozen, cut off or gone. Each second the owner is asked to take
 * it back; when it does, the contest is over. When it shows no heartbeat for a while, or does not come back for a full
 * TTL, the turn is taken from it.
 */
import { processOf } from '../base/ids.ts'
import { now, Ticker } from '../base/timing.ts'
import type { TurnName } from '../protocol/session-row.ts'
import { look } from '../redis/fleet.ts'
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
  readonly #onVerdict: (sessionId: string, judged: Judged) => void
  readonly #contests = new Map<string, Contest>()
  readonly #ticker: Ticker

  constructor(options: {
    stores: Stores
    hearingSince: () => number | null
    onVerdict: (sessionId: string, judged: Judged) => void
  }) {
    const { telemetry, tunables } = options.stores
    this.#stores = options.stores
    this.#hearingSince = options.hearingSince
    this.#onVerdict = options.onVerdict
    this.#ticker = new Ticker({
      tick: () => this.#look(),
      intervalMs: tunables.retakeMs,
      onError: (error) => telemetry.emit('redis.trouble', { error }),
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
    const { redis, keys, tunables } = this.#stores
    const contests = [...this.#contests]
    const locks = await readMany(
      redis.commands,
      keys,
      contests.map(([sessionId]) => sessionId),
    )
    const owners = [...new Set(contests.map(([, { turn }]) => processOf(turn.owner)))]
    const looks = await look(redis.commands, keys, owners)
    const hearingSince = this.#hearingSince()
    for (const [index, [sessionId, contest]] of contests.entries()) {
      const value = locks[index]
      if (typeof value === 'string' && tokenOf(value) === contest.turn.owner) {
        this.#contests.delete(sessionId)
        continue
      }
      const beating = looks.get(processOf(contest.turn.owner))?.beating ?? false
      contest.missingSince = beating ? undefined : (contest.missingSince ?? now())
      const hung =
        contest.missingSince !== undefined &&
        now() - contest.missingSince >= tunables.hungAfterMs &&
        hearingSince !== null &&
        now() - hearingSince >= tunables.hungAfterMs
      if (hung || now() - contest.since >= tunables.lockTtlMs) {
        this.#contests.delete(sessionId)
        this.#onVerdict(sessionId, { turn: contest.turn, verdict: hung ? 'hung' : 'silent' })
      } else this.#ask(sessionId, contest.turn)
    }
  }

  #ask(sessionId: string, { owner }: TurnName): void {
    this.#stores.publisher
      .retake(processOf(owner), sessionId, owner)
      .catch((error: unknown) => this.#stores.telemetry.emit('redis.trouble', { error }))
  }
}
