/** What an application writes: a handler, what it is given, and what it may return. */
import type { Json } from '../base/payload.ts'
import type { MessageSource } from '../protocol/session-row.ts'
import type { Entry, EntryInput } from './entry.ts'

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
   * Runs `fn` once per message and stores its result as JSON (a Date comes back as text, undefined as null, on the first
   * run too): after a retry or a takeover the stored result is
   * returned and `fn` does not run again. `key` names the step within the message.
   */
  step<T>(key: string, fn: () => Promise<T> | T): Promise<T>
  /**
   * Sends a piece of the reply, any JSON value, to whoever is watching. It is kept in Redis while this attempt runs, for
   * those who come later; what the turn writes supersedes it. Never waits and never fails: without Redis it is dropped.
   */
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
