/**
 * One run of one message: what the handler sees of it, and the watch over it. The turn writes entries through the
 * ledger, fenced by its name; it ends when the handler settles, or some time after its signal fired, whatever the
 * handler does.
 */
import { type AbortReason, TurnAbortedError } from '../base/errors.ts'
import { checkKey } from '../base/ids.ts'
import { Lane } from '../base/lane.ts'
import { type Json, parse, serialise } from '../base/payload.ts'
import { Alarm, now } from '../base/timing.ts'
import { patiently } from '../mysql/patience.ts'
import { readLatest, readSteps } from '../mysql/transcript.ts'
import { visible } from '../protocol/history.ts'
import { ENTRY, type EntryDraft, type MessageSource, type TurnName } from '../protocol/session-row.ts'
import { append, type StartedTurn } from '../protocol/turn-rules.ts'
import { type Entry, type EntryInput, toDraft, toDrafts, toEntry } from './entry.ts'
import type { Stores } from './stores.ts'
import { ToolCalls } from './tool-calls.ts'

/** What a handler is given. Every write is refused once the turn is over, with the reason of `signal`. */
export interface Turn {
  readonly sessionId: string
  readonly message: TurnMessage
  /** Fires when the turn must end; `signal.reason` is a {@link TurnAbortedError}. Return or throw soon after. */
  readonly signal: AbortSignal
  /** Rises with every owner of the session: pass it to systems that can refuse an older one. */
  readonly epoch: number
  /** 1 for the first start of this message, 2 after a failure, a crash or a hand-over, … */
  readonly attempt: number
  /**
   * The newest entries that a model may see, oldest first: nothing half-said of earlier attempts, no open tool call
   * but this turn's own. `limit` counts transcript lines; default 1,000, at most 10,000.
   */
  history(options?: { limit?: number }): Promise<Entry[]>
  /** Writes an entry; when it resolves (with its number) the entry is committed. Waits out a database outage. */
  append(entry: EntryInput): Promise<number>
  /**
   * Runs `fn` once per message and stores its result, a JSON value: after a retry or a takeover the stored result is
   * returned and `fn` does not run again. `key` names the step within the message.
   */
  step<T>(key: string, fn: () => Promise<T> | T): Promise<T>
  /** Sends a piece of the reply to whoever is watching. Not stored; never fails. */
  emit(delta: unknown): void
}

export interface TurnMessage {
  readonly seq: number
  readonly id: string
  readonly kind: string
  readonly source: MessageSource
  readonly payload: Json
  readonly createdAt: string
  readonly traceparent: string | null
}

/** What a handler may return: entries that are written together with the turn's end; a string is a `reply`. */
export type HandlerResult = string | EntryInput | readonly EntryInput[] | void

export type Handler = (turn: Turn) => Promise<HandlerResult> | HandlerResult

export type TurnEnd =
  | { readonly as: 'returned'; readonly entries: EntryDraft[] }
  | { readonly as: 'threw'; readonly error: unknown }
  /** The signal fired. `settled`: the handler is over; otherwise it is still running somewhere in this process. */
  | { readonly as: 'aborted'; readonly reason: AbortReason; readonly settled: boolean }

interface Append {
  readonly entry: EntryDraft
  readonly resolve: (entrySeq: number) => void
  readonly reject: (error: unknown) => void
}

/** How long a handler may take to react to a hand-over; a deploy waits for it. */
const HANDOVER_SETTLE_MS = 250

const MESSAGES: Record<AbortReason, string> = {
  stopped: 'Somebody stopped this message: return now, what you still write is refused.',
  timeout: 'The turn ran too long or made no progress, see turnTimeoutMs and progressTimeoutMs.',
  handover: 'This process is shutting down; another one runs the message again, without the finished steps.',
  lost: 'Another owner serves this session now; nothing of this turn is kept any more.',
  ended: 'The handler has already returned: write before returning, or return the entry.',
}

export class TurnRun {
  readonly sessionId: string
  readonly name: TurnName
  readonly epoch: number
  readonly suspect: boolean
  readonly startedAt = now()
  /** Monotonic time at which MySQL last confirmed that this turn is the one in the row. */
  confirmedAt = now()
  /** Resolves when the handler itself is over, which may be long after the turn's end. */
  handlerDone: Promise<void> = Promise.resolve()
  readonly #stores: Stores
  readonly #message: TurnMessage
  readonly #controller = new AbortController()
  readonly #calls = new ToolCalls()
  readonly #appends: Lane<Append>
  readonly #steps = new Map<string, Promise<unknown>>()
  #stored: Promise<Map<string, string>> | undefined
  #entrySeq: number
  #unwritten = 0
  #idle: (() => void)[] = []
  #emitted = 0
  #progressAt = now()
  #ended = false

  constructor(stores: Stores, sessionId: string, started: StartedTurn) {
    const { payload, seq, id, kind, source, createdAt, traceparent } = started.message
    this.#stores = stores
    this.sessionId = sessionId
    this.name = started.turn
    this.epoch = started.epoch
    this.suspect = started.suspect
    this.#entrySeq = started.entrySeq
    this.#message = { seq, id, kind, source, payload: parse(payload), createdAt, traceparent }
    this.#appends = new Lane({
      run: (appends) => this.#commit(appends),
      maxItems: 500,
      maxWeight: 2 ** 21,
      weigh: ({ entry }) => entry.payload.length,
    })
  }

  get kind(): string {
    return this.#message.kind
  }

  /** Calls the handler left open so far; exact once {@link settleWrites} has resolved. */
  get openCalls(): string[] {
    return this.#calls.open
  }

  /** The handler is over, or given up; what is left is to commit the end. */
  get finishing(): boolean {
    return this.#ended
  }

  get aborted(): AbortReason | undefined {
    const { reason } = this.#controller.signal
    return reason instanceof TurnAbortedError ? reason.reason : undefined
  }

  /** Fires the signal, once; later reasons are ignored. */
  abort(reason: AbortReason): void {
    if (!this.#controller.signal.aborted) this.#controller.abort(new TurnAbortedError(reason, MESSAGES[reason]))
  }

  /** Runs the handler to its end, or to the end of the patience with it. */
  async run(handler: Handler): Promise<TurnEnd> {
    const { tunables } = this.#stores
    const { signal } = this.#controller
    const [watchdog, turnDeadline, patience] = [new Alarm(), new Alarm(), new Alarm()]
    turnDeadline.set(tunables.turnTimeoutMs, () => this.abort('timeout'))
    const watch = () => {
      const quietMs = now() - this.#progressAt
      if (quietMs >= tunables.progressTimeoutMs) this.abort('timeout')
      else watchdog.set(tunables.progressTimeoutMs - quietMs, watch)
    }
    watch()
    const outOfPatience = new Promise<undefined>((resolve) => {
      const lose = () => patience.set(this.#graceMs(), () => resolve(undefined))
      if (signal.aborted) lose()
      else signal.addEventListener('abort', lose, { once: true })
    })
    const settled = this.#settle(handler)
    this.handlerDone = settled.then(() => {})
    const end = await Promise.race([settled, outOfPatience])
    for (const alarm of [watchdog, turnDeadline, patience]) alarm.clear()
    this.#ended = true
    const reason = this.aborted
    if (end && !reason) return end
    return { as: 'aborted', reason: reason ?? 'lost', settled: end !== undefined }
  }

  async #settle(handler: Handler): Promise<TurnEnd> {
    try {
      // A Stop that arrived between the start's commit and here has already fired the signal.
      this.#controller.signal.throwIfAborted()
      return { as: 'returned', entries: this.#final(await handler(this.#facade())) }
    } catch (error) {
      return { as: 'threw', error }
    }
  }

  /** How long a handler may go on after its signal: one that ignores it must not hold up its session. */
  #graceMs(): number {
    const { stopGraceMs } = this.#stores.tunables
    return this.aborted === 'handover' ? Math.min(HANDOVER_SETTLE_MS, stopGraceMs) : stopGraceMs
  }

  #assertLive(): void {
    this.#controller.signal.throwIfAborted()
    if (this.#ended) throw new TurnAbortedError('ended', MESSAGES.ended)
  }

  /** Resolves when no append of this turn is under way any more. */
  settleWrites(): Promise<void> {
    return this.#unwritten === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve))
  }

  #facade(): Turn {
    return Object.freeze<Turn>({
      sessionId: this.sessionId,
      message: this.#message,
      signal: this.#controller.signal,
      epoch: this.epoch,
      attempt: this.name.starts,
      history: (options) => this.#history(options?.limit ?? 1000),
      append: async (entry) => this.#append(toDraft(entry, this.#limits())),
      step: (key, fn) => this.#step(checkKey('Step key', key), fn),
      emit: (delta) => this.#emit(delta),
    })
  }

  async #history(limit: number): Promise<Entry[]> {
    await this.settleWrites()
    const rows = await patiently(
      () => readLatest(this.#stores.mysql.db, this.sessionId, Math.min(Math.max(limit, 1), 10_000)),
      this.#controller.signal,
    )
    return visible(rows.map(toEntry))
  }

  #append(entry: EntryDraft): Promise<number> {
    this.#assertLive()
    this.#progressAt = now()
    const takeBack = this.#calls.note(entry)
    this.#unwritten += 1
    return new Promise<number>((resolve, reject) => {
      const over = () => {
        this.#unwritten -= 1
        if (this.#unwritten === 0) for (const wake of this.#idle.splice(0)) wake()
      }
      this.#appends.push({
        entry,
        resolve: (entrySeq) => {
          over()
          resolve(entrySeq)
        },
        reject: (error) => {
          takeBack()
          over()
          reject(error instanceof Error ? error : new Error(String(error)))
        },
      })
    })
  }

  async #commit(appends: Append[]): Promise<void> {
    const entries = appends.map(({ entry }) => entry)
    const expected = this.#entrySeq
    try {
      const result = await this.#stores.ledger.commit(
        this.sessionId,
        (draft) => append(draft, this.name, entries, expected),
        { bytes: entries.reduce((bytes, { payload }) => bytes + payload.length, 0) },
      )
      if (result?.outcome !== 'appended') {
        this.abort('lost')
        for (const { reject } of appends) reject(this.#controller.signal.reason)
        return
      }
      this.#entrySeq = result.entrySeq
      appends.forEach(({ resolve }, index) => resolve(expected + index + 1))
    } catch (error) {
      for (const { reject } of appends) reject(error)
    }
  }

  async #step<T>(key: string, fn: () => Promise<T> | T): Promise<T> {
    const running = this.#steps.get(key)
    if (running) return running as Promise<T>
    const step = this.#runStep(key, fn)
    this.#steps.set(key, step)
    // A failed step is not remembered: the handler may try it again.
    step.catch(() => this.#steps.delete(key))
    return step
  }

  async #runStep<T>(key: string, fn: () => Promise<T> | T): Promise<T> {
    this.#assertLive()
    if (this.name.starts > 1) {
      const text = (await this.#storedSteps()).get(key)
      if (text !== undefined) return (parse(text) as { result: T }).result
    }
    this.#progressAt = now()
    const result = serialise((await fn()) ?? null, { ...this.#limits(), what: `Result of step "${key}"` })
    await this.#append({ type: ENTRY.step, stepKey: key, payload: `{"key":${JSON.stringify(key)},"result":${result}}` })
    // Through JSON on the first run too, so that a replayed step hands back the very same kind of value.
    return parse(result) as T
  }

  /** Read once; a read that an outage defeats is not remembered. */
  #storedSteps(): Promise<Map<string, string>> {
    this.#stored ??= patiently(
      () => readSteps(this.#stores.mysql.db, this.sessionId, this.name.seq),
      this.#controller.signal,
    )
    this.#stored.catch(() => (this.#stored = undefined))
    return this.#stored
  }

  #emit(delta: unknown): void {
    if (this.#controller.signal.aborted || this.#ended) return
    this.#progressAt = now()
    this.#emitted += 1
    const { seq, starts: attempt } = this.name
    const event = { type: 'delta', seq, epoch: this.epoch, attempt, index: this.#emitted, delta }
    void this.#stores.publisher
      .publish(this.sessionId, JSON.stringify(event))
      .catch((error: unknown) => this.#stores.telemetry.emit('redis.trouble', { error }))
  }

  /** Entries that go with the turn's end are checked like appended ones. */
  #final(returned: unknown): EntryDraft[] {
    const entries = toDrafts(returned, this.#limits())
    for (const entry of entries) this.#calls.note(entry)
    return entries
  }

  #limits() {
    const { entryMaxBytes, payloadMaxDepth } = this.#stores.tunables
    return { maxBytes: entryMaxBytes, maxDepth: payloadMaxDepth }
  }
}
