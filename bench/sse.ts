/**
 * Server-sent events, bare: many readers that do no more than count and time what they get, and the simplest server that
 * could have sent it. What the service costs is judged against that server, with the same readers, in the same run.
 */
import { once } from 'node:events'
import {
  Agent,
  type ClientRequest,
  createServer,
  get,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { sleep } from '../src/base/timing.ts'
import { monotonicMs } from './clock.ts'

export interface Seen {
  /** From the moment that a delta names to the moment it was read, milliseconds; a part of them. */
  latencies: number[]
  deltas: number
}

export class Readers {
  readonly #agent = new Agent({ maxSockets: Infinity })
  readonly #requests: ClientRequest[] = []
  #seen: Seen = { latencies: [], deltas: 0 }

  /** Resolves when so many more have read the end of a turn, and with it all that there was before they came. */
  async open(url: string, count: number): Promise<void> {
    const answers = Array.from({ length: count }, async () => {
      const request = get(url, { agent: this.#agent })
      this.#requests.push(request)
      const [response] = (await once(request, 'response')) as [IncomingMessage]
      if (response.statusCode !== 200) throw new Error(`Status ${response.statusCode}`)
      await this.#read(response, this.#requests.length === 1)
    })
    await Promise.all(answers)
  }

  /** What was seen since this was asked the last time. */
  take(): Seen {
    const seen = this.#seen
    this.#seen = { latencies: [], deltas: 0 }
    return seen
  }

  get deltas(): number {
    return this.#seen.deltas
  }

  close(): void {
    for (const request of this.#requests.splice(0)) request.destroy()
  }

  #read(response: IncomingMessage, isFirst: boolean): Promise<void> {
    let rest = ''
    let onEnd: () => void
    const hasEnd = new Promise<void>((resolve) => (onEnd = resolve))
    // They end when they are closed, in whatever way.
    response.on('error', () => undefined)
    response.setEncoding('utf8').on('data', (text: string) => {
      const events = (rest + text).split('\n\n')
      rest = events.pop() ?? ''
      for (const event of events) {
        if (event.includes('"turn_ended"')) onEnd()
        if (!event.startsWith('event: delta')) continue
        this.#seen.deltas += 1
        // A part of them: there would be too many numbers.
        if (isFirst || Math.random() < 0.05)
          this.#seen.latencies.push(monotonicMs() - Number(/"delta":([\d.]+)/.exec(event)?.[1]))
      }
    })
    return hasEnd
  }
}

/** Sends everybody who is connected the same text, so many times a second. */
export class BareServer {
  readonly #clients = new Set<ServerResponse>()
  readonly #server = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
    response.write('event: entry\ndata: {"type":"turn_ended"}\n\n')
    this.#clients.add(response)
    response.once('close', () => this.#clients.delete(response))
  })

  async listen(): Promise<string> {
    await once(this.#server.listen(0, '127.0.0.1'), 'listening')
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async loop({ perSecond, seconds }: { perSecond: number; seconds: number }): Promise<void> {
    for (let n = 1; n <= perSecond * seconds; n++) {
      await sleep(1000 / perSecond)
      const delta = { type: 'delta', cursor: `12.${n}`, seq: 2, attempt: 1, delta: monotonicMs() }
      const text = `event: delta\nid: ${delta.cursor}\ndata: ${JSON.stringify(delta)}\n\n`
      for (const client of this.#clients) client.write(text)
    }
  }

  close(): void {
    this.#server.closeAllConnections()
    this.#server.close()
  }
}
