/**
 * Serves one session: owns it, runs its messages one by one, rests when there is nothing to do.
 *
 *     waiting ──▶ serving ──▶ idle        nothing left; the lock is a mere preference now
 *        ▲           │ ├────▶ waiting     more messages: to the end of the line, so that nobody starves
 *        │           │ ├────▶ backoff     the handler failed; the lock is kept, the slot is not
 *        └── wake ───┘ └────▶ gone        somebody else serves it, or nobody needs to
 *
 * One call of `serve()` is one stay in a slot: at most one turn. It asks the stores, never the clock, who owns the
 * session; after any lock command whose answer is missing it starts nothing and lets go.
 */
import { UnavailableError } from '../base/errors.ts'
import { newOwnerToken } from '../base/ids.ts'
import { now } from '../base/timing.ts'
import { start, type Started, type StartedTurn, type StartLimits } from '../protocol/turn-rules.ts'
import { advance, parseReference } from '../redis/queue.ts'
import { Hold, type Judged, redisCall } from './hold.ts'
import type { House } from './house.ts'
import { commitEnd, retryDelayMs } from './turn-end.ts'
import { reportEnd, reportSkipped } from './turn-report.ts'
import { TurnRun, type TurnEnd } from './turn.ts'

export type Phase = 'waiting' | 'serving' | 'idle' | 'backoff' | 'gone'

/** What the registry does with a butler after its stay in a slot. */
export type Next = 'more' | 'idle' | 'suspect' | 'gone' | { readonly retryInMs: number }

export class Butler {
  readonly sessionId: string
  phase: Phase = 'waiting'
  /** Monotonic time since when it is in this phase. */
  since = now()
  readonly hold: Hold
  /** Highest stop we heard of; a notice may come before the turn it is meant for. */
  stopSeq = 0
  /** The look at the row that a stop notice asked for: a turn that has just started waits for it. Never rejects. */
  heeding: Promise<void> | undefined
  /** Somebody called while we were serving. */
  woken = false
  turn: TurnRun | undefined
  /** Set when a judged turn is to be taken. */
  judged: Judged | undefined
  readonly #house: House

  constructor(house: House, sessionId: string) {
    this.#house = house
    this.sessionId = sessionId
    this.hold = new Hold(house, sessionId)
  }

  enter(phase: Phase): void {
    this.phase = phase
    this.since = now()
  }

  /** One stay in a slot. Never rejects. */
  async serve(): Promise<Next> {
    this.woken = false
    try {
      const { judged } = this
      this.judged = undefined
      const { token } = this.hold
      // Both stores are asked at the same time; the start is decided only when the lock's answer is there.
      let held = false
      const early = this.hold.isIdle && !this.#house.draining() ? this.#start(() => held) : undefined
      early?.catch(() => undefined)
      held = await this.hold.ensure(judged)
      const started = await early
      if (!held) return 'gone'
      return await this.#serveNext(early && this.hold.token === token ? { started } : undefined)
    } catch (error) {
      // A lock command without an answer, or a database that refuses: hold on to nothing. The sweep comes back.
      const known = error instanceof UnavailableError
      const about = { where: 'butler', session: this.sessionId }
      const { telemetry } = this.#house.stores
      if (known) telemetry.trouble(error, about)
      else telemetry.emit('background.error', { ...about, error })
      this.turn = undefined
      // Without the database here, somebody else may have it; without Redis nobody would hear.
      const deaf = known && error.code === 'REDIS_UNAVAILABLE'
      await this.hold.release({ wake: !deaf })
      return 'gone'
    }
  }

  /** Everything up to `through` is stopped; fires the signal of the turn if it is covered. */
  stop(through: number): void {
    this.stopSeq = Math.max(this.stopSeq, through)
    if (this.turn && this.turn.name.seq <= this.stopSeq) this.turn.abort('stopped')
  }

  /** The row names somebody else. */
  lose(why: string): void {
    this.#house.stores.telemetry.emit('session.lost', {
      session: this.sessionId,
      seq: this.turn?.name.seq,
      epoch: this.hold.epoch,
      why,
    })
    this.hold.owned = false
    this.turn?.abort('lost')
  }

  /** Finishes what must not run, up to the first message that runs, waits or is missing; then runs it. */
  async #serveNext(first: { started: Started | undefined } | undefined): Promise<Next> {
    for (let already = first; ; already = undefined) {
      if (!already) {
        this.woken = false
        if (this.hold.token === undefined) return 'gone'
        if (this.#house.draining()) return this.#leave(true)
      }
      let started = already ? already.started : await this.#start()
      while (started?.outcome === 'started') {
        const after = await this.#runTurn(started)
        if (typeof after === 'string' || !('outcome' in after)) return after
        started = after
      }
      const next = await this.#meet(started)
      if (next) return next
    }
  }

  async #start(isHeld = () => true): Promise<Started | undefined> {
    const { token = '' } = this.hold
    const limits = this.#limits(isHeld)
    return this.#house.stores.ledger.commit(this.sessionId, (draft) => start(draft, token, limits), {
      head: 'now',
    })
  }

  /** What to do when nothing was started; undefined: look again. */
  async #meet(started: Exclude<Started, StartedTurn> | undefined): Promise<Next | undefined> {
    switch (started?.outcome) {
      case 'skipped':
        reportSkipped(this.#house.stores.telemetry, started.as, {
          session: this.sessionId,
          seq: started.seq,
          epoch: started.epoch,
        })
        return undefined
      case 'unheld':
        return (await this.hold.ensure()) ? undefined : 'gone'
      case 'nothing':
        return this.#rest(false, started.doneSeq)
      case 'later':
        return { retryInMs: started.retryInMs }
      case 'suspect':
        return 'suspect'
      case 'unrunnable':
        await this.hold.release({ wake: false })
        this.#house.onUnrunnable(this.sessionId, started)
        return 'gone'
      case 'lost':
      case undefined:
        this.lose('the row names another owner')
        return this.#leave(true)
    }
  }

  #limits(isHeld = () => true): StartLimits {
    const { handlerFor, maySuspect, stores, version } = this.#house
    const { maxStarts, maxCrashes } = stores.tunables
    return {
      maxStarts,
      maxCrashes,
      version,
      maySuspect: () => maySuspect(this.sessionId),
      runs: (kind) => handlerFor(kind) !== undefined,
      holdsLock: () => this.phase === 'serving' && this.hold.isConfirmed && isHeld(),
    }
  }

  /** Runs a started turn to its end. What follows: the session's next turn, started in the same commit, or a rest. */
  async #runTurn(started: StartedTurn): Promise<Next | Started> {
    const { stores, handlerFor, handingOver } = this.#house
    const turn = new TurnRun(stores, this.sessionId, started)
    const { seq } = turn.name
    this.turn = turn
    const { waitedMs } = turn
    stores.telemetry.emit('turn.started', { ...turn.about, waitedMs })
    await this.heeding
    if (this.stopSeq >= seq) turn.abort('stopped')
    if (handingOver()) turn.abort('handover')
    const end = await turn.run(handlerFor(turn.kind))
    const lost = end.as === 'aborted' && end.reason === 'lost'
    if (end.as === 'aborted' && !end.settled) {
      const detached = this.#house.onDetached(turn.handlerDone)
      stores.telemetry.emit('turn.detached', { ...turn.about, detached })
    }
    if (!lost) {
      await turn.settleWrites()
      const next = await this.#endTurn(turn, end)
      if (next) return next
    }
    this.turn = undefined
    stores.telemetry.emit('turn.lost', { ...turn.about, why: 'another owner may have taken the session' })
    return this.#leave(true)
  }

  /** Commits the turn's end; undefined when the turn turned out to be lost. */
  async #endTurn(turn: TurnRun, end: TurnEnd): Promise<Next | Started | undefined> {
    const { processId, stores } = this.#house
    const { telemetry, tunables } = stores
    const detached = end.as === 'aborted' && !end.settled && end.reason !== 'handover'
    const successor = detached ? newOwnerToken(processId) : undefined
    // What cannot be stored is a failure of this message, not of the runtime.
    const next = end.as !== 'aborted' && this.#house.mayGoOn() ? this.#limits() : undefined
    const finished = await commitEnd(stores, turn, end, { successor, next }).catch((error: unknown) =>
      commitEnd(stores, turn, { as: 'threw', error }, { successor, next }),
    )
    if (finished?.outcome !== 'finished') {
      telemetry.emit('turn.fenced', turn.about)
      return undefined
    }
    this.turn = undefined
    turn.ended()
    reportEnd(telemetry, turn, finished.as, { end, delayMs: retryDelayMs(tunables, finished.failures) })
    if (successor !== undefined && !(await this.hold.succeed(successor)))
      await this.#house.verify(this.sessionId)
    if (finished.as === 'handed_over') return this.#leave(true)
    // The stop came while the end was being committed: nothing to wait for.
    if (finished.as === 'retrying' && this.stopSeq >= turn.name.seq) return 'more'
    if (finished.as === 'retrying') return { retryInMs: retryDelayMs(tunables, finished.failures) }
    if (finished.next === undefined) return this.#rest(finished.inboxSeq > finished.doneSeq, finished.doneSeq)
    // The row already says that the next turn runs: nothing may stand between it and its handler.
    if (finished.next.outcome === 'started') void this.#takeAlong()
    return finished.next
  }

  /**
   * Between two turns: forget the finished reference, take the next one, or turn idle in the same step that finds the
   * queue empty, so that no push can fall between. `more`: MySQL has work, whatever the queue says.
   */
  async #rest(more: boolean, doneSeq: number): Promise<Next> {
    const { stores, draining } = this.#house
    const { redis, keys, tunables, telemetry } = stores
    if (draining()) return this.#leave(more)
    for (;;) {
      const { token, owned, confirmedUntil } = this.hold
      if (token === undefined || !owned) return this.#leave(true)
      const options = { idleMs: tunables.idleReleaseMs, more }
      // A renewal sent behind this step would turn the idle lock busy again.
      this.hold.confirmedUntil = 0
      const step = await redisCall(advance(redis.commands, keys, this.sessionId, token, options))
      if (step.outcome === 'lost') {
        await this.#house.verify(this.sessionId)
        if (!this.hold.isConfirmed) return this.#leave(true)
        continue
      }
      if (step.foreign) telemetry.emit('queue.foreign', { session: this.sessionId, sample: 'not a list' })
      if (step.outcome === 'idle') {
        telemetry.emit('session.idle', { session: this.sessionId, epoch: this.hold.epoch })
        return 'idle'
      }
      this.hold.confirmedUntil = confirmedUntil
      if (step.outcome !== 'taken') return 'more'
      const reference = parseReference(step.reference)
      if (!reference)
        telemetry.emit('queue.foreign', { session: this.sessionId, sample: step.reference.slice(0, 60) })
      // A reference to something finished is left over; to anything else, a reason to look at the row.
      else if (more || reference.seq > doneSeq) return 'more'
    }
  }

  /** The queue's part of a turn that was started in the same commit as the last one's end; the lock stays busy. */
  async #takeAlong(): Promise<void> {
    const { redis, keys, tunables, telemetry } = this.#house.stores
    const { token } = this.hold
    if (token === undefined) return
    try {
      const options = { idleMs: tunables.idleReleaseMs, more: true }
      const step = await advance(redis.commands, keys, this.sessionId, token, options)
      if (step.outcome === 'lost') await this.#house.verify(this.sessionId)
    } catch (error) {
      telemetry.emit('redis.trouble', { session: this.sessionId, error })
    }
  }

  /** Leaves the session to somebody else. */
  async #leave(wake: boolean): Promise<Next> {
    await this.hold.release({ wake })
    return 'gone'
  }
}
