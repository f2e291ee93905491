/**
 * What producers and readers use: send, look, take back, stop. It needs no worker to be alive, and no Redis either:
 * a message is accepted when MySQL has committed it. Only checks and wires.
 */
import {
  checkList,
  checkOptions,
  checkRange,
  checkSignal,
  checkTransaction,
  oneOf,
  whole,
} from '../base/arguments.ts'
import { ClosedError, RefusedError } from '../base/errors.ts'
import { checkSessionId, checkTenant } from '../base/ids.ts'
import { parse } from '../base/payload.ts'
import type { Telemetry } from '../base/telemetry.ts'
import { deadline, now } from '../base/timing.ts'
import type { CommitOptions, Rule } from '../mysql/ledger.ts'
import { readMessage, readQueue } from '../mysql/messages.ts'
import { prune, type Pruned, type RetentionAges } from '../mysql/retention.ts'
import { eraseSession, readSession, readSessions, type SessionSummary } from '../mysql/sessions.ts'
import { readEntries } from '../mysql/transcript.ts'
import { toUnavailable } from '../mysql/trouble.ts'
import { parseCursor } from '../protocol/cursor.ts'
import { type Accepted, type Submission, withdraw } from '../protocol/intake.ts'
import { MESSAGE_VERSION } from '../protocol/session-row.ts'
import type {
  AcceptedInTransaction,
  CallersTransaction,
  QueuedMessage,
  SendItem,
  SendResult,
  SessionsOptions,
  StopOptions,
  StopReceipt,
  TranscriptPage,
} from './answers.ts'
import { toEntry } from './entry.ts'
import { explain, type Explanation } from './explanation.ts'
import { type ProcessView, readFleet } from './fleet-view.ts'
import { type Health, type HealthOptions, StoreCheck } from './health.ts'
import { inspect, type SessionView } from './inspection.ts'
import { Lookout } from './lookout.ts'
import { Notifier } from './notifier.ts'
import { type CursorMove, moveReader, type ReaderCursor, readerCursor } from './reader-cursor.ts'
import { only, Sender } from './sender.ts'
import { receiptOf } from './stop-receipt.ts'
import { stopRequest } from './stop-request.ts'
import { type Connections, openStores, type Stores } from './stores.ts'
import { type MessageInput, SEND_OPTIONS, type SendOptions, toSubmission } from './submission.ts'
import { unknownMessage, unknownSession } from './unknown.ts'
import type { WatchEvent, WatchOptions } from './watch-events.ts'
import { Watcher } from './watcher.ts'

export class Client {
  readonly #stores: Stores
  readonly #notifier: Notifier
  readonly #sender: Sender
  readonly #lookout: Lookout
  readonly #check: StoreCheck
  #closed: Promise<void> | undefined

  /** Connects in the background. Throws InvalidInputError for options that cannot be meant. */
  constructor(connections: Connections) {
    this.#stores = openStores(connections)
    this.#notifier = new Notifier(this.#stores)
    this.#sender = new Sender(this.#stores, this.#notifier)
    this.#lookout = new Lookout(this.#stores)
    this.#check = new StoreCheck(this.#stores)
  }

  /**
   * Accepts a message; creates the session if need be. When it resolves, the message is committed in MySQL and will
   * reach exactly one final state. Redis being away does not make it fail.
   *
   * @throws InvalidInputError nothing was sent. RefusedError: SESSION_BUSY, QUEUE_FULL, IDEMPOTENCY_CONFLICT.
   *   UnavailableError: MYSQL_UNAVAILABLE nothing happened; OUTCOME_UNKNOWN repeat it with the same idempotency key.
   */
  enqueue(
    sessionId: string,
    message: MessageInput,
    options?: SendOptions & { trx?: undefined },
  ): Promise<Accepted>
  enqueue(
    sessionId: string,
    message: MessageInput,
    options: SendOptions & { trx: CallersTransaction },
  ): Promise<AcceptedInTransaction>
  async enqueue(
    sessionId: string,
    message: MessageInput,
    options: SendOptions & { trx?: CallersTransaction | undefined } = {},
  ): Promise<Accepted | AcceptedInTransaction> {
    checkOptions(options, [...SEND_OPTIONS, 'trx'])
    const { trx, ...rest } = options
    checkTransaction(trx)
    const submission = toSubmission(sessionId, message, rest, this.#stores.tunables)
    const { outcomes, notify } = await this.#send([submission], trx)
    const accepted = only(outcomes)
    if (trx) return { ...accepted, notify }
    await notify()
    return accepted
  }

  /**
   * Accepts several messages, also of several sessions, in one transaction; each is decided on its own. In a session
   * they get their numbers in the order given. Throws InvalidInputError when any of them is malformed: none is sent.
   */
  enqueueMany(items: readonly SendItem[], options?: { trx?: undefined }): Promise<SendResult[]>
  enqueueMany(
    items: readonly SendItem[],
    options: { trx: CallersTransaction },
  ): Promise<{ results: SendResult[]; notify(): Promise<void> }>
  async enqueueMany(
    items: readonly SendItem[],
    options: { trx?: CallersTransaction | undefined } = {},
  ): Promise<SendResult[] | { results: SendResult[]; notify(): Promise<void> }> {
    checkOptions(options, ['trx'])
    const { trx } = options
    checkTransaction(trx)
    // `map` would leave the holes of a sparse list, and the answers would be counted off wrongly.
    const submissions = Array.from(checkList('items', items), (item) => {
      const { sessionId, message, ...rest } = Object(item) as SendItem
      return toSubmission(sessionId, message, rest, this.#stores.tunables)
    })
    const { outcomes, notify } = await this.#send(submissions, trx)
    const results = outcomes.map((outcome): SendResult =>
      outcome instanceof Error ? { ok: false, error: outcome } : { ok: true, ...outcome },
    )
    if (trx) return { results, notify }
    await notify()
    return results
  }

  /**
   * Messages that have not started and will, oldest first. `after` is a seq; `limit` 1 to 1,000, default 100.
   * @throws NotFoundError SESSION_NOT_FOUND
   */
  async queue(sessionId: string, options: { after?: number; limit?: number } = {}): Promise<QueuedMessage[]> {
    const id = checkSessionId(sessionId)
    const range = checkRange(options, 100)
    await this.#session(id)
    const messages = await this.#read((db) => readQueue(db, id, range))
    return messages.map(({ seq, kind, source, payload, createdAt, id: messageId }) => {
      return { seq, id: messageId, kind, source, payload: parse(payload), createdAt }
    })
  }

  /**
   * Takes a waiting message back, for as long as it has not started. Repeating it is harmless.
   * @throws RefusedError NOT_WITHDRAWABLE: it has started or is done. NotFoundError: no such message.
   */
  async withdraw(sessionId: string, seq: number): Promise<void> {
    const id = checkSessionId(sessionId)
    const number = whole('seq', seq, 1)
    const outcome = await this.#commit(id, (draft) => withdraw(draft, number), { head: 'now' })
    if (outcome === undefined) throw unknownSession(id)
    if (outcome === 'missing') throw unknownMessage(id, number)
    if (outcome === 'withdrawn') return
    // A repeated call may come after the message was passed over.
    if (outcome === 'done' && (await this.#read((db) => readMessage(db, id, number)))?.status === 'withdrawn')
      return
    const what = outcome === 'started' ? 'has started: stop it instead' : 'already has its final state'
    throw new RefusedError('NOT_WITHDRAWABLE', `Message ${number} ${what}.`)
  }

  /**
   * Stops everything sent to the session so far, up to message `through`, or only the running turn: what waits never
   * starts, what runs has its signal fired. What is sent afterwards is not touched. Repeating it is harmless. Redis
   * being away does not make it fail. With `waitMs` it answers when it is quiet; see {@link StopReceipt}.
   * @throws NotFoundError SESSION_NOT_FOUND, MESSAGE_NOT_FOUND. RefusedError NOT_RUNNING: `turn` has not started.
   *   ClosedError: the client was closed while it waited; the stop stands.
   */
  async stop(sessionId: string, options: StopOptions = {}): Promise<StopReceipt> {
    const since = now()
    const id = checkSessionId(sessionId)
    const request = stopRequest(options)
    const stopped = request.met(id, await this.#commit(id, request.rule))
    if (stopped.pending) await this.#notifier.stopped(id, stopped.owner, stopped.upTo)
    return receiptOf(this.#stores, this.#lookout, id, stopped, { since, ...request })
  }

  /**
   * Entries after a cursor (an entry's number, or what `subscribe` gave), oldest first. `limit` 1 to 1,000, default 100.
   * @throws NotFoundError SESSION_NOT_FOUND
   */
  async transcript(
    sessionId: string,
    options: { after?: number | string; limit?: number } = {},
  ): Promise<TranscriptPage> {
    const id = checkSessionId(sessionId)
    checkOptions(options, ['after', 'limit'])
    const { after } = options
    const entry = typeof after === 'string' ? parseCursor(after).entry : after
    const range = checkRange({ ...options, after: entry }, 100)
    const page = await this.#read((db) => readEntries(db, id, range))
    if (!page) throw unknownSession(id)
    const entries = page.entries.map(toEntry)
    return { entries, cursor: entries.at(-1)?.entry ?? range.after, head: page.head }
  }

  /**
   * Watches a session: what is in the transcript behind a cursor, then, as it happens, entries, deltas of the running
   * turn and changes of state; see {@link WatchEvent}. Ends when it is left, when `signal` fires, never by itself.
   * Outages are waited out. Its steps throw NotFoundError: no such session, or it was deleted; ClosedError: the client
   * was closed; CutOffError: nothing was taken for too long, go on from its cursor.
   *
   * @throws InvalidInputError INVALID_CURSOR
   */
  subscribe(sessionId: string, options: WatchOptions = {}): AsyncIterableIterator<WatchEvent> {
    const id = checkSessionId(sessionId)
    checkOptions(options, ['after', 'signal'])
    checkSignal(options.signal)
    const after = parseCursor(options.after ?? 0)
    this.#assertOpen()
    const { signal } = options
    return new Watcher({
      stores: this.#stores,
      lookout: this.#lookout,
      sessionId: id,
      after,
      signal,
    }).events()
  }

  /**
   * How far a reader is; all null when it never said so.
   * @throws NotFoundError SESSION_NOT_FOUND
   */
  async cursor(sessionId: string, reader: string): Promise<ReaderCursor> {
    const id = checkSessionId(sessionId)
    return this.#read(() => readerCursor(this.#stores.mysql, id, reader))
  }

  /**
   * Says how far a reader is: 1 to 128 characters of a session id name it. Positions only move on: an older one changes
   * nothing. Resolves with what holds.
   * @throws NotFoundError SESSION_NOT_FOUND. InvalidInputError INVALID_CURSOR: it lies beyond the last entry.
   */
  async moveCursor(sessionId: string, reader: string, move: CursorMove): Promise<ReaderCursor> {
    const id = checkSessionId(sessionId)
    const giveUp = deadline(this.#stores.tunables.enqueueTimeoutMs)
    return this.#read(() => moveReader(this.#stores.mysql, id, reader, move, giveUp))
  }

  /**
   * Where a session stands: what runs, what waits and for what.
   * @throws NotFoundError SESSION_NOT_FOUND
   */
  async inspect(sessionId: string): Promise<SessionView> {
    return inspect(this.#stores, await this.#session(checkSessionId(sessionId)))
  }

  /**
   * Why a session does not move, and what would make it; see {@link Explanation}. Redis may be away, and is said to be.
   * Bounds and limits are reckoned with this client's own tunables: give it those of the workers.
   * @throws NotFoundError SESSION_NOT_FOUND
   */
  async explain(sessionId: string): Promise<Explanation> {
    const id = checkSessionId(sessionId)
    return this.#read(() => explain(this.#stores, id))
  }

  /** The processes that show a heartbeat, by id. Throws UnavailableError REDIS_UNAVAILABLE. */
  async fleet(): Promise<ProcessView[]> {
    this.#assertOpen()
    return readFleet(this.#stores)
  }

  /**
   * Sessions by id, a page at a time. `limit` 1 to 1,000, default 100; `after` is the last id of the page before;
   * `tenants`: only ids whose part before the first colon is one of these ('' for ids without a colon).
   */
  async sessions(options: SessionsOptions = {}): Promise<SessionSummary[]> {
    checkOptions(options, ['state', 'after', 'limit', 'tenants'])
    const limit = whole('limit', options.limit ?? 100, 1, 1000)
    const after = options.after === undefined ? '' : checkSessionId(options.after)
    const { state, tenants } = options
    if (state !== undefined) oneOf('state', state, ['running', 'waiting', 'idle'])
    if (tenants) for (const tenant of checkList('tenants', tenants)) checkTenant(tenant)
    return this.#read((db) => readSessions(db, { after, limit, state, tenants }))
  }

  /**
   * Sends a failed or stopped message again, as a new message that refers to the old one.
   * @throws RefusedError NOT_RETRYABLE. NotFoundError: no such message.
   */
  async retry(sessionId: string, seq: number): Promise<Accepted> {
    const id = checkSessionId(sessionId)
    const message = await this.#read((db) => readMessage(db, id, whole('seq', seq, 1)))
    if (!message) throw unknownMessage(id, seq)
    if (!message.final || message.status === null || message.status === 'withdrawn') {
      const what = message.final ? `was ${message.status ?? 'completed'}` : 'is not done yet'
      throw new RefusedError(
        'NOT_RETRYABLE',
        `Message ${seq} ${what}: only failed or stopped messages are sent again.`,
      )
    }
    if (message.version > MESSAGE_VERSION) {
      throw new RefusedError(
        'NOT_RETRYABLE',
        `Message ${seq} was written by a newer version: send it again with that version.`,
      )
    }
    const { kind, source, payload, traceparent } = message
    const again = { kind, payload: parse(payload) }
    const options = { source, ...(traceparent === null ? {} : { traceparent }) }
    const submission = toSubmission(id, again, options, this.#stores.tunables, seq)
    const { outcomes, notify } = await this.#send([submission])
    const accepted = only(outcomes)
    await notify()
    return accepted
  }

  /**
   * Deletes a session: what runs or waits is stopped, its transcript is gone for readers at once and from the disk
   * with the next prune. A later enqueue starts it anew, with continuing numbers.
   * @throws NotFoundError SESSION_NOT_FOUND
   */
  async delete(sessionId: string): Promise<void> {
    const id = checkSessionId(sessionId)
    const erased = await this.#read((db) => eraseSession(db, id))
    if (!erased) throw unknownSession(id)
    await this.#notifier.changed(id)
    // A turn that was running is refused by the row whatever it does; being told, it ends at once.
    if (erased.owner !== null) await this.#notifier.stopped(id, erased.owner, erased.inboxSeq)
  }

  /**
   * Removes old rows in small bites: finished messages, their entries, deleted sessions; ages in milliseconds, what is
   * left out is kept. Idempotency keys go with their messages.
   */
  async prune(ages: RetentionAges, options: { signal?: AbortSignal } = {}): Promise<Pruned> {
    checkOptions(ages, ['messagesMs', 'entriesMs', 'deletedMs'])
    checkOptions(options, ['signal'])
    checkSignal(options.signal)
    for (const [name, ms] of Object.entries(ages)) if (ms !== undefined) whole(name, ms, 0)
    return this.#read((db) => prune(db, ages, options.signal))
  }

  /** Listens to an event of the telemetry catalogue; returns what ends that. */
  on: Telemetry['on'] = (event, listener) => this.#stores.telemetry.on(event, listener)

  /** Whether both stores answer; one that is away counts when it is asked again after the grace. */
  health(options: HealthOptions = {}): Promise<Health> {
    return this.#check.health(options)
  }

  /** Closes the connections that this client opened. Repeating it is harmless. */
  close(): Promise<void> {
    this.#check.close()
    this.#closed ??= Promise.all([this.#notifier.settled(), this.#lookout.close()]).then(() =>
      this.#stores.close(),
    )
    return this.#closed
  }

  #send(submissions: readonly Submission[], trx?: CallersTransaction) {
    this.#assertOpen()
    return this.#sender.send(submissions, trx)
  }

  async #commit<R>(sessionId: string, rule: Rule<R>, options: CommitOptions = {}): Promise<R | undefined> {
    this.#assertOpen()
    const { ledger, tunables } = this.#stores
    try {
      return await ledger.commit(sessionId, rule, { ...options, giveUp: deadline(tunables.enqueueTimeoutMs) })
    } catch (error) {
      throw toUnavailable(error)
    }
  }

  async #session(id: string): Promise<SessionSummary> {
    const session = await this.#read((db) => readSession(db, id))
    if (!session) throw unknownSession(id)
    return session
  }

  async #read<T>(read: (db: Stores['mysql']['db']) => Promise<T>): Promise<T> {
    this.#assertOpen()
    try {
      return await read(this.#stores.mysql.db)
    } catch (error) {
      throw toUnavailable(error)
    }
  }

  #assertOpen(): void {
    if (this.#closed) throw new ClosedError('CLOSED', 'This client was closed: create a new one.')
  }
}
