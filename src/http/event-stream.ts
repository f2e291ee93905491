/**
 * One watcher's stream of server-sent events. It takes from the session only what its client takes from it, so nothing
 * piles up here; each event's id is its cursor, with which the client goes on anywhere. It ends when its client leaves,
 * or with a `reconnect` event; it never ends a turn.
 */
import { ClosedError, CutOffError, NotFoundError, type WatchEvent } from '../index.ts'

/** Why a stream ended by itself: the client connects again, with its cursor, unless the session is `gone`. */
export type StreamEnd = 'draining' | 'expired' | 'slow' | 'gone'

/** Where a stream goes. */
export interface Sink {
  /** False: no more until it has drained. */
  write(bytes: Uint8Array): boolean
  drained(): Promise<void>
  end(): void
  /** So that nobody takes it for an end. */
  breakOff(): void
}

/** Of what lies in a body and is not read. */
const BUFFER_BYTES = 16 * 1024
/** A client that has taken nothing for so many beats is not there any more. */
const STUCK_BEATS = 4
/** After an end, clients come back spread over so many milliseconds. */
const RETRY_MS = [500, 2500] as const

const encoder = new TextEncoder()

/** Events as they are sent. Those who watch a session are given the same one after the other: it is written once. */
export class EventText {
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

/** By the bodies that they are in a response. */
const streams = new WeakMap<ReadableStream, EventStream>()
/** The stream that such a body stands for, for a server that has a sink of its own: half the work of reading the body. */
export const streamBehind = (body: ReadableStream): EventStream | undefined => streams.get(body)

export interface EventStreamOptions {
  readonly session: string
  readonly text: EventText
  readonly events: AsyncIterator<WatchEvent>
  /** The first step of `events`, already taken. */
  readonly first: Promise<IteratorResult<WatchEvent>>
  readonly after: string
  /** Gets what nobody expects. */
  readonly onEnd: (error?: unknown) => void
}

export class EventStream {
  readonly #options: EventStreamOptions
  #sink: Sink | undefined
  /** While its sink takes no more. */
  #full: Promise<void> | undefined
  #cursor: string
  #stuck = 0
  #over = false
  /** What is still to be said to a sink that comes later. */
  #lastWord: Uint8Array | undefined

  constructor(options: EventStreamOptions) {
    this.#options = options
    this.#cursor = options.after
  }

  /** The stream as the body of a response. It begins when somebody reads. */
  body(): ReadableStream<Uint8Array> {
    let onDrain = (): void => undefined
    const body = new ReadableStream<Uint8Array>(
      {
        pull: (controller) => {
          onDrain()
          if (this.#sink) return
          this.sendTo({
            write: (bytes) => {
              controller.enqueue(bytes)
              return (controller.desiredSize ?? 0) > -BUFFER_BYTES
            },
            drained: () => new Promise((resolve) => (onDrain = resolve)),
            end: () => controller.close(),
            // Servers log what they get here, and some send it to the client: the reason goes to our own log alone.
            breakOff: () => controller.error(new Error('The stream broke off.')),
          })
        },
        cancel: () => this.leave(),
      },
      // With any other mark it would begin at once, and nobody else could send it.
      new ByteLengthQueuingStrategy({ highWaterMark: 0 }),
    )
    streams.set(body, this)
    return body
  }

  /** Sends what comes until either side leaves. Once. */
  sendTo(sink: Sink): void {
    this.#sink = sink
    // At once, so that whoever is in between sees that there is an answer.
    this.#write(encoder.encode(`retry: ${retryMs()}\n: open\n\n`))
    if (!this.#over) return void this.#send()
    if (!this.#lastWord) return sink.breakOff()
    this.#write(this.#lastWord)
    sink.end()
  }

  /** Now and then, so that nothing in between takes the stream for dead; ends it when nobody reads. */
  beat(): void {
    if (this.#over) return
    this.#stuck = this.#sink && !this.#full ? 0 : this.#stuck + 1
    if (this.#stuck === 0) this.#write(encoder.encode(': keep-alive\n\n'))
    else if (this.#stuck >= STUCK_BEATS) this.#fail(new Error('The client reads nothing.'))
  }

  /** Tells the client to go on elsewhere, or that there is nothing to go on with. */
  end(why: StreamEnd): void {
    if (this.#over) return
    const type = why === 'gone' ? 'gone' : 'reconnect'
    const data = JSON.stringify({ type, cursor: this.#cursor, why })
    this.#lastWord = encoder.encode(
      `event: ${type}\nid: ${this.#cursor}\nretry: ${retryMs()}\ndata: ${data}\n\n`,
    )
    if (this.#sink) {
      this.#write(this.#lastWord)
      this.#sink.end()
    }
    this.leave()
  }

  /** The client is gone. */
  leave(error?: unknown): void {
    if (this.#over) return
    this.#over = true
    const { events, onEnd } = this.#options
    void events.return?.()
    onEnd(error)
  }

  async #send(): Promise<void> {
    const { session, text, events, first } = this.#options
    try {
      for (let next = first; ; next = events.next()) {
        const step = await next
        if (this.#over) return
        if (step.done) return this.end('draining')
        this.#cursor = step.value.cursor
        this.#write(text.of(session, step.value))
        if (this.#full) await this.#full
      }
    } catch (error) {
      if (error instanceof CutOffError) this.end('slow')
      else if (error instanceof NotFoundError) this.end('gone')
      else if (error instanceof ClosedError) this.end('draining')
      else this.#fail(error)
    }
  }

  #write(bytes: Uint8Array): void {
    if (this.#sink?.write(bytes) === false)
      this.#full ??= this.#sink.drained().then(() => (this.#full = undefined))
  }

  /** Breaks the connection off: a clean end would look like one. */
  #fail(error: unknown): void {
    if (this.#over) return
    this.#sink?.breakOff()
    this.leave(error)
  }
}

const retryMs = (): number => Math.round(RETRY_MS[0] + Math.random() * (RETRY_MS[1] - RETRY_MS[0]))

export const STREAM_HEADERS = {
  'content-type': 'text/event-stream',
  // no-transform: a proxy that compresses holds events back.
  'cache-control': 'no-store, no-transform',
  'x-accel-buffering': 'no',
} as const
