/**
 * Sends a recording, for `replay`: in the file's order within each session, many sessions at once. Every message carries a
 * key made of its line number, so that whatever went wrong, sending again sends nothing twice.
 */
import { backoffMs, now, sleep } from '../base/timing.ts'
import { type Client, UnavailableError } from '../index.ts'
import type { RecordedMessage } from './recording.ts'

/** A recorded message that was accepted. */
export interface Sent {
  readonly line: number
  readonly session: string
  readonly seq: number
  readonly text: string
}

/** Messages under way at the same time, and of one session in one call. */
const WINDOW = 1000
const BATCH = 50
const BATCH_BYTES = 2 ** 20
/** How long a store may be away before the feed gives up. */
const OUTAGE_MS = 60_000
const FULL_QUEUE_MS = 250

export class ReplayFeed {
  readonly #client: Client
  readonly #keyPrefix: string
  readonly #speed: number | undefined
  readonly #signal: AbortSignal
  readonly #onSent: (sent: Sent) => void
  /** Per session what waits for its previous call: only an enqueue that returned orders the one that begins. */
  readonly #waiting = new Map<string, RecordedMessage[]>()
  readonly #pumps = new Set<Promise<void>>()
  #underWay = 0
  #roomFor: (() => void) | undefined
  #failure: { error: unknown } | undefined
  /** Milliseconds from the call to the acknowledgement, of messages that were not there before. */
  readonly ackMs: number[] = []
  duplicates = 0

  constructor(options: {
    client: Client
    keyPrefix: string
    /** How many times faster than recorded; undefined: as fast as possible. */
    speed: number | undefined
    signal: AbortSignal
    onSent: (sent: Sent) => void
  }) {
    this.#client = options.client
    this.#keyPrefix = options.keyPrefix
    this.#speed = options.speed
    this.#signal = options.signal
    this.#onSent = options.onSent
  }

  /** Resolves when all are accepted or the signal has fired; rejects with the first failure that repeating does not mend. */
  async send(messages: readonly RecordedMessage[]): Promise<void> {
    const start = now()
    const [first] = messages
    for (const message of messages) {
      if (this.#speed !== undefined && first) {
        const due = start + ((message.at - first.at) * 1000) / this.#speed
        if (due > now()) await sleep(due - now(), this.#signal)
      }
      if (this.#underWay >= WINDOW) await new Promise<void>((resolve) => (this.#roomFor = resolve))
      if (this.#over) break
      this.#begin(message)
    }
    await Promise.all(this.#pumps)
    if (this.#failure) throw this.#failure.error
  }

  get #over(): boolean {
    return this.#failure !== undefined || this.#signal.aborted
  }

  #begin(message: RecordedMessage): void {
    this.#underWay += 1
    const waiting = this.#waiting.get(message.session)
    if (waiting) return void waiting.push(message)
    const queue = [message]
    this.#waiting.set(message.session, queue)
    const pump: Promise<void> = this.#pump(message.session, queue)
      .catch((error: unknown) => void (this.#failure ??= { error }))
      .finally(() => this.#pumps.delete(pump))
    this.#pumps.add(pump)
  }

  async #pump(session: string, queue: RecordedMessage[]): Promise<void> {
    try {
      while (queue.length > 0 && !this.#over) {
        const batch = takeBatch(queue)
        await this.#sendBatch(batch).finally(() => this.#release(batch.length))
      }
    } finally {
      // In the same step as the last look at the queue: whoever comes later begins a new one.
      this.#waiting.delete(session)
      this.#release(queue.length)
    }
  }

  #release(count: number): void {
    this.#underWay -= count
    this.#roomFor?.()
    this.#roomFor = undefined
  }

  /** Until all are accepted. Those that a full queue refused go again: they are the last ones, so the order stays. */
  async #sendBatch(batch: RecordedMessage[]): Promise<void> {
    let left = batch
    let troubledSince: number | undefined
    for (let attempt = 1; left.length > 0 && !this.#signal.aborted; attempt++) {
      try {
        left = await this.#sendOnce(left)
        troubledSince = undefined
        if (left.length > 0) await sleep(FULL_QUEUE_MS, this.#signal)
      } catch (error) {
        troubledSince ??= now()
        const mayPass = error instanceof UnavailableError && error.code !== 'MIGRATION_PENDING'
        if (!mayPass || now() - troubledSince > OUTAGE_MS) throw error
        await sleep(backoffMs(Math.min(attempt, 8), 50, 2000), this.#signal)
      }
    }
  }

  /** Returns what the session had no room for. */
  async #sendOnce(batch: readonly RecordedMessage[]): Promise<RecordedMessage[]> {
    const start = now()
    const items = batch.map(({ line, session: sessionId, text: message }) => {
      return { sessionId, message, idempotencyKey: `${this.#keyPrefix}-${line}` }
    })
    const results = await this.#client.enqueueMany(items)
    const ackMs = now() - start
    return batch.filter(({ line, session, text }, index) => {
      const result = results[index]
      if (!result?.ok) {
        if (result?.error.code === 'QUEUE_FULL') return true
        throw result?.error ?? new Error('The inbox gave no answer.')
      }
      if (result.duplicate) this.duplicates += 1
      else this.ackMs.push(ackMs)
      this.#onSent({ line, session, seq: result.seq, text })
      return false
    })
  }
}

function takeBatch(queue: RecordedMessage[]): RecordedMessage[] {
  let count = 0
  for (let bytes = 0; count < Math.min(queue.length, BATCH); count++) {
    bytes += queue[count]?.text.length ?? 0
    if (count > 0 && bytes > BATCH_BYTES) break
  }
  return queue.splice(0, count)
}
