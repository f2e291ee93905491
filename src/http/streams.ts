/** All streams of this server: counted, kept alive by one tick, ended together when it leaves. */
import { Alarm, sleep, Ticker } from '../base/timing.ts'
import type { Client, WatchEvent } from '../index.ts'
import { EventStream, EventText } from './event-stream.ts'
import { draining, overloaded } from './refusal.ts'

/** An answer to whoever asks for an unknown session does not wait longer for a silent database. */
const FIRST_MS = 2000

interface Open {
  readonly stream: EventStream
  readonly isAllowed: () => Promise<boolean>
  readonly end: Alarm
}

export class Streams {
  readonly #max: number
  readonly #onTrouble: (error: unknown) => void
  readonly #open = new Set<Open>()
  readonly #text = new EventText()
  /** That have no first step yet, and count already. */
  #opening = 0
  readonly #ticker: Ticker
  #draining = false

  constructor(options: { max: number; keepAliveMs: number; onTrouble: (error: unknown) => void }) {
    this.#max = options.max
    this.#onTrouble = options.onTrouble
    this.#ticker = new Ticker({
      tick: () => this.#beat(),
      intervalMs: options.keepAliveMs,
      onError: options.onTrouble,
    })
  }

  get size(): number {
    return this.#open.size
  }

  /**
   * `isAllowed` is asked now and then. `expiresAt`: milliseconds since 1970.
   * @throws Refusal 503; what the first step of the subscription throws.
   */
  async open(
    client: Client,
    session: string,
    options: { after: string; isAllowed: () => Promise<boolean>; expiresAt: number | undefined },
  ): Promise<EventStream> {
    if (this.#draining) throw draining()
    if (this.#open.size + this.#opening >= this.#max) throw overloaded('streams')
    const { after, isAllowed, expiresAt } = options
    const events: AsyncIterator<WatchEvent> = client.subscribe(session, { after })
    const first = events.next()
    first.catch(() => undefined)
    this.#opening += 1
    try {
      await this.#settled(first)
    } finally {
      this.#opening -= 1
    }
    const end = new Alarm()
    const onEnd = (error?: unknown) => {
      if (error !== undefined) this.#onTrouble(error)
      end.clear()
      this.#open.delete(open)
      if (this.#open.size === 0) void this.#ticker.stop()
    }
    const stream = new EventStream({ session, text: this.#text, events, first, after, onEnd })
    const open: Open = { stream, isAllowed, end }
    this.#open.add(open)
    this.#ticker.start()
    if (expiresAt !== undefined) end.set(expiresAt - Date.now(), () => stream.end('expired'))
    if (this.#draining) stream.end('draining')
    return stream
  }

  /** Every client is told to go on elsewhere; no further one gets in. */
  drain(): void {
    this.#draining = true
    for (const { stream } of this.#open) stream.end('draining')
  }

  async #settled(first: Promise<unknown>): Promise<void> {
    const patience = new AbortController()
    try {
      await Promise.race([first, sleep(FIRST_MS, patience.signal)])
    } finally {
      patience.abort()
    }
  }

  #beat(): void {
    for (const { stream, isAllowed } of this.#open) {
      stream.beat()
      // A key may have been revoked; a database that does not answer is no reason to end anything.
      isAllowed().then((allowed) => allowed || stream.end('expired'), this.#onTrouble)
    }
  }
}
