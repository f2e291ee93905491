/**
 * One watched session in this process: how it stands, its newest entries, and the reply under way. All its watchers read
 * from here, each at its own place, so an entry is read from MySQL once however many they are. A feed knows only what is
 * new; who is behind reads pages by itself. What is published is a reason to look, and deltas.
 */
import { type Attempt, isBefore, isSame } from '../protocol/cursor.ts'
import { type Look, readPage } from '../mysql/looks.ts'
import { patiently } from '../mysql/patience.ts'
import { toUnavailable } from '../mysql/trouble.ts'
import { type Chunk, readLive } from '../redis/live.ts'
import { type Entry, toEntry } from './entry.ts'
import { Reply } from './reply.ts'
import type { Stores } from './stores.ts'

/** Who reads from a feed. */
export interface Reader {
  /** There may be something new, which came as so many events and bytes. */
  tell(news: { readonly events: number; readonly bytes: number }): void
  /** Nothing comes any more. */
  fail(error: unknown): void
}

interface Line {
  readonly entry: Entry
  readonly bytes: number
}

/** What is kept for watchers that take a moment, beside the page that was read last. */
const WINDOW_ENTRIES = 200
const WINDOW_BYTES = 2 ** 18

export class Feed {
  readonly sessionId: string
  readonly readers = new Set<Reader>()
  /** Resolves when it hears what is published and has the reply so far; without Redis, when that is known. */
  opened: Promise<void> = Promise.resolve()
  /** A look that was asked for and has not begun. */
  asked: Promise<void> | undefined
  /** How the session stands; null when there is none. Undefined before the first look. */
  look: Look | null | undefined
  reply: Reply | undefined
  readonly #stores: Stores
  readonly #signal: AbortSignal
  readonly #askLook: () => void
  /** The newest entries, without holes, up to `#through`. */
  #window: Line[] = []
  #through = 0
  #reading = false
  #refreshing: Promise<void> | undefined
  #again = false
  /** Chunks that came while the list is being read. */
  #held: Chunk[] = []

  /** `signal` fires when nobody reads from it any more. */
  constructor(stores: Stores, sessionId: string, options: { signal: AbortSignal; askLook: () => void }) {
    this.sessionId = sessionId
    this.#stores = stores
    this.#signal = options.signal
    this.#askLook = options.askLook
  }

  /** The entry of this number, if it is one of the newest. */
  entry(number: number): Entry | undefined {
    const [oldest] = this.#window
    return oldest && this.#window[number - oldest.entry.entry]?.entry
  }

  /** Whether the entry of this number will come into the window by itself. */
  expects(number: number): boolean {
    return number > this.#through
  }

  /** What a look at the row has shown; looks come in the order in which they were made. */
  see(look: Look | null): void {
    const before = this.look
    this.look = look
    if (look && this.reply && isBefore(this.reply, look)) this.reply = undefined
    // Nobody has been told of what was there before the first look: watchers read it by themselves.
    if (!look || before === undefined || before === null || look.head < this.#through) {
      this.#through = look?.head ?? 0
      this.#window = []
    }
    if (JSON.stringify(before) !== JSON.stringify(look)) this.#tell(1, 0)
    if (look && look.head > this.#through) void this.#readOn()
  }

  /** Deltas that were published just now. */
  hear(chunk: Chunk): void {
    if (this.#isLate(chunk)) return
    if (this.#refreshing) this.#held.push(chunk)
    else if (this.#isNext(chunk)) this.#take(chunk)
    else {
      this.#held.push(chunk)
      void this.refresh()
    }
  }

  /** Reads the reply so far from Redis: what was published before, or meanwhile, is in there. Never rejects. */
  refresh(): Promise<void> {
    // What is under way may have begun before whatever is the reason for this one.
    if (this.#refreshing) this.#again = true
    this.#refreshing ??= this.#refresh().finally(() => (this.#refreshing = undefined))
    return this.#refreshing
  }

  async #refresh(): Promise<void> {
    const { redis, keys, telemetry } = this.#stores
    do {
      this.#again = false
      try {
        for (const chunk of await readLive(redis.commands, keys, this.sessionId)) this.#take(chunk)
      } catch (error) {
        telemetry.emit('redis.trouble', { error, session: this.sessionId })
      }
      for (const chunk of this.#held.splice(0)) this.#take(chunk)
    } while (this.#again && !this.#signal.aborted)
  }

  #isNext(chunk: Chunk): boolean {
    const known = this.reply && isSame(this.reply, chunk) ? this.reply.last : 0
    return (chunk.deltas[0]?.index ?? 0) <= known + 1
  }

  /** An older attempt's, or one of a turn that is over: its entries say it all. */
  #isLate(chunk: Attempt): boolean {
    return [this.reply, this.look].some((known) => known && isBefore(chunk, known))
  }

  #take(chunk: Chunk): void {
    if (this.#isLate(chunk)) return
    if (!this.reply || isBefore(this.reply, chunk)) this.reply = new Reply(chunk)
    const { liveMaxDeltas: maxDeltas, liveMaxBytes: maxBytes } = this.#stores.tunables
    this.reply.add(chunk, { maxDeltas, maxBytes })
    this.#tell(chunk.deltas.length, chunk.size)
    if ((chunk.deltas.at(-1)?.after ?? 0) > this.#through) this.#askLook()
  }

  async #readOn(): Promise<void> {
    if (this.#reading) return
    this.#reading = true
    try {
      const { db } = this.#stores.mysql
      while (this.look && this.look.head > this.#through && !this.#signal.aborted) {
        const range = { after: this.#through, through: this.look.head }
        const rows = await patiently(() => readPage(db, this.sessionId, range), this.#signal)
        if (this.#through !== range.after) continue
        this.#extend(
          range,
          rows.map((row) => ({ entry: toEntry(row), bytes: row.payload.length })),
        )
      }
    } catch (error) {
      if (!this.#signal.aborted) for (const reader of this.readers) reader.fail(toUnavailable(error))
    } finally {
      this.#reading = false
    }
  }

  #extend({ after, through }: { after: number; through: number }, page: Line[]): void {
    const isDense = page.every(({ entry }, index) => entry.entry === after + 1 + index)
    // Entries were removed before we came to read them: watchers find out by themselves, and say so.
    if (!isDense || page.length === 0) {
      this.#window = []
      this.#through = through
      return this.#tell(1, 0)
    }
    const bytes = page.reduce((sum, one) => sum + one.bytes, 0)
    let kept = this.#window.reduce((sum, one) => sum + one.bytes, bytes)
    while (kept > WINDOW_BYTES || this.#window.length + page.length > WINDOW_ENTRIES) {
      const oldest = this.#window.shift()
      if (!oldest) break
      kept -= oldest.bytes
    }
    this.#window.push(...page)
    this.#through = after + page.length
    this.#tell(page.length, bytes)
  }

  #tell(events: number, bytes: number): void {
    for (const reader of this.readers) reader.tell({ events, bytes })
  }
}
