/**
 * One subscriber connection that is always there again: it reconnects for ever, subscribes anew, and replaces
 * a connection that has gone silent (a blackholed socket looks healthy for minutes). Used by the process's
 * `Listener` and by whoever watches sessions. What was published in between is gone: `onSubscribed` says when
 * to look.
 */
import type { Redis } from 'ioredis'
import { backoffMs, now, sleep, withDeadline } from '../base/timing.ts'

export interface SubscriptionOptions {
  /** Makes a fresh connection; see `RedisConnection.subscriber`. */
  connect: () => Redis
  /** Channels from the start. */
  channels: readonly string[]
  /** Interval of pings, and how long each may take, in ms. Two unanswered in a row end the connection. */
  pingMs: number
  onMessage: (channel: string, text: string) => void
  /** After every (re)subscription: anything may have been missed before. */
  onSubscribed: () => void
  /** Connection trouble and what callbacks threw, as often as it happens. */
  onTrouble: (error: unknown) => void
}

/** One round of a PING may fail because this process was stalled, so the second one counts. */
const SILENT_PINGS = 2

export class Subscription {
  readonly #options: SubscriptionOptions
  readonly #channels: Set<string>
  #client: Redis | undefined
  #upSince: number | null = null
  #stop: AbortController | undefined
  #loop: Promise<void> | undefined

  constructor(options: SubscriptionOptions) {
    this.#options = options
    this.#channels = new Set(options.channels)
  }

  start(): void {
    if (this.#stop) return
    this.#stop = new AbortController()
    this.#loop = this.#run(this.#stop.signal)
  }

  /**
   * Resolves when the connection is closed and no callback comes any more. Until Redis has confirmed that we
   * left, a publisher counts us among those who heard it, so up to then messages are still delivered.
   */
  async stop(): Promise<void> {
    const stop = this.#stop
    if (!stop) return
    const left = this.#client?.unsubscribe()
    if (left) await withDeadline(left, this.#options.pingMs, () => new Error('late')).catch(() => undefined)
    stop.abort()
    await this.#loop
    if (this.#stop === stop) this.#stop = undefined
  }

  /** Monotonic time since when it has been subscribed without a break; null while it is not. */
  upSinceMs(): number | null {
    return this.#upSince
  }

  /** Resolves when Redis confirmed it; rejects without a connection, and then comes with the next one. */
  async add(channel: string): Promise<void> {
    this.#channels.add(channel)
    if (!this.#client) throw new Error('There is no subscriber connection at the moment.')
    await this.#client.subscribe(channel)
  }

  /** Never rejects: without a connection there is nothing to leave. */
  async remove(channel: string): Promise<void> {
    this.#channels.delete(channel)
    await this.#client?.unsubscribe(channel).catch(() => undefined)
  }

  async #run(signal: AbortSignal): Promise<void> {
    let attempt = 0
    while (!signal.aborted) {
      try {
        await this.#serve(signal, () => (attempt = 0))
      } catch (error) {
        if (!signal.aborted) this.#guard(() => this.#options.onTrouble(error))
      }
      attempt += 1
      await sleep(backoffMs(attempt, 25, 200), signal)
    }
  }

  /** The life of one connection; returns or throws when it is over. */
  async #serve(signal: AbortSignal, onUp: () => void): Promise<void> {
    const client = this.#options.connect()
    const over = new AbortController()
    const end = () => {
      this.#upSince = null
      over.abort()
    }
    signal.addEventListener('abort', end, { once: true })
    client.on('error', (error: Error) => !signal.aborted && this.#guard(() => this.#options.onTrouble(error)))
    client.on('close', end)
    client.on('message', (channel: string, text: string) => {
      if (!signal.aborted) this.#guard(() => this.#options.onMessage(channel, text))
    })
    try {
      await Promise.race([client.connect(), aborted(over.signal)])
      if (over.signal.aborted) return
      // Before subscribing, so that a channel added meanwhile is not left out.
      this.#client = client
      if (this.#channels.size > 0) await client.subscribe(...this.#channels)
      if (over.signal.aborted) return
      onUp()
      this.#upSince = now()
      this.#guard(this.#options.onSubscribed)
      await this.#ping(client, over.signal)
      if (!signal.aborted) throw new Error('The subscriber connection was closed.')
    } finally {
      this.#client = undefined
      this.#upSince = null
      signal.removeEventListener('abort', end)
      client.disconnect()
    }
  }

  async #ping(client: Redis, over: AbortSignal): Promise<void> {
    const { pingMs } = this.#options
    let silent = 0
    for (;;) {
      await sleep(pingMs, over)
      if (over.aborted) return
      try {
        const late = () => new Error(`The subscriber connection did not answer within ${pingMs} ms.`)
        await withDeadline(client.ping(), pingMs, late)
        silent = 0
      } catch (error) {
        silent += 1
        if (silent >= SILENT_PINGS && !over.aborted) throw error
      }
    }
  }

  /** A callback that throws must not end the connection, let alone the process. */
  #guard(call: () => void): void {
    try {
      call()
    } catch (error) {
      try {
        this.#options.onTrouble(error)
      } catch {
        // The reporter itself is broken; there is nobody left to tell.
      }
    }
  }
}

const aborted = (signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
