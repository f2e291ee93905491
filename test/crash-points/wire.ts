// The wire between the worker under test and one store: a TCP proxy that takes each whole reply on its way back to the
// tally, together with what it answers.
//
//   const wire = await Wire.open('redis', url, tally)
//   wire.hold()              what the worker says from now on is not heard; what it had said reaches the store
//   await wire.close()
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { Replies, type Store } from './replies.ts'
import type { Tally } from './tally.ts'

/** The sessions of all lives are called so, and nothing else is. */
const SESSION = /chat-1|side-1/

export class Wire {
  readonly url: string
  readonly #store: Store
  readonly #tally: Tally
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #held = false

  private constructor(store: Store, target: URL, tally: Tally, server: Server) {
    this.#store = store
    this.#tally = tally
    this.#server = server
    const url = new URL(target)
    url.hostname = '127.0.0.1'
    url.port = String((server.address() as AddressInfo).port)
    this.url = url.href
    server.on('connection', (near) => this.#join(near, connect(Number(target.port), target.hostname)))
  }

  static async open(store: Store, targetUrl: string, tally: Tally): Promise<Wire> {
    const server = createServer()
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    return new Wire(store, new URL(targetUrl), tally, server)
  }

  hold(): void {
    this.#held = true
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise<void>((resolve) => this.#server.close(() => resolve()))
  }

  #join(near: Socket, far: Socket): void {
    const replies = new Replies(this.#store)
    const requests = new Requests(this.#store)
    let silent = false
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => undefined)
      socket.on('close', () => {
        this.#sockets.delete(socket)
        other.destroy()
      })
    }
    near.on('data', (chunk: Buffer) => {
      if (this.#held) return
      requests.note(chunk)
      far.write(chunk)
    })
    far.on('data', (chunk: Buffer) => {
      for (const reply of replies.push(chunk)) {
        const { text, ofSession } = requests.answered(reply)
        const deliver = () => void (!silent && near.writable && near.write(reply))
        const kind = ofSession ? this.#store : 'loops'
        if (!this.#tally.add(kind, text, deliver)) silent = true
      }
    })
  }
}

interface Request {
  readonly text: string
  readonly ofSession: boolean
}

/** What the replies of one connection answer. */
class Requests {
  readonly #store: Store
  readonly #frames = new Replies('redis')
  #pending: Request[] = []
  #last: Request = { text: 'the connection', ofSession: false }

  constructor(store: Store) {
    this.#store = store
  }

  note(chunk: Buffer): void {
    if (this.#store === 'redis') this.#pending.push(...this.#frames.push(chunk).map(describe))
    // A large request comes in several chunks, and the next one only after its answer.
    else if (this.#pending.length === 0) this.#pending = [describe(chunk.subarray(5))]
  }

  answered(reply: Buffer): Request {
    const request = this.#pending.shift()
    // What nobody asked for is a notice; what only ends a transaction is about what the transaction was about.
    if (this.#store === 'redis')
      return request ?? { ...describe(reply), text: `notice ${describe(reply).text}` }
    if (request)
      this.#last = /^(commit|rollback)/.test(request.text) ? { ...this.#last, text: request.text } : request
    return this.#last
  }
}

const SHOWN_MAX = 110

function describe(bytes: Buffer): Request {
  const text = bytes
    .toString('latin1')
    .replace(/[*$]\d+\r\n/g, '')
    .replace(/[^ -~]+/g, ' ')
    .replace(/\b[0-9a-f]{40}\b/, 'script')
    .trim()
  return { text: text.slice(0, SHOWN_MAX), ofSession: SESSION.test(text) }
}
