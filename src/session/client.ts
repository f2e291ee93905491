/**
 * What producers and readers use: send, look, take back, stop. It needs no worker to be alive, and no Redis either:
 * a message is accepted when MySQL has committed it. Only checks and wires.
 */
import type { Transaction } from 'kysely'
import { type ButlerError, ClosedError, NotFoundError, RefusedError } from '../base/errors.ts'
import { checkSessionId } from '../base/ids.ts'
import { type Json, parse } from '../base/payload.ts'
import { deadline } from '../base/timing.ts'
import type { Rule } from '../mysql/ledger.ts'
import { readMessage, readQueue } from '../mysql/messages.ts'
import { prune, type Pruned, type RetentionAges } from '../mysql/retention.ts'
import type { Database } from '../mysql/schema.ts'
import { eraseSession, readSession, readSessions, type SessionSummary } from '../mysql/sessions.ts'
import { readEntries } from '../mysql/transcript.ts'
import { toUnavailable } from '../mysql/trouble.ts'
import { type Accepted, stop, type Submission, withdraw } from '../protocol/intake.ts'
import type { MessageSource } from '../protocol/session-row.ts'
import { formatReference } from '../redis/queue.ts'
import { type Entry, toEntry } from './entry.ts'
import { inspect, type SessionView } from './inspection.ts'
import { Notifier } from './notifier.ts'
import { type Connections, openStores, type Stores } from './stores.ts'
import {
  checkOptions,
  checkTransaction,
  type MessageInput,
  oneOf,
  SEND_OPTIONS,
  type SendOptions,
  toSubmission,
  whole,
} from './submission.ts'

/** A Kysely transaction of the caller's, on the database that holds the butler_ tables. */
export interface CallersTransaction {
  readonly isTransaction: boolean
  /** Present on every Kysely; its type differs between versions of Kysely, so it is not named here. */
  withoutPlugins(): unknown
}

/** A message accepted within the caller's transaction. */
export interface AcceptedInTransaction extends Accepted {
  /** Call it after the commit; forgetting it costs one sweep (5 s). Never rejects. */
  notify(): Promise<void>
}

/** One of several messages. */
export interface SendItem extends SendOptions {
  readonly sessionId: string
  readonly message: MessageInput
}

/** What became of one of several messages; `error` says why it was refused, the others are not affected. */
export type SendResult =
  ({ readonly ok: true } & Accepted) | { readonly ok: false; readonly error: ButlerError }

export interface QueuedMessage {
  readonly seq: number
  readonly id: string
  readonly kind: string
  readonly source: MessageSource
  readonly payload: Json
  readonly createdAt: string
}

export interface StopReceipt {
  /** Nothing with a seq up to here starts any more. */
  readonly through: number
  /** The message whose turn is being stopped, or null when none was running. */
  readonly running: number | null
}

export interface TranscriptPage {
  readonly entries: Entry[]
  /** Pass it as `after` to read on. */
  readonly cursor: number
  /** The last entry number of the session when the page was read. */
  readonly head: number
}

export class Client {
  readonly #stores: Stores
  readonly #notifier: Notifier
  #closed: Promise<void> | undefined

  /** Connects in the background. Throws InvalidInputError for options that cannot be meant. */
  constructor(connections: Connections) {
    this.#stores = openStores(connections)
    this.#notifier = new Notifier(this.#stores)
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
    const [result] = await this.#accept([submission], trx)
    if (result === undefined || result instanceof Error)
      throw result ?? new Error('The inbox gave no answer.')
    if (!trx) {
      await this.#notify([submission], [result])
      return result
    }
    return { ...result, notify: () => this.#notify([submission], [result]) }
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
    const submissions = Array.from(items, (item) => {
      const { sessionId, message, ...rest } = Object(item) as SendItem
      return toSubmission(sessionId, message, rest, this.#stores.tunables)
    })
    const outcomes = submissions.length === 0 ? [] : await this.#accept(submissions, trx)
    const results = outcomes.map((outcome): SendResult =>
      outcome instanceof Error ? { ok: false, error: outcome } : { ok: true, ...outcome },
    )
    if (trx) return { results, notify: () => this.#notify(submissions, outcomes) }
    await this.#notify(submissions, outcomes)
    return results
  }

  /**
   * Messages that have not started and will, oldest first. `after` is a seq; `limit` 1 to 1,000, default 100.
   * @throws NotFoundError SESSION_NOT_FOUND
   */
  async queue(sessionId: string, options: { after?: number; limit?: number } = {}): Promise<QueuedMessage[]> {
    const id = checkSessionId(sessionId)
    checkOptions(options, ['after', 'limit'])
    const after = whole('after', options.after ?? 0, 0)
    const limit = whole('limit', options.limit ?? 100, 1, 1000)
    await this.#session(id)
    const messages = await this.#read((db) => readQueue(db, id, { after, limit }))
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
    const outcome = await this.#commit(id, (draft) => withdraw(draft, number))
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
   * Stops everything sent to the session so far, or up to message `through`: what waits never starts, what runs has
   * its signal fired. What is sent afterwards is not touched. Repeating it is harmless. Redis being away does not
   * make it fail.
   * @throws NotFoundError SESSION_NOT_FOUND
   */
  async stop(sessionId: string, options: { through?: number } = {}): Promise<StopReceipt> {
    const id = checkSessionId(sessionId)
    checkOptions(options, ['through'])
    const through = options.through === undefined ? undefined : whole('through', options.through, 0)
    const stopped = await this.#commit(id, (draft) => stop(draft, through))
    if (!stopped) throw unknownSession(id)
    if (stopped.pending) await this.#notifier.stopped(id, stopped.owner, stopped.through)
    return { through: stopped.through, running: stopped.running }
  }

  /**
   * Entries after a cursor, oldest first. `limit` 1 to 1,000, default 100. Follow a session by reading on from
   * `cursor`: every entry comes exactly once.
   * @throws NotFoundError SESSION_NOT_FOUND
   */
  async transcript(
    sessionId: string,
    options: { after?: number; limit?: number } = {},
  ): Promise<TranscriptPage> {
    const id = checkSessionId(sessionId)
    checkOptions(options, ['after', 'limit'])
    const after = whole('after', options.after ?? 0, 0)
    const limit = whole('limit', options.limit ?? 100, 1, 1000)
    const page = await this.#read((db) => readEntries(db, id, { after, limit }))
    if (!page) throw unknownSession(id)
    const entries = page.entries.map(toEntry)
    return { entries, cursor: entries.at(-1)?.entry ?? after, head: page.head }
  }

  /**
   * Where a session stands: what runs, what waits and for what.
   * @throws NotFoundError SESSION_NOT_FOUND
   */
  async inspect(sessionId: string): Promise<SessionView> {
    return inspect(this.#stores, await this.#session(checkSessionId(sessionId)))
  }

  /** Sessions by id, a page at a time. `limit` 1 to 1,000, default 100; `after` is the last id of the page before. */
  async sessions(
    options: { state?: 'running' | 'waiting' | 'idle'; after?: string; limit?: number } = {},
  ): Promise<SessionSummary[]> {
    checkOptions(options, ['state', 'after', 'limit'])
    const limit = whole('limit', options.limit ?? 100, 1, 1000)
    const after = options.after === undefined ? '' : checkSessionId(options.after)
    const state =
      options.state === undefined
        ? undefined
        : oneOf('state', options.state, ['running', 'waiting', 'idle'] as const)
    return this.#read((db) => readSessions(db, { after, limit, state }))
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
    const { kind, source, payload, traceparent } = message
    const again = { kind, payload: parse(payload) }
    const options = { source, ...(traceparent === null ? {} : { traceparent }) }
    const submission = toSubmission(id, again, options, this.#stores.tunables, seq)
    const [result] = await this.#accept([submission], undefined)
    if (result === undefined || result instanceof Error)
      throw result ?? new Error('The inbox gave no answer.')
    await this.#notify([submission], [result])
    return result
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
    // A turn that was running is refused by the row whatever it does; being told, it ends at once.
    if (erased.owner !== null) await this.#notifier.stopped(id, erased.owner, erased.inboxSeq)
  }

  /**
   * Removes old rows in small bites: finished messages, their entries, deleted sessions; ages in milliseconds, what is
   * left out is kept. Idempotency keys go with their messages.
   */
  async prune(ages: RetentionAges, options: { signal?: AbortSignal } = {}): Promise<Pruned> {
    checkOptions(ages, ['messagesMs', 'entriesMs', 'deletedMs'])
    for (const [name, ms] of Object.entries(ages)) if (ms !== undefined) whole(name, ms, 0)
    return this.#read((db) => prune(db, ages, options.signal))
  }

  /** Closes the connections that this client opened. Repeating it is harmless. */
  close(): Promise<void> {
    this.#closed ??= this.#notifier.settled().then(() => this.#stores.close())
    return this.#closed
  }

  async #accept(submissions: readonly Submission[], trx: CallersTransaction | undefined) {
    this.#assertOpen()
    const { inbox, tunables } = this.#stores
    try {
      if (trx) return await inbox.acceptWithin(trx as unknown as Transaction<Database>, submissions)
      return await inbox.accept(submissions, tunables.enqueueTimeoutMs)
    } catch (error) {
      // In the caller's transaction a deadlock is the caller's to see and to retry, as the driver said it.
      throw trx ? error : toUnavailable(error)
    }
  }

  #notify(submissions: readonly Submission[], outcomes: readonly (Accepted | ButlerError)[]): Promise<void> {
    return this.#notifier.accepted(
      submissions.flatMap(({ sessionId, whenBusy }, index) => {
        const outcome = outcomes[index]
        if (outcome === undefined || outcome instanceof Error) return []
        const stopThrough = whenBusy === 'interrupt' && !outcome.duplicate ? outcome.seq - 1 : undefined
        return [{ id: sessionId, reference: formatReference(outcome), stopThrough }]
      }),
    )
  }

  async #commit<R>(sessionId: string, rule: Rule<R>): Promise<R | undefined> {
    this.#assertOpen()
    const { ledger, tunables } = this.#stores
    try {
      return await ledger.commit(sessionId, rule, { giveUp: deadline(tunables.enqueueTimeoutMs) })
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

const unknownSession = (id: string) =>
  new NotFoundError(
    'SESSION_NOT_FOUND',
    `There is no session ${id}; a session begins with its first message.`,
  )

const unknownMessage = (id: string, seq: number) =>
  new NotFoundError('MESSAGE_NOT_FOUND', `Session ${id} has no message ${seq}.`)
