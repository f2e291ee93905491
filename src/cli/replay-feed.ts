/**
 * Sends a recording, for `replay`: in the file's order within each session, many sessions at once. Every message carries a
 * key made of its line number, so that whatever went wrong, sending again sends nothing twice.
 */
import { backoffMs, now, sleep } from '../base/timing.ts'
import { type Client, RefusedError, UnavailableError } from '../index.ts'
import type { RecordedMessage } from './recording.ts'

/** A recorded message that was accepted. */
export interface Sent {
  readonly line: number
  readonly session: string
  readonly seq: number
  readonly text: string
}

/** Enqueues under way at the same time. */
const WINDOW = 400
/** How long a store may be away before the feed gives up. */
const OUTAGE_MS = 60_000
const FULL_QUEUE_MS = 250

export class ReplayFeed {
  readonly #client: Client
  readonly #keyPrefix: string
  readonly #speed: number | undefined
  readonly #signal: AbortSignal
  readonly #onSent: (sent: Sent) => void
  readonly #last = new Map<string, Promise<void>>()
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
    await Promise.all(this.#last.values())
    if (this.#failure) throw this.#failure.error
  }

  get #over(): boolean {
    return this.#failure !== undefined || this.#signal.aborted
  }

  /** Behind the session's previous message: only an enqueue that returned orders the one that begins. */
  #begin(message: RecordedMessage): void {
    this.#underWay += 1
    const before = this.#last.get(message.session) ?? Promise.resolve()
    const mine = before
      .then(() => (this.#over ? undefined : this.#sendOne(message)))
      .catch((error: unknown) => void (this.#failure ??= { error }))
      .finally(() => {
        this.#underWay -= 1
        if (this.#last.get(message.session) === mine) this.#last.delete(message.session)
        this.#roomFor?.()
        this.#roomFor = undefined
      })
    this.#last.set(message.session, mine)
  }

  async #sendOne({ line, session, text }: RecordedMessage): Promise<void> {
    const idempotencyKey = `${this.#keyPrefix}-${line}`
    let troubledSince: number | undefined
    for (let attempt = 1; !this.#signal.aborted; attempt++) {
      const start = now()
      try {
        const { seq, duplicate } = await this.#client.enqueue(session, text, { idempotencyKey })
        if (duplicate) this.duplicates += 1
        else this.ackMs.push(now() - start)
        return this.#onSent({ line, session, seq, text })
      } catch (error) {
        if (error instanceof RefusedError && error.code === 'QUEUE_FULL') {
          await sleep(FULL_QUEUE_MS, this.#signal)
          continue
        }
        troubledSince ??= now()
        const mayPass = error instanceof UnavailableError && error.code !== 'MIGRATION_PENDING'
        if (!mayPass || now() - troubledSince > OUTAGE_MS) throw error
        await sleep(backoffMs(Math.min(attempt, 8), 50, 2000), this.#signal)
      }
    }
  }
}
