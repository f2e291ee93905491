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
import type { TurnOutcome } from '../protocol/session-row.ts'
import { type Ending, finish, start, type Started, type StartedTurn, type StartLimits } from '../protocol/turn-rules.ts'
import { advance, parseReference } from '../redis/queue.ts'
import { asErrorText } from './failure.ts'
import { Hold, type Judged, redisCall } from './hold.ts'
import type { House } from './house.ts'
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
      if (!(await this.hold.ensure(judged))) return 'gone'
      return await this.#serveNext()
    } catch (error) {
      // A lock command without an answer, or a database that refuses: hold on to nothing. The sweep comes back.
      const known = error instanceof UnavailableError
      this.#house.stores.telemetry.emit(known ? 'redis.trouble' : 'background.error', {
        where: 'butler',
        session: this.sessionId,
        error,
      })
      await this.hold.release({ wake: false })
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
  async #serveNext(): Promise<Next> {
    const { stores, draining } = this.#house
    for (;;) {
      this.woken = false
      const { token } = this.hold
      if (token === undefined) return 'gone'
      if (draining()) return this.#leave(true)
      const limits = this.#limits()
      let started = await stores.ledger.commit(this.sessionId, (draft) => start(draft, token, limits), { head: 'now' })
      while (started?.outcome === 'started') {
        const after = await this.#runTurn(started)
        if (typeof after === 'string' || !('outcome' in after)) return after
        started = after
      }
      const next = await this.#meet(started)
      if (next) return next
    }
  }

  /** What to do when nothing was started; undefined: look again. */
  async #meet(started: Exclude<Started, StartedTurn> | undefined): Promise<Next | undefined> {
    switch (started?.outcome) {
      case 'skipped':
        this.#reportSkipped(started.seq, started.as)
        return undefined
      case 'unheld':
        return (await this.hold.ensure()) ? undefined : 'gone'
      case 'nothing':
        return this.#rest(false, Infinity)
      case 'later':
        return { retryInMs: started.retryInMs }
      case 'suspect':
        return 'suspect'
      case 'unrunnable':
        await this.hold.release({ wake: false })
        this.#house.onUnrunnable(this.sessionId, started.seq, started.kind)
        return 'gone'
      case 'lost':
      case undefined:
        this.lose('the row names another owner')
        return this.#leave(true)
    }
  }

  #limits(): StartLimits {
    const { handlerFor, maySuspect, stores } = this.#house
    const { maxStarts, maxCrashes } = stores.tunables
    return {
      maxStarts,
      maxCrashes,
      maySuspect: () => maySuspect(this.sessionId),
      runs: (kind) => handlerFor(kind) !== undefined,
      holdsLock: () => this.phase === 'serving' && this.hold.isConfirmed,
    }
  }

  /** Runs a started turn to its end. What follows: the session's next turn, started in the same commit, or a rest. */
  async #runTurn(started: StartedTurn): Promise<Next | Started> {
    const { stores, handlerFor } = this.#house
    const turn = new TurnRun(stores, this.sessionId, started)
    const { seq } = turn.name
    this.turn = turn
    stores.telemetry.emit('turn.started', this.#about(turn))
    if (this.stopSeq >= seq) turn.abort('stopped')
    const end = await turn.run(handlerFor(turn.kind) ?? (() => undefined))
    const lost = end.as === 'aborted' && end.reason === 'lost'
    if (end.as === 'aborted' && !end.settled) {
      const detached = this.#house.onDetached(turn.handlerDone)
      stores.telemetry.emit('turn.detached', { ...this.#about(turn), detached })
    }
    if (!lost) {
      await turn.settleWrites()
      const next = await this.#endTurn(turn, end)
      if (next) return next
    }
    this.turn = undefined
    stores.telemetry.emit('turn.lost', { ...this.#about(turn), why: 'another owner may have taken the session' })
    return this.#leave(true)
  }

  /** Commits the turn's end; undefined when the turn turned out to be lost. */
  async #endTurn(turn: TurnRun, end: TurnEnd): Promise<Next | Started | undefined> {
    const { processId } = this.#house
    const detached = end.as === 'aborted' && !end.settled && end.reason !== 'handover'
    const successor = detached ? newOwnerToken(processId) : undefined
    // What cannot be stored is a failure of this message, not of the runtime.
    const finished = await this.#commitEnd(turn, end, successor).catch((error: unknown) =>
      this.#commitEnd(turn, { as: 'threw', error }, successor),
    )
    if (finished?.outcome !== 'finished') return undefined
    this.turn = undefined
    this.#report(turn, finished.as, end, finished.failures)
    if (successor !== undefined && !(await this.hold.succeed(successor))) await this.#house.verify(this.sessionId)
    if (finished.as === 'handed_over') return this.#leave(true)
    if (finished.as === 'retrying') return { retryInMs: this.#retryDelayMs(finished.failures) }
    if (finished.next === undefined) return this.#rest(finished.inboxSeq > finished.doneSeq, finished.doneSeq)
    // The row already says that the next turn runs: nothing may stand between it and its handler.
    if (finished.next.outcome === 'started') void this.#takeAlong()
    return finished.next
  }

  /**
   * One transaction for the end of a turn and, when the session has more and nobody waits for this slot, for the
   * start of its next one.
   */
  #commitEnd(turn: TurnRun, end: TurnEnd, successor: string | undefined) {
    const goOn = end.as !== 'aborted' && this.#house.mayGoOn()
    const limits = this.#limits()
    return this.#house.stores.ledger.commit(
      this.sessionId,
      (draft) => {
        const ending = this.#ending(end, draft.row.failures)
        const finished = finish(draft, turn.name, ending, turn.openCalls, successor)
        const more = finished.outcome === 'finished' && finished.doneSeq < finished.inboxSeq
        const next = goOn && more && ending.as !== 'retrying' ? start(draft, turn.name.owner, limits) : undefined
        return { as: ending.as, ...finished, next }
      },
      {
        ...(goOn ? { head: 'after' as const } : {}),
        bytes: end.as === 'returned' ? end.entries.reduce((sum, { payload }) => sum + payload.length, 0) : 0,
      },
    )
  }

  #ending(end: TurnEnd, failures: number): Ending {
    if (end.as === 'returned') return { as: 'completed', entries: end.entries }
    if (end.as === 'threw') {
      const error = asErrorText(end.error)
      const final = failures + 1 >= this.#house.stores.tunables.maxFailures
      return final ? { as: 'failed', error } : { as: 'retrying', error, delayMs: this.#retryDelayMs(failures + 1) }
    }
    if (end.reason === 'handover') return { as: 'handed_over' }
    if (end.reason !== 'timeout') return { as: 'stopped' }
    return {
      as: 'failed',
      error: JSON.stringify({ code: 'TURN_TIMEOUT', message: 'The turn ran too long or made no progress.' }),
    }
  }

  #retryDelayMs(failures: number): number {
    const { retryDelaysMs } = this.#house.stores.tunables
    return retryDelaysMs[Math.min(failures, retryDelaysMs.length) - 1] ?? 0
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
      const { token, owned } = this.hold
      if (token === undefined || !owned) return this.#leave(true)
      const options = { idleMs: tunables.idleReleaseMs, more }
      const step = await redisCall(advance(redis.commands, keys, this.sessionId, token, options))
      if (step.outcome === 'lost') {
        this.hold.confirmedUntil = 0
        await this.#house.verify(this.sessionId)
        if (!this.hold.isConfirmed) return this.#leave(true)
        continue
      }
      if (step.foreign) telemetry.emit('queue.foreign', { session: this.sessionId, sample: 'not a list' })
      if (step.outcome === 'idle') {
        this.hold.confirmedUntil = 0
        telemetry.emit('session.idle', { session: this.sessionId, epoch: this.hold.epoch })
        return 'idle'
      }
      if (step.outcome !== 'taken') return 'more'
      const reference = parseReference(step.reference)
      if (!reference) telemetry.emit('queue.foreign', { session: this.sessionId, sample: step.reference.slice(0, 60) })
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

  #about(turn: TurnRun) {
    return { session: this.sessionId, seq: turn.name.seq, epoch: turn.epoch, attempt: turn.name.starts }
  }

  #report(turn: TurnRun, ended: Ending['as'], end: TurnEnd, failures: number): void {
    const { telemetry } = this.#house.stores
    const about = this.#about(turn)
    const durationMs = Math.round(now() - turn.startedAt)
    const error = end.as === 'threw' ? end.error : undefined
    switch (ended) {
      case 'completed':
        return telemetry.emit('turn.completed', { ...about, durationMs })
      case 'stopped':
        return telemetry.emit('turn.stopped', about)
      case 'handed_over':
        return telemetry.emit('turn.handedOver', about)
      case 'retrying':
        return telemetry.emit('turn.retrying', { ...about, error, delayMs: this.#retryDelayMs(failures) })
      case 'failed':
        if (end.as === 'aborted') telemetry.emit('turn.timedOut', { ...about, afterMs: durationMs })
        return telemetry.emit('turn.failed', { ...about, error })
    }
  }

  #reportSkipped(seq: number, as: TurnOutcome): void {
    const { telemetry } = this.#house.stores
    const about = { session: this.sessionId, seq, epoch: this.hold.epoch }
    if (as === 'missing') telemetry.emit('message.missing', about)
    else if (as === 'failed') telemetry.emit('turn.failed', { ...about, error: new Error('counted out') })
    else if (as === 'withdrawn') telemetry.emit('message.withdrawn', about)
    else telemetry.emit('turn.stopped', about)
  }
}
