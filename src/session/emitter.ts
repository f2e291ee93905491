/**
 * What a turn streams to whoever is watching. What is emitted in one tick goes together, and goes at once: over the same
 * connection, so before the notice of whatever entry is written after it. Nothing here fails a handler or holds it up:
 * without Redis deltas are dropped, and readers see from the missing indexes that some are.
 */
import { Lane } from '../base/lane.ts'
import { appendLive, clearLive, type DeltaDraft } from '../redis/live.ts'
import type { Stores } from './stores.ts'

interface About {
  readonly session: string
  readonly seq: number
  readonly attempt: number
  readonly epoch: number
}

/** Of one script call: what it publishes is one message. */
const CHUNK_DELTAS = 500
const CHUNK_BYTES = 2 ** 16
/** What may wait for Redis; more is dropped. */
const UNSENT_BYTES = 2 ** 22
/** What a delta costs beside its text: its numbers. */
const NUMBERS_BYTES = 24

export class Emitter {
  readonly #stores: Stores
  readonly #about: About
  /** The last entry that the turn knows of. */
  readonly #after: () => number
  readonly #lane: Lane<DeltaDraft | 'end'>
  #index = 0
  #bytes = 0
  /** Bytes without an answer. */
  #unsent = 0
  #first: Promise<unknown> | undefined

  constructor(stores: Stores, about: About, after: () => number) {
    this.#stores = stores
    this.#about = about
    this.#after = after
    const { liveMaxDeltas, liveMaxBytes } = stores.tunables
    this.#lane = new Lane({
      run: (items) => this.#send(items),
      maxItems: Math.min(CHUNK_DELTAS, liveMaxDeltas),
      maxWeight: Math.min(CHUNK_BYTES, liveMaxBytes),
      width: Infinity,
      weigh: (item) => (item === 'end' ? 0 : bytesOf(item)),
    })
  }

  emit(delta: unknown): void {
    const { liveMaxBytes } = this.#stores.tunables
    let text: string
    try {
      // Undefined for what JSON does not know, whatever the type says.
      text = (JSON.stringify(delta) as string | undefined) ?? 'null'
      if (Buffer.byteLength(text) > liveMaxBytes)
        throw new Error(`a delta has more than liveMaxBytes (${liveMaxBytes})`)
    } catch (error) {
      this.#stores.telemetry.emit('background.error', { where: 'emit', session: this.#about.session, error })
      return
    }
    const draft = { index: (this.#index += 1), after: this.#after(), text }
    const bytes = bytesOf(draft)
    if (this.#unsent + bytes > Math.max(UNSENT_BYTES, liveMaxBytes)) return
    this.#unsent += bytes
    this.#lane.push(draft)
  }

  /** The turn's end is committed: what it streamed is superseded. */
  end(): void {
    if (this.#index > 0) this.#lane.push('end')
  }

  async #send(items: (DeltaDraft | 'end')[]): Promise<void> {
    const { redis, keys, tunables, telemetry } = this.#stores
    const { session, seq, attempt, epoch } = this.#about
    const deltas = items.filter((item) => item !== 'end')
    const bytes = deltas.reduce((sum, delta) => sum + bytesOf(delta), 0)
    this.#bytes += bytes
    try {
      if (deltas.length > 0) {
        const { liveMaxDeltas: maxDeltas, liveMaxBytes: maxBytes, turnTimeoutMs: ttlMs } = tunables
        const draft = { seq, attempt, epoch, deltas, bytes: this.#bytes }
        const send = () => appendLive(redis.commands, keys, session, draft, { maxDeltas, maxBytes, ttlMs })
        // A server that does not know the script yet is sent it again, which must not be overtaken.
        if (this.#first) await this.#first.then(send, send)
        else await (this.#first = send())
      }
      if (items.at(-1) === 'end') await clearLive(redis.commands, keys, session, { seq, attempt })
    } catch (error) {
      telemetry.emit('redis.trouble', { error, session })
    } finally {
      this.#unsent -= bytes
    }
  }
}

const bytesOf = ({ text }: DeltaDraft): number => Buffer.byteLength(text) + NUMBERS_BYTES
