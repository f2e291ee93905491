// A TCP proxy in front of Redis or MySQL, for one worker or client: give it the proxy's url instead of the server's.
//
//   const proxy = await startProxy(services().redisUrl)
//   proxy.cut()                             ends every connection; new ones work
//   proxy.refuse(true)                      ends every connection and takes no new ones, until refuse(false)
//   proxy.blackhole()                       nothing passes on the present connections, which look healthy
//   proxy.delay(50, 20)                     every chunk, both ways, comes 50 to 70 ms later; delay(0) ends that
//   const swallowed = proxy.swallow('commit')   the next such request is executed, its answer is not, then the line is cut
//   proxy.cutAfter(3)                       cuts a connection after so many further chunks from the server
//   const gate = proxy.gate('evalsha')      holds the next such request: await gate.seen … gate.release()
//   proxy.aim(url)                          new connections go to another server; cut() ends the present ones
//   proxy.calm()                            no refusal, delay or hook any more; a gate is its holder's to release
//   await proxy.close()
//
// Requests are matched as text, case-insensitively, per chunk as the client sent it. `{ subscribersOnly: true }` limits
// cut, blackhole and delay to connections that have subscribed.
import { createServer, connect, type AddressInfo, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

interface Only {
  readonly subscribersOnly?: boolean
}

export interface Gate {
  /** Resolves when the request is being held. */
  readonly seen: Promise<void>
  /** Lets it and everything behind it pass. Harmless when repeated. */
  release(): void
}

export interface Proxy {
  readonly url: string
  readonly port: number
  /** How many connections there are. */
  readonly connections: () => number
  cut(only?: Only): void
  refuse(refused: boolean): void
  blackhole(only?: Only): void
  delay(ms: number, jitterMs?: number, only?: Only): void
  /** Resolves when the answer was dropped and the line cut. */
  swallow(request: string): Promise<void>
  cutAfter(answers: number): void
  gate(request: string): Gate
  aim(target: string | number): void
  calm(): void
  close(): Promise<void>
}

interface Hook {
  readonly text: string
  readonly act: (line: Line) => 'pass' | Promise<void>
}

/** One proxied connection. */
class Line {
  readonly near: Socket
  readonly far: Socket
  subscriber = false
  silent = false
  /** What is done with the server's next chunk instead of passing it on. */
  onAnswer: (() => void) | undefined
  answersLeft = Infinity
  readonly #toFar: ((chunk: Buffer) => void) & { settled: () => Promise<void> }

  constructor(
    near: Socket,
    far: Socket,
    onRequest: (line: Line, text: string) => 'pass' | Promise<void>,
    delayMs: (line: Line) => number,
  ) {
    const delay = () => delayMs(this)
    this.near = near
    this.far = far
    this.#toFar = inOrder(delay, async (chunk, due) => {
      const text = chunk.toString('latin1').toLowerCase()
      if (text.includes('subscribe')) this.subscriber = true
      const outcome = onRequest(this, text)
      await due
      if (outcome !== 'pass') await outcome
      if (!this.silent && far.writable) far.write(chunk)
    })
    const toNear = inOrder(delay, async (chunk, due) => {
      await due
      if (this.silent) return
      if (this.onAnswer) return this.onAnswer()
      if (near.writable) near.write(chunk)
      if (--this.answersLeft <= 0) this.cut()
    })
    near.on('data', this.#toFar)
    far.on('data', toNear)
    // What was sent before the end still arrives.
    near.on('end', () => void this.#toFar.settled().then(() => far.end()))
    far.on('end', () => void toNear.settled().then(() => near.end()))
  }

  cut(): void {
    this.near.destroy()
    this.far.destroy()
  }
}

/** Handles chunks one after the other, however long each takes; a delay counts from each one's arrival. */
function inOrder(delayMs: () => number, handle: (chunk: Buffer, due: Promise<void>) => Promise<void>) {
  let last = Promise.resolve()
  const push = (chunk: Buffer): void => {
    const ms = delayMs()
    const due = ms > 0 ? sleep(ms) : Promise.resolve()
    last = last.then(() => handle(chunk, due))
  }
  return Object.assign(push, { settled: () => last })
}

/** `target`: a server's URL or its port on this machine. */
export async function startProxy(target: string | number): Promise<Proxy> {
  const parse = (one: string | number) => new URL(typeof one === 'number' ? `tcp://127.0.0.1:${one}` : one)
  let targetUrl = parse(target)
  const lines = new Set<Line>()
  const hooks = new Set<Hook>()
  let refused = false
  let delayMs: (line: Line) => number = () => 0
  const onRequest = (line: Line, text: string) => {
    for (const hook of hooks) {
      if (!text.includes(hook.text)) continue
      hooks.delete(hook)
      return hook.act(line)
    }
    return 'pass'
  }
  const server = createServer({ allowHalfOpen: true }, (near) => {
    if (refused) return near.destroy()
    const far = connect({ port: Number(targetUrl.port), host: targetUrl.hostname, allowHalfOpen: true })
    const line = new Line(near, far, onRequest, (one) => delayMs(one))
    lines.add(line)
    for (const socket of [near, far]) {
      socket.setNoDelay(true)
      socket.on('error', () => line.cut())
      socket.on('close', () => {
        line.cut()
        lines.delete(line)
      })
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const url = new URL(targetUrl)
  url.port = String(port)
  url.hostname = '127.0.0.1'
  const chosen = ({ subscribersOnly = false }: Only = {}) =>
    [...lines].filter((line) => line.subscriber || !subscribersOnly)
  const hookOnce = (request: string, act: Hook['act']) => hooks.add({ text: request.toLowerCase(), act })
  return {
    url: url.href,
    port,
    connections: () => lines.size,
    cut: (only) => chosen(only).forEach((line) => line.cut()),
    refuse: (now) => {
      refused = now
      if (now) chosen().forEach((line) => line.cut())
    },
    blackhole: (only) => chosen(only).forEach((line) => (line.silent = true)),
    delay: (ms, jitterMs = 0, { subscribersOnly = false } = {}) => {
      delayMs = (line) => (subscribersOnly && !line.subscriber ? 0 : ms + Math.random() * jitterMs)
    },
    swallow: (request) =>
      new Promise((resolve) =>
        hookOnce(request, (line) => {
          line.onAnswer = () => {
            line.cut()
            resolve()
          }
          return 'pass'
        }),
      ),
    cutAfter: (answers) => chosen().forEach((line) => (line.answersLeft = answers)),
    gate: (request) => gateOf((act) => hookOnce(request, act)),
    aim: (next) => (targetUrl = parse(next)),
    calm: () => {
      hooks.clear()
      refused = false
      delayMs = () => 0
    },
    close: async () => {
      for (const line of lines) line.cut()
      await new Promise<void>((resolve) => server.close(() => resolve()))
    },
  }
}

function gateOf(hook: (act: Hook['act']) => void): Gate {
  let release = () => {}
  const released = new Promise<void>((resolve) => (release = resolve))
  const seen = new Promise<void>((resolve) =>
    hook(() => {
      resolve()
      return released
    }),
  )
  return { seen, release }
}
