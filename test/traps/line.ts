// A TCP line between one worker and one server that can stop at one exact request: hold it (and everything after it on
// that connection) until released, hold its answer, or let it happen and lose the answer. A held request is delivered
// when it is released even if its sender has hung up meanwhile, as a network does with what is already on its way.
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'

export interface Held {
  /** Resolves when the request, or its answer, has come by and is held. */
  readonly seen: Promise<void>
  release(): void
}

export interface Line {
  readonly url: string
  /** Holds the next request that matches. */
  hold(request: RegExp): Held
  /** Lets the next request that matches happen and holds everything the server says on that connection. */
  holdAnswer(request: RegExp): Held
  /** Lets the next request that matches happen, and cuts the connection when its answer comes. Resolves after the cut. */
  loseAnswer(request: RegExp): Promise<void>
  /** No connection gets through until `up`; those that exist are cut. */
  down(): void
  up(): void
  cut(): void
  close(): Promise<void>
}

interface Trap {
  readonly request: RegExp
  readonly kind: 'request' | 'answer' | 'lose'
  seen: () => void
  /** Whatever waits for the release. */
  onRelease: (() => void) | undefined
  released: boolean
}

export async function lineTo(serverUrl: string): Promise<Line> {
  const target = new URL(serverUrl)
  const traps = new Set<Trap>()
  const sockets = new Set<Socket>()
  let isUp = true

  const server = createServer((near) => {
    if (!isUp) return void near.destroy()
    const far = connect(Number(target.port), target.hostname)
    const upward = new Valve(
      (chunk) => far.write(chunk),
      () => far.end(),
    )
    const downward = new Valve(
      (chunk) => near.write(chunk),
      () => near.end(),
    )
    let lose: Trap | undefined
    let answer: Trap | undefined
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => undefined)
      socket.on('close', () => sockets.delete(socket))
    }
    near.on('data', (chunk) => {
      const text = chunk.toString('latin1')
      const trap = [...traps].find(({ request }) => request.test(text))
      if (trap) {
        traps.delete(trap)
        if (trap.kind === 'lose') lose = trap
        else {
          const valve = trap.kind === 'request' ? upward : downward
          valve.shut()
          trap.onRelease = () => valve.open()
          if (trap.released) valve.open()
          // An answer that is held shows that what was asked has happened.
          if (trap.kind === 'answer') answer = trap
          else trap.seen()
        }
      }
      upward.push(chunk)
    })
    far.on('data', (chunk) => {
      answer?.seen()
      if (!lose) return downward.push(chunk)
      lose.seen()
      near.destroy()
    })
    near.on('close', () => upward.end())
    far.on('close', () => downward.end())
  })

  const set = (request: RegExp, kind: Trap['kind']): { trap: Trap; seen: Promise<void> } => {
    const trap: Trap = { request, kind, seen: () => undefined, onRelease: undefined, released: false }
    const seen = new Promise<void>((resolve) => (trap.seen = resolve))
    traps.add(trap)
    return { trap, seen }
  }
  const held = (request: RegExp, kind: 'request' | 'answer'): Held => {
    const { trap, seen } = set(request, kind)
    const release = () => {
      traps.delete(trap)
      trap.released = true
      trap.onRelease?.()
    }
    return { seen, release }
  }
  const cut = () => {
    for (const socket of sockets) socket.destroy()
  }
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const url = new URL(serverUrl)
  url.port = `${(server.address() as AddressInfo).port}`
  return {
    url: url.href,
    hold: (request) => held(request, 'request'),
    holdAnswer: (request) => held(request, 'answer'),
    loseAnswer: (request) => set(request, 'lose').seen,
    down: () => {
      isUp = false
      cut()
    },
    up: () => void (isUp = true),
    cut,
    close: async () => {
      cut()
      await new Promise<void>((resolve) => server.close(() => resolve()))
    },
  }
}

/** One direction of a connection: passes on, or keeps until opened; an end waits for what is kept. */
class Valve {
  readonly #pass: (chunk: Buffer) => void
  readonly #onEnd: () => void
  readonly #kept: Buffer[] = []
  #isOpen = true
  #ended = false

  constructor(pass: (chunk: Buffer) => void, onEnd: () => void) {
    this.#pass = pass
    this.#onEnd = onEnd
  }

  push(chunk: Buffer): void {
    if (this.#isOpen) this.#pass(chunk)
    else this.#kept.push(chunk)
  }

  shut(): void {
    this.#isOpen = false
  }

  open(): void {
    this.#isOpen = true
    for (const chunk of this.#kept.splice(0)) this.#pass(chunk)
    if (this.#ended) this.#onEnd()
  }

  end(): void {
    this.#ended = true
    if (this.#isOpen) this.#onEnd()
  }
}

/** Which of our requests a chunk to Redis holds: scripts are told apart by how many words they have and their keys. */
export const TO_REDIS = {
  /** Acquire; also renew and idle → busy, which have the same shape. */
  lock: /\*6\r\n\$\d+\r\neval(?:sha)?\r\n[\s\S]*:lock\r\n/i,
  release: /\*5\r\n\$\d+\r\neval(?:sha)?\r\n[\s\S]*:lock\r\n/i,
  swap: /\*7\r\n\$\d+\r\neval(?:sha)?\r\n\$\d+\r\n[^\r]*\r\n\$1\r\n1\r\n[\s\S]*:lock\r\n/i,
  advance: /\*10\r\n\$\d+\r\neval(?:sha)?\r\n[\s\S]*:processing\r\n/i,
  recover: /\*8\r\n\$\d+\r\neval(?:sha)?\r\n[\s\S]*:processing\r\n/i,
}

/** The same for MySQL. */
export const TO_MYSQL = {
  /** The locking read of session rows with which every change begins, of the ledger (not the inbox). */
  lockRows: /entry_seq[\s\S]*butler_sessions[\s\S]*for update/i,
  commit: /(?:^[\s\S]{5}|; )commit$/i,
  turnEnded: /insert into `?butler_entries[\s\S]*turn_ended/i,
  turnStarted: /insert into `?butler_entries[\s\S]*turn_started/i,
  /** Who owns these sessions, without a lock on the rows. */
  owners: /running_seq[^;]*butler_sessions`? where `?id`? in (?![\s\S]*for update)/i,
  /** How watched sessions stand. */
  looks: /purge_entry_seq[^;]*butler_sessions`? where `?id`? in/i,
  myRows: /running_by`? like/i,
  acquired: /insert into `?butler_sessions[\s\S]*done_seq/i,
}
