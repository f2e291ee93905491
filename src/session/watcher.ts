/**
 * One reader of a session. It holds nothing but its place: what comes next is found in the feed, or, when the reader is
 * behind, in a page from MySQL. Entries have one order, and a delta lies behind the entry that its turn knew last; so
 * two readers at the same place go on alike, on whatever process.
 */
import { CutOffError } from '../base/errors.ts'
import { type Look, readPage } from '../mysql/looks.ts'
import { patiently } from '../mysql/patience.ts'
import { toUnavailable } from '../mysql/trouble.ts'
import { type Attempt, formatCursor, isBefore, isSame, type Place } from '../protocol/cursor.ts'
import { ENTRY } from '../protocol/session-row.ts'
import type { Json } from '../base/payload.ts'
import { type Entry, toEntry } from './entry.ts'
import type { Feed, Reader } from './feed.ts'
import type { Lookout } from './lookout.ts'
import type { Reply } from './reply.ts'
import type { Stores } from './stores.ts'
import { unknownSession } from './unknown.ts'
import type { WatchEvent } from './watch-events.ts'

export interface WatcherOptions {
  readonly stores: Stores
  readonly lookout: Lookout
  readonly sessionId: string
  readonly after: Place
  readonly signal: AbortSignal | undefined
}

export class Watcher implements Reader {
  readonly #options: WatcherOptions
  /** Ends what this reader waits for. */
  readonly #leaving = new AbortController()
  #over = false
  #feed: Feed | undefined
  #place: Place
  /** Attempts before this one are over for this reader. */
  #floor: Attempt
  /** The reply it reads, also when the feed has a newer one by now. */
  #reply: Reply | undefined
  #page: Entry[] = []
  /** Nothing was given that would be wrong if what comes next began later than expected. */
  #fresh: boolean
  #told: Look | undefined
  #failure: { readonly error: unknown } | undefined
  #wake: (() => void) | undefined
  /** What came in since the reader was given its last event; undefined while it waits for one. */
  #ignored: { events: number; bytes: number } | undefined

  constructor(options: WatcherOptions) {
    this.#options = options
    this.#place = options.after
    this.#floor = options.after.delta ?? { seq: 0, attempt: 0 }
    this.#fresh = options.after.entry === 0
  }

  /** An iterator that ends at once when it is left, also while it waits. Nothing happens before its first step. */
  events(): AsyncIterableIterator<WatchEvent> {
    const steps = this.#steps()
    const iterator: AsyncIterableIterator<WatchEvent> = {
      next: () => steps.next(),
      return: () => {
        this.#leave()
        return steps.return(undefined)
      },
      [Symbol.asyncIterator]: () => iterator,
    }
    return iterator
  }

  tell({ events, bytes }: { events: number; bytes: number }): void {
    // So that it reads a reply to its end that is superseded while the reader is busy.
    if (this.#told) this.#reply ??= this.#feed?.reply
    this.#wake?.()
    if (!this.#ignored) return
    this.#ignored.events += events
    this.#ignored.bytes += bytes
    const { sessionId, stores } = this.#options
    const { watchMaxEvents, watchMaxBytes } = stores.tunables
    if (this.#ignored.events <= watchMaxEvents && this.#ignored.bytes <= watchMaxBytes) return
    // Told once: whoever was cut off is told nothing any more.
    if (!this.#failure) stores.telemetry.emit('watcher.cutOff', { session: sessionId, ...this.#ignored })
    this.fail(new CutOffError(formatCursor(this.#place)))
  }

  fail(error: unknown): void {
    this.#failure ??= { error }
    this.#leave()
  }

  #leave(): void {
    if (this.#feed) this.#options.lookout.leave(this.#feed, this)
    this.#over = true
    this.#leaving.abort()
    this.#reply = undefined
    this.#page = []
    this.#wake?.()
  }

  async *#steps(): AsyncGenerator<WatchEvent, undefined> {
    const { lookout, sessionId, signal } = this.#options
    const leave = () => this.#leave()
    signal?.addEventListener('abort', leave, { once: true })
    if (signal?.aborted) leave()
    try {
      if (!this.#goesOn()) return
      const feed = (this.#feed = lookout.join(sessionId, this))
      await this.#settled(feed.opened.then(() => lookout.look(feed)))
      while (this.#goesOn()) {
        const next = this.#next(feed)
        const event = next === 'page' ? await this.#readPage(feed) : next
        if (event) {
          this.#ignored = { events: 0, bytes: 0 }
          yield event
          this.#ignored = undefined
        } else if (!next) await this.#more()
      }
    } finally {
      signal?.removeEventListener('abort', leave)
      this.#leave()
    }
  }

  /** Throws when it was ended by a failure; false when it was simply left. */
  #goesOn(): boolean {
    if (this.#failure) throw this.#failure.error
    return !this.#over
  }

  #more(): Promise<void> {
    return new Promise((resolve) => (this.#wake = resolve))
  }

  /** Waits for work that never rejects, or until this reader is over. */
  async #settled(work: Promise<void>): Promise<void> {
    let done = false
    void work.then(() => {
      done = true
      this.#wake?.()
    })
    while (!done && this.#goesOn()) await this.#more()
  }

  /** What comes next at this place; `page`: it has to be read first; undefined: nothing yet. */
  #next(feed: Feed): WatchEvent | 'page' | undefined {
    const { look } = feed
    if (!look) throw unknownSession(feed.sessionId)
    if (!this.#told) return this.#state(look)
    if (this.#place.entry > look.head || this.#place.entry < look.purged) {
      const event = this.#resync(look, look.purged)
      if (event) return event
    }
    const event = this.#delta(feed) ?? this.#entry(feed, look)
    return event || this.#place.entry < look.head || !this.#isNews(look) ? event : this.#state(look)
  }

  #delta(feed: Feed): WatchEvent | undefined {
    const reply = (this.#reply ??= feed.reply)
    if (!reply) return undefined
    if (isBefore(reply, this.#floor)) {
      this.#reply = undefined
      return feed.reply === reply ? undefined : this.#delta(feed)
    }
    const { seq, attempt, epoch } = reply
    const { entry, delta: seen } = this.#place
    const known = seen && isSame(seen, reply) ? seen.index : 0
    const next = reply.next(known)
    if (!next || next.after > entry) return undefined
    const { index, after, value } = next
    const reach = (to: number) => this.#reach({ entry, delta: { seq, attempt, index: to } })
    if (index > known + 1) {
      return { type: 'gap', cursor: reach(index - 1), seq, epoch, attempt, from: known + 1, to: index - 1 }
    }
    return { type: 'delta', cursor: reach(index), seq, epoch, attempt, index, after, delta: value as Json }
  }

  #entry(feed: Feed, { head }: Look): WatchEvent | 'page' | undefined {
    const number = this.#place.entry + 1
    if (number > head) return undefined
    if (this.#page[0]?.entry !== number) this.#page = []
    const entry = this.#page.shift() ?? feed.entry(number)
    if (!entry) return feed.expects(number) ? undefined : 'page'
    this.#fresh = false
    const { seq, attempt, type } = entry
    const floor = { seq, attempt: attempt + (type === ENTRY.turnEnded ? 1 : 0) }
    if (isBefore(this.#floor, floor)) this.#floor = floor
    const { delta } = this.#place
    const isUnderWay = delta && !isBefore(delta, this.#floor)
    return { type: 'entry', cursor: this.#reach({ entry: number, ...(isUnderWay && { delta }) }), entry }
  }

  /** Entries that were removed are no longer there to be given: an event says so. */
  async #readPage(feed: Feed): Promise<WatchEvent | undefined> {
    const { stores, sessionId } = this.#options
    const { look } = feed
    if (!look) return undefined
    const range = { after: this.#place.entry, through: look.head }
    const reading = patiently(() => readPage(stores.mysql.db, sessionId, range), this.#leaving.signal)
    await this.#settled(
      reading.then(
        (rows) => void (this.#page = rows.map(toEntry)),
        (error: unknown) => this.fail(toUnavailable(error)),
      ),
    )
    if (!this.#goesOn()) return undefined
    const before = (this.#page[0]?.entry ?? range.through + 1) - 1
    return before === range.after ? undefined : this.#resync(look, before)
  }

  /** Goes to the beginning of what there is, and says so unless nothing was given that could contradict it. */
  #resync(look: Look, entry: number): WatchEvent | undefined {
    const wasFresh = this.#fresh
    this.#fresh = true
    this.#floor = { seq: 0, attempt: 0 }
    const cursor = this.#reach({ entry })
    return wasFresh ? undefined : { type: 'resync', cursor, head: look.head }
  }

  #state(look: Look): WatchEvent {
    this.#told = look
    const { state, seq, attempt, waiting } = look
    const running = state === 'running' ? { seq, attempt } : null
    return { type: 'state', cursor: formatCursor(this.#place), state, running, waiting }
  }

  #isNews({ state, seq, attempt, waiting }: Look): boolean {
    const told = this.#told
    return (
      told?.state !== state ||
      told.waiting !== waiting ||
      (state === 'running' && (told.seq !== seq || told.attempt !== attempt))
    )
  }

  #reach(place: Place): string {
    this.#place = place
    return formatCursor(place)
  }
}
