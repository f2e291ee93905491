// Says over HTTP what a client of the library's would: each request goes to a server of its own choice, and an answer that
// is an error is thrown as the library throws it. A connection that broke leaves open what has happened.
import {
  type Accepted,
  ButlerError,
  type ErrorCode,
  type MessageInput,
  type SendItem,
  type SendOptions,
  type SendResult,
  type StopReceipt,
  type TranscriptPage,
  type WatchEvent,
} from '../../src/index.ts'
import { events } from '../service/stream.ts'
import { groupBy } from './record.ts'
import type { Speaker } from './speaker.ts'

export interface HttpAddress {
  /** Of all servers, as this process reaches them. */
  readonly urls: readonly string[]
  readonly key: string
  /** A request that has no answer by then is given up. */
  readonly patienceMs: number
}

/** Of a request whose answer was lost, with its server or on the way. */
export const CONNECTION_LOST = 'CONNECTION_LOST'

/** A stream is kept alive every 15 s: whoever hears nothing for longer connects again. */
const SILENCE_MS = 20_000

type Problem = { readonly code: string; readonly detail: string }

export class HttpSpeaker implements Speaker {
  readonly #address: HttpAddress

  constructor(address: HttpAddress) {
    this.#address = address
  }

  enqueue(session: string, message: MessageInput, options: SendOptions): Promise<Accepted> {
    const { idempotencyKey: key, whenBusy } = options
    return this.#ask('POST', `${session}/messages`, {
      body: { ...bodyOf(message), whenBusy },
      ...(key !== undefined && { headers: { 'idempotency-key': key } }),
    })
  }

  /** A request takes messages of one session, so each session has its own. */
  async enqueueMany(items: readonly SendItem[]): Promise<SendResult[]> {
    const results = new Map<SendItem, SendResult>()
    const sendAll = async (session: string, own: SendItem[]) => {
      const body = own.map(({ message, idempotencyKey: key, whenBusy }) => ({
        ...bodyOf(message),
        key,
        whenBusy,
      }))
      const answers = await this.#ask<(Accepted | Problem)[]>('POST', `${session}/messages`, { body }).catch(
        (error: ButlerError) => own.map(() => ({ code: error.code, detail: error.message })),
      )
      for (const [index, item] of own.entries()) results.set(item, resultOf(answers[index]))
    }
    await Promise.all([...groupBy(items, ({ sessionId }) => sessionId)].map(([id, own]) => sendAll(id, own)))
    return items.map((item) => results.get(item)!)
  }

  stop(session: string, { through }: { through?: number }): Promise<StopReceipt> {
    return this.#ask('POST', `${session}/stop`, { body: { through } })
  }

  withdraw(session: string, seq: number): Promise<void> {
    return this.#ask('DELETE', `${session}/messages/${seq}`)
  }

  transcript(session: string, { limit }: { limit: number }): Promise<TranscriptPage> {
    return this.#ask('GET', `${session}/entries?limit=${limit}`)
  }

  /** One stream, to its end: wherever it ends, another server goes on from the cursor. */
  async *subscribe(
    session: string,
    { after, signal }: { after: string; signal: AbortSignal },
  ): AsyncGenerator<WatchEvent> {
    const where = { session, key: this.#address.key, after, signal, silenceMs: SILENCE_MS }
    for await (const { event, value } of events(this.#any(), where)) {
      if (event === 'reconnect') return
      if (event === 'gone') throw failure({ code: 'SESSION_NOT_FOUND', detail: 'The session is gone.' })
      yield value as WatchEvent
    }
  }

  /** Each request has a connection of its own, which ends with it. */
  close(): Promise<void> {
    return Promise.resolve()
  }

  #any(): string {
    const { urls } = this.#address
    return urls[Math.floor(Math.random() * urls.length)]!
  }

  async #ask<T>(
    method: string,
    path: string,
    { body, headers }: { body?: unknown; headers?: Record<string, string> } = {},
  ): Promise<T> {
    const { key, patienceMs } = this.#address
    let response: Response
    let answer: unknown
    try {
      response = await fetch(`${this.#any()}/v1/sessions/${path}`, {
        method,
        headers: {
          authorization: `Bearer ${key}`,
          // One that is kept may be closed by its server just when it is used again: nobody's fault.
          connection: 'close',
          ...(body !== undefined && { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(patienceMs),
      })
      answer = response.status === 204 ? undefined : await response.json()
    } catch (error) {
      throw failure({ code: CONNECTION_LOST, detail: reasonOf(error) })
    }
    if (!response.ok) throw failure(answer as Problem)
    return answer as T
  }
}

const bodyOf = (message: MessageInput) => (typeof message === 'string' ? { text: message } : message)

/** Codes that only a request over HTTP can meet are said in the same way. */
const failure = ({ code, detail }: Problem): ButlerError => new ButlerError(code as ErrorCode, detail)

function resultOf(answer: Accepted | Problem | undefined): SendResult {
  if (answer && 'seq' in answer) return { ok: true, ...answer }
  return { ok: false, error: failure(answer ?? { code: 'NO_RESULT', detail: 'The list was shorter.' }) }
}

const reasonOf = (error: unknown): string => {
  const { message, cause } = error instanceof Error ? error : new Error(String(error))
  return cause instanceof Error ? `${message}: ${cause.message}` : message
}
