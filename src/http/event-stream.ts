/**
 * One watcher's stream of server-sent events. It takes from the session only what its client takes from it, so nothing
 * piles up here; each event's id is its cursor, with which the client goes on anywhere. It ends when its client leaves,
 * or with a `reconnect` event; it never ends a turn.
 */
import { ClosedError, CutOffError, NotFoundError, type WatchEvent } from '../index.ts'

/** Why a stream ended by itself: the client connects again, with its cursor, unless the session is `gone`. */
export type StreamEnd = 'draining' | 'expired' | 'slow' | 'gone'

/** Of what is written and not sent yet. */
const BUFFER_BYTES = 16 * 1024
/** A client that has taken nothing for so many beats is not there any more. */
const STUCK_BEATS = 4
/** After an end, clients come back spread over so many milliseconds. */
const RETRY_MS = [500, 2500] as const

const encoder = new TextEncoder()

/** Events as they are sent. Those who watch a session are given the same one after the other: it is written once. */
export class Script {
  #last: { readonly session: string; readonly event: WatchEvent; readonly bytes: Uint8Array } | undefined

  /** What comes at a place is the same for everybody there, but for a state, or how far a gap reaches back. */
  of(session: string, event: WatchEvent): Uint8Array {
    const { type, cursor } = event
    const last = this.#last
    if (last?.session === session && last.event.cursor === cursor && last.event.type === type)
      if (type === 'entry' || type === 'delta') return last.bytes
    // JSON has no line breaks of its own, so no text can become a field of the stream.
    const bytes = encoder.encode(`event: ${type}\nid: ${cursor}\ndata: ${JSON.stringify(event)}\n\n`)
    this.#last = { session, event, bytes }
    return bytes
  }
}

export class EventStream {
  readonly body: ReadableStream<Uint8Array>
  readonly #events: AsyncIterator<WatchEvent>
  readonly #onEnd: (error?: unknown) => void
  readonly #write: (event: WatchEvent) => void
  #controller!: ReadableStreamDefaultController<Uint8Array>
  #first: Promise<IteratorResult<WatchEvent>> | undefined
  #cursor: string
  #stuck = 0
  #over = false

  /** `first`: the first step of `events`, already taken. `onEnd` gets what nobody expects. */
  constructor(options: {
    session: string
    script: Script
    events: AsyncIterator<WatchEvent>
    first: Promise<IteratorResult<WatchEvent>>
    after: string
    onEnd: (error?: unknown) => void
  }) {
    this.#write = (event) => this.#controller.enqueue(options.script.of(options.session, event))
    this.#events = options.events
    this.#first = options.first
    this.#cursor = options.after
    this.#onEnd = options.onEnd
    this.body = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller
          // At once, so that whoever is in between sees that there is an answer.
          this.#say(`retry: ${retryMs()}\n: open\n\n`)
        },
        pull: () => this.#pull(),
        cancel: () => this.#leave(),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: BUFFER_BYTES }),
    )
  }

  /** Now and then, so that nothing in between takes the stream for dead; ends it when nobody reads. */
  beat(): void {
    if (this.#over) return
    this.#stuck = (this.#controller.desiredSize ?? 0) > 0 ? 0 : this.#stuck + 1
    if (this.#stuck === 0) this.#say(': keep-alive\n\n')
    else if (this.#stuck >= STUCK_BEATS) this.#fail(new Error('The client reads nothing.'))
  }

  /** Tells the client to go on elsewhere, or that there is nothing to go on with. */
  end(why: StreamEnd): void {
    if (this.#over) return
    const data = JSON.stringify({ type: why === 'gone' ? 'gone' : 'reconnect', cursor: this.#cursor, why })
    this.#say(
      `event: ${why === 'gone' ? 'gone' : 'reconnect'}\nid: ${this.#cursor}\nretry: ${retryMs()}\ndata: ${data}\n\n`,
    )
    this.#controller.close()
    this.#leave()
  }

  async #pull(): Promise<void> {
    try {
      const step = await (this.#first ?? this.#events.next())
      this.#first = undefined
      if (this.#over) return
      if (step.done) return this.end('draining')
      this.#cursor = step.value.cursor
      this.#write(step.value)
    } catch (error) {
      if (error instanceof CutOffError) this.end('slow')
      else if (error instanceof NotFoundError) this.end('gone')
      else if (error instanceof ClosedError) this.end('draining')
      else this.#fail(error)
    }
  }

  #say(text: string): void {
    this.#controller.enqueue(encoder.encode(text))
  }

  /** Breaks the connection off: a clean end would look like one. */
  #fail(error: unknown): void {
    if (this.#over) return
    // Servers log what they get here, and some send it to the client: the reason goes to our own log alone.
    this.#controller.error(new Error('The stream broke off.'))
    this.#leave(error)
  }

  #leave(error?: unknown): void {
    if (this.#over) return
    this.#over = true
    void this.#events.return?.()
    this.#onEnd(error)
  }
}

const retryMs = (): number => Math.round(RETRY_MS[0] + Math.random() * (RETRY_MS[1] - RETRY_MS[0]))

export const STREAM_HEADERS = {
  'content-type': 'text/event-stream',
  // no-transform: a proxy that compresses holds events back.
  'cache-control': 'no-store, no-transform',
  'x-accel-buffering': 'no',
} as const
