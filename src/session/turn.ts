/**
 * One run of one message: what the handler sees of it, and the watch over it. The turn writes entries through the
 * ledger, fenced by its name; it ends when the handler settles, or some time after its signal fired, whatever the
 * handler does.
 */
import { checkOptions, whole } from '../base/arguments.ts'
import { type AbortReason, TurnAbortedError } from '../base/errors.ts'
import { checkKey } from '../base/ids.ts'
import { parse, serialise } from '../base/payload.ts'
import { now } from '../base/timing.ts'
import { patiently } from '../mysql/patience.ts'
import { readLatest, readSteps } from '../mysql/transcript.ts'
import { visible } from '../protocol/history.ts'
import { ENTRY, type EntryDraft, type TurnName } from '../protocol/session-row.ts'
import type { StartedTurn } from '../protocol/turn-rules.ts'
import { type Entry, type EntryInput, toDraft, toDrafts, toEntry } from './entry.ts'
import { Emitter } from './emitter.ts'
import type { Handler, Turn, TurnMessage } from './handler.ts'
import type { Stores } from './stores.ts'
import { TurnWatch } from './turn-watch.ts'
import { TurnWriter } from './turn-writer.ts'

export type TurnEnd =
  /** `openCalls`: those that its entries leave open. */
  | { readonly as: 'returned'; readonly entries: EntryDraft[]; readonly openCalls: readonly string[] }
  | { readonly as: 'threw'; readonly error: unknown }
  /** The signal fired. `settled`: the handler is over; otherwise it is still running somewhere in this process. */
  | { readonly as: 'aborted'; readonly reason: AbortReason; readonly settled: boolean }

const HISTORY_LINES = 1000
const HISTORY_LINES_MAX = 10_000

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
  /** How long its message had waited, milliseconds; of the first attempt. */
  readonly waitedMs: number | undefined
  /** Monotonic time at which MySQL last confirmed that this turn is the one in the row. */
  confirmedAt = now()
  /** Monotonic time at which its signal fired. */
  abortedAt: number | undefined
  /** Resolves when the handler itself is over, which may be long after the turn's end. */
  handlerDone: Promise<void> = Promise.resolve()
  readonly #stores: Stores
  readonly #message: TurnMessage
  readonly #controller = new AbortController()
  readonly #writer: TurnWriter
  readonly #steps = new Map<string, Promise<unknown>>()
  readonly #emitter: Emitter
  #stored: Promise<Map<string, string>> | undefined
  #progressAt = now()
  #ended = false

  constructor(stores: Stores, sessionId: string, started: StartedTurn) {
    const { payload, seq, id, kind, source, createdAt, traceparent } = started.message
    this.#stores = stores
    this.sessionId = sessionId
    this.name = started.turn
    this.epoch = started.epoch
    this.suspect = started.suspect
    if (started.turn.starts === 1) this.waitedMs = Math.round(started.message.waitedMs ?? 0)
    this.#message = { seq, id, kind, source, payload: parse(payload), createdAt, traceparent }
    this.#writer = new TurnWriter({
      ledger: stores.ledger,
      sessionId,
      name: started.turn,
      entrySeq: started.entrySeq,
      onLost: () => {
        stores.telemetry.emit('turn.fenced', this.about)
        this.abort('lost')
        return this.#overError()
      },
    })
    this.#emitter = new Emitter(stores, this.about, () => this.#writer.entrySeq)
  }

  /** What log lines say of it. */
  get about() {
    return { session: this.sessionId, seq: this.name.seq, epoch: this.epoch, attempt: this.name.starts }
  }

  get kind(): string {
    return this.#message.kind
  }

  /** Calls the handler left open; exact once {@link settleWrites} has resolved. */
  get openCalls(): string[] {
    return this.#writer.openCalls
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
    if (this.#controller.signal.aborted) return
    this.abortedAt = now()
    this.#controller.abort(new TurnAbortedError(reason, MESSAGES[reason]))
  }

  /** Runs the handler to its end, or to the end of the patience with it. */
  async run(handler: Handler | undefined): Promise<TurnEnd> {
    const watch = new TurnWatch({
      tunables: this.#stores.tunables,
      signal: this.#controller.signal,
      progressAt: () => this.#progressAt,
      onTimeout: () => this.abort('timeout'),
      graceMs: () => this.#graceMs(),
    })
    const settled = this.#settle(handler)
    this.handlerDone = settled.then(() => {})
    const end = await Promise.race([settled, watch.outOfPatience])
    watch.end()
    this.#ended = true
    const reason = this.aborted
    if (end && !reason) return end
    return { as: 'aborted', reason: reason ?? 'lost', settled: end !== undefined }
  }

  async #settle(handler: Handler | undefined): Promise<TurnEnd> {
    try {
      // A Stop that arrived between the start's commit and here has already fired the signal.
      this.#controller.signal.throwIfAborted()
      if (!handler) throw new Error(`no handler for messages of kind ${this.kind}`)
      const entries = toDrafts(await handler(this.#facade()), this.#limits())
      return { as: 'returned', entries, openCalls: this.#writer.openAfter(entries) }
    } catch (error) {
      return { as: 'threw', error }
    }
  }

  #graceMs(): number {
    const { stopGraceMs } = this.#stores.tunables
    return this.aborted === 'handover' ? Math.min(HANDOVER_SETTLE_MS, stopGraceMs) : stopGraceMs
  }

  #assertLive(): void {
    if (this.#controller.signal.aborted || this.#ended) throw this.#overError()
  }

  #overError(): TurnAbortedError {
    const { reason } = this.#controller.signal
    return reason instanceof TurnAbortedError ? reason : new TurnAbortedError('ended', MESSAGES.ended)
  }

  /** Its end is committed. */
  ended(): void {
    this.#emitter.end()
  }

  /** Resolves when no append of this turn is under way any more. */
  settleWrites(): Promise<void> {
    return this.#writer.settled()
  }

  #facade(): Turn {
    return Object.freeze<Turn>({
      sessionId: this.sessionId,
      message: this.#message,
      signal: this.#controller.signal,
      epoch: this.epoch,
      attempt: this.name.starts,
      history: (options) => mayFloat(this.#history(options)),
      append: (entry) => mayFloat(this.#append(entry)),
      step: (key, fn) => mayFloat(this.#step(key, fn)),
      emit: (delta) => this.#emit(delta),
    })
  }

  async #history(options: { limit?: number } = {}): Promise<Entry[]> {
    checkOptions(options, ['limit'])
    const limit = whole('limit', options.limit ?? HISTORY_LINES, 1, HISTORY_LINES_MAX)
    await this.settleWrites()
    const rows = await patiently(
      () => readLatest(this.#stores.mysql.db, this.sessionId, limit),
      this.#controller.signal,
    )
    return visible(rows.map(toEntry))
  }

  async #append(entry: EntryInput): Promise<number> {
    return this.#write(toDraft(entry, this.#limits()))
  }

  async #write(entry: EntryDraft): Promise<number> {
    this.#assertLive()
    this.#progressAt = now()
    const entrySeq = await this.#writer.append(entry)
    // The row named this turn, or nothing would have been written.
    this.confirmedAt = now()
    return entrySeq
  }

  async #step<T>(key: string, fn: () => Promise<T> | T): Promise<T> {
    checkKey('Step key', key)
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
    await this.#write({
      type: ENTRY.step,
      stepKey: key,
      payload: `{"key":${JSON.stringify(key)},"result":${result}}`,
    })
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
    this.#emitter.emit(delta)
  }

  #limits() {
    const { entryMaxBytes, payloadMaxDepth } = this.#stores.tunables
    return { maxBytes: entryMaxBytes, maxDepth: payloadMaxDepth }
  }
}

/**
 * A handler that does not wait for a write gets no error of it, and a Stop would make that an unhandled rejection: one
 * forgotten `await` must not end a process with a hundred turns.
 */
function mayFloat<T>(work: Promise<T>): Promise<T> {
  work.catch(() => undefined)
  return work
}
