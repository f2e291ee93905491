/** What watching a session gives, for its users to read. */
import type { Json } from '../base/payload.ts'
import type { Entry } from './entry.ts'

export interface WatchOptions {
  /** Go on behind this: the cursor of an event as it came, or an entry's number. Default: from the beginning. */
  readonly after?: string | number | undefined
  /** Ends the iteration. */
  readonly signal?: AbortSignal | undefined
}

/**
 * `cursor` stands behind the event: whoever has handled it goes on with `subscribe(id, { after: cursor })`, on any
 * process, without a gap and without a repeat. Watchers of one process share what events hold: do not change it.
 */
export type WatchEvent = EntryEvent | DeltaEvent | GapEvent | StateEvent | ResyncEvent

/** A line of the transcript, committed in MySQL. Every one comes exactly once, in order. */
export interface EntryEvent {
  readonly type: 'entry'
  readonly cursor: string
  readonly entry: Entry
}

/**
 * A piece of the reply that is under way, as the handler emitted it. It belongs to one attempt of one message, which
 * begins with a `turn_started` entry; with that attempt's `turn_ended` its deltas are superseded by the entries, and none
 * comes any more.
 */
export interface DeltaEvent {
  readonly type: 'delta'
  readonly cursor: string
  readonly seq: number
  readonly epoch: number
  readonly attempt: number
  /** 1, 2, 3, … within the attempt. */
  readonly index: number
  /** The number of the entry before it. Usually that entry came last; one written meanwhile may have come already. */
  readonly after: number
  readonly delta: Json
}

/** Deltas `from` to `to` of the running attempt are lost: cut to the limits, or emitted while Redis was away. */
export interface GapEvent {
  readonly type: 'gap'
  readonly cursor: string
  readonly seq: number
  readonly epoch: number
  readonly attempt: number
  readonly from: number
  readonly to: number
}

/** How the session stands: the first event of all, and again whenever it has changed. Not replayed. */
export interface StateEvent {
  readonly type: 'state'
  readonly cursor: string
  /** `running` a turn, `retrying` after a failure, `waiting` for a worker, or `idle`: nothing to do. */
  readonly state: 'idle' | 'waiting' | 'running' | 'retrying'
  /** The message whose turn runs, and which start of it that is; null when none does. */
  readonly running: { readonly seq: number; readonly attempt: number } | null
  /** Messages that have not started. */
  readonly waiting: number
}

/**
 * The cursor leads nowhere: it lies beyond the last entry, or what it points at was removed. Forget what you have; what
 * is there comes from its beginning.
 */
export interface ResyncEvent {
  readonly type: 'resync'
  readonly cursor: string
  /** The last entry's number. */
  readonly head: number
}
