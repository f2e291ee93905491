/**
 * Everything that this process watches: one subscription and one feed per session, however many watch it. Notifications
 * may be lost, so every few seconds one statement looks at all watched sessions, and more often while nothing can be
 * heard. Nobody watches: no feed, no tick, no statement.
 */
import { ClosedError } from '../base/errors.ts'
import { Lane } from '../base/lane.ts'
import { Ticker } from '../base/timing.ts'
import { readLooks } from '../mysql/looks.ts'
import { patiently } from '../mysql/patience.ts'
import { toUnavailable } from '../mysql/trouble.ts'
import { parseChunk } from '../redis/live.ts'
import { LOOK } from '../redis/notice.ts'
import { Subscription } from '../redis/subscription.ts'
import { Feed, type Reader } from './feed.ts'
import type { Stores } from './stores.ts'

interface Ask {
  readonly feed: Feed
  readonly resolve: () => void
}

const LOOK_SESSIONS = 1000
const SAMPLE_MAX = 100

export class Lookout {
  readonly #stores: Stores
  readonly #subscription: Subscription
  /** By channel. */
  readonly #feeds = new Map<string, { readonly feed: Feed; readonly over: AbortController }>()
  readonly #looks: Lane<Ask>
  readonly #ticker: Ticker
  readonly #closing = new AbortController()

  /** Connects when somebody watches for the first time. */
  constructor(stores: Stores) {
    const { tunables, telemetry, redis } = stores
    this.#stores = stores
    this.#subscription = new Subscription({
      connect: () => redis.subscriber(),
      channels: [],
      pingMs: Math.min(tunables.renewMs / 2, 5000),
      onMessage: (channel, text) => this.#hear(channel, text),
      onSubscribed: () => {
        for (const { feed } of this.#feeds.values()) {
          void feed.refresh()
          void this.look(feed)
        }
      },
      onTrouble: (error) => telemetry.emit('redis.trouble', { error }),
    })
    this.#looks = new Lane({ run: (asks) => this.#look(asks), maxItems: LOOK_SESSIONS })
    this.#ticker = new Ticker({
      tick: () => {
        for (const { feed } of this.#feeds.values()) void this.look(feed)
      },
      intervalMs: () => (this.#subscription.upSinceMs() === null ? tunables.lookFastMs : tunables.lookMs),
      jitter: 0.2,
      onError: (error) => telemetry.emit('background.error', { where: 'lookout', error }),
    })
  }

  join(sessionId: string, reader: Reader): Feed {
    if (this.#closing.signal.aborted) throw closed()
    const channel = this.#stores.keys.sessionChannel(sessionId)
    const known = this.#feeds.get(channel)
    const { feed } = known ?? this.#open(sessionId, channel)
    feed.readers.add(reader)
    return feed
  }

  /** Repeating it is harmless. */
  leave(feed: Feed, reader: Reader): void {
    feed.readers.delete(reader)
    const channel = this.#stores.keys.sessionChannel(feed.sessionId)
    const known = this.#feeds.get(channel)
    if (feed.readers.size > 0 || known?.feed !== feed) return
    this.#feeds.delete(channel)
    known.over.abort()
    void this.#subscription.remove(channel)
    if (this.#feeds.size === 0) void this.#ticker.stop()
  }

  /** Resolves when the feed has seen a look that began after now. Waits out an outage of the database. Never rejects. */
  look(feed: Feed): Promise<void> {
    feed.asked ??= new Promise((resolve) => this.#looks.push({ feed, resolve }))
    return feed.asked
  }

  /** Whoever watches gets a ClosedError. Resolves when nothing of it is left. */
  async close(): Promise<void> {
    this.#closing.abort()
    for (const { feed } of this.#feeds.values()) this.#fail(feed, closed())
    await Promise.all([this.#ticker.stop(), this.#subscription.stop()])
  }

  #open(sessionId: string, channel: string) {
    const over = new AbortController()
    const feed: Feed = new Feed(this.#stores, sessionId, {
      signal: over.signal,
      askLook: () => void this.look(feed),
    })
    this.#feeds.set(channel, { feed, over })
    this.#subscription.start()
    this.#ticker.start()
    // Without a connection the channel comes with the next one, and then everything is read again.
    feed.opened = this.#subscription
      .add(channel)
      .catch(() => undefined)
      .then(() => feed.refresh())
    return { feed, over }
  }

  #hear(channel: string, text: string): void {
    const feed = this.#feeds.get(channel)?.feed
    if (!feed) return
    if (text === LOOK) return void this.look(feed)
    const chunk = parseChunk(text)
    if (chunk) feed.hear(chunk)
    else this.#stores.telemetry.emit('channel.junk', { sample: text.slice(0, SAMPLE_MAX), channel })
  }

  async #look(asks: Ask[]): Promise<void> {
    const { mysql } = this.#stores
    const { signal } = this.#closing
    for (const { feed } of asks) feed.asked = undefined
    const ids = asks.map(({ feed }) => feed.sessionId)
    try {
      const looks = await patiently(() => readLooks(mysql.db, ids), signal)
      for (const { feed } of asks) feed.see(looks.get(feed.sessionId) ?? null)
    } catch (error) {
      if (!signal.aborted) for (const { feed } of asks) this.#fail(feed, toUnavailable(error))
    }
    for (const { resolve } of asks) resolve()
  }

  #fail(feed: Feed, error: Error): void {
    for (const reader of feed.readers) reader.fail(error)
  }
}

const closed = () => new ClosedError('CLOSED', 'This client was closed: create a new one.')
