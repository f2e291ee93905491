// A producer process of the campaign: carries out its orders and notes down, outside of the system, each call and what
// came of it. `node --import tsx producer.ts '<ProducerOptions as JSON>'`; SIGTERM ends it in order, once it has said that
// it is ready.
import { setTimeout as sleep } from 'node:timers/promises'
import { ButlerError, type Accepted, type SendItem } from '../../src/index.ts'
import { type Note, scribe } from '../support/history.ts'
import { Dice } from './dice.ts'
import { CONNECTION_LOST } from './http-speaker.ts'
import { type Order, orders, type Send } from './orders.ts'
import { type Address, type Speaker, speakerAt } from './speaker.ts'

export interface ProducerOptions {
  readonly to: Address
  readonly history: string
  readonly seed: number
  /** Unique, also among those that replaced a killed one. */
  readonly name: string
  readonly sessions: readonly string[]
  readonly perSecond: number
}

/** Calls under way at most: an outage must not pile up work without end. */
const IN_FLIGHT = 60
/** Repeats of a call with a key whose outcome is unknown or that failed. */
const REPEATS = 6

class Producer {
  readonly #fleet: Speaker
  readonly #note: (note: Note) => void
  readonly #options: ProducerOptions
  readonly #pace: Dice
  readonly #latest = new Map<string, number>()
  readonly #underWay = new Set<Promise<void>>()
  #calls = 0
  #over = false

  constructor(options: ProducerOptions) {
    this.#fleet = speakerAt(options.to)
    this.#note = scribe(options.history, options.name)
    this.#options = options
    this.#pace = Dice.of(options.seed, 'pace', options.name)
  }

  async run(): Promise<void> {
    const { seed, name, sessions, perSecond } = this.#options
    process.stdout.write('ready\n')
    for (const order of orders(seed, name, { sessions })) {
      if (this.#over) break
      while (this.#underWay.size >= IN_FLIGHT) await Promise.race(this.#underWay)
      const work = this.#carryOut(order).finally(() => this.#underWay.delete(work))
      this.#underWay.add(work)
      await sleep((1000 / perSecond) * (0.2 + 1.6 * this.#pace.next()))
    }
    while (this.#underWay.size > 0) await Promise.all(this.#underWay)
    await this.#fleet.close()
    this.#note({ what: 'left' })
  }

  end(): void {
    this.#over = true
  }

  async #carryOut(order: Order): Promise<void> {
    if (order.do === 'stop') return this.#stop(order.session, order.some)
    if (order.do === 'withdraw') return this.#withdraw(order.session)
    if (order.how === 'batch') return this.#sendMany(order.sends)
    await Promise.all(order.sends.map((send) => this.#send(send)))
  }

  async #send(send: Send): Promise<void> {
    for (let repeat = 0; repeat <= REPEATS; repeat++) {
      const call = this.#invoke('enqueue', fieldsOf(send))
      const { sessionId, message, ...options } = itemOf(send)
      const outcome = await settle(this.#fleet.enqueue(sessionId, message, options))
      this.#settled(call, 'enqueue', send, outcome)
      const lasting = !(outcome instanceof Error) || codeOf(outcome) in LASTING || send.key === undefined
      if (lasting || this.#over) return
      await sleep(300)
    }
  }

  async #sendMany(sends: readonly Send[]): Promise<void> {
    const calls = sends.map((send) => this.#invoke('enqueue', fieldsOf(send)))
    const outcome = await settle(this.#fleet.enqueueMany(sends.map(itemOf)))
    for (const [index, send] of sends.entries()) {
      const one = outcome instanceof Error ? outcome : outcome[index]
      const result = one instanceof Error || one === undefined ? one : one.ok ? one : one.error
      this.#settled(calls[index]!, 'enqueue', send, result ?? new Error('no result'))
    }
  }

  async #stop(session: string, some: boolean): Promise<void> {
    const latest = this.#latest.get(session) ?? 0
    const through = some && latest > 1 ? { through: latest - 1 } : {}
    const call = this.#invoke('stop', { session, ...through })
    const outcome = await settle(this.#fleet.stop(session, through))
    if (outcome instanceof Error) return this.#failed(call, 'stop', session, outcome)
    const page = await settle(this.#fleet.transcript(session, { limit: 1 }))
    const head = page instanceof Error ? {} : { head: page.head }
    this.#note({ what: 'ok', name: 'stop', session, fields: { call, ...outcome, ...head } })
  }

  async #withdraw(session: string): Promise<void> {
    const seq = this.#latest.get(session)
    if (seq === undefined) return
    const call = this.#invoke('withdraw', { session, seq })
    const outcome = await settle(this.#fleet.withdraw(session, seq))
    if (outcome instanceof Error) return this.#failed(call, 'withdraw', session, outcome)
    this.#note({ what: 'ok', name: 'withdraw', session, seq, fields: { call } })
  }

  #invoke(name: string, { session, ...fields }: { session: string } & Record<string, unknown>): string {
    const call = `${this.#options.name}.${this.#calls++}`
    this.#note({ what: 'invoked', name, session, fields: { call, ...fields } })
    return call
  }

  #settled(call: string, name: string, { session }: Send, outcome: Accepted | Error): void {
    if (outcome instanceof Error) return this.#failed(call, name, session, outcome)
    const { seq, id, duplicate } = outcome
    this.#latest.set(session, Math.max(seq, this.#latest.get(session) ?? 0))
    this.#note({ what: 'ok', name, session, seq, fields: { call, id, duplicate } })
  }

  #failed(call: string, name: string, session: string, error: Error): void {
    const code = codeOf(error)
    const what = OPEN.has(code) ? 'unknown' : 'failed'
    const reason = `${code}: ${error.message}`.slice(0, 200)
    this.#note({ what, name, session, reason, fields: { call, code } })
  }
}

/** What was asked for may have happened. */
const OPEN = new Set(['OUTCOME_UNKNOWN', CONNECTION_LOST])

/** Refusals that a repeat would only meet again. */
const LASTING = { SESSION_BUSY: true, QUEUE_FULL: true, IDEMPOTENCY_CONFLICT: true, CLOSED: true }

const codeOf = (error: Error): string => (error instanceof ButlerError ? error.code : 'FOREIGN')

const fieldsOf = ({ session, mark, key, whenBusy }: Send) => ({ session, mark, key, whenBusy })

const itemOf = ({ session, script, mark, key, whenBusy }: Send): SendItem => ({
  sessionId: session,
  message: { payload: { ...script, mark } },
  idempotencyKey: key,
  whenBusy,
})

const settle = <T>(work: Promise<T>): Promise<T | Error> =>
  work.catch((error: unknown) => (error instanceof Error ? error : new Error(String(error))))

process.stdin.on('end', () => process.exit(2)).resume()
const producer = new Producer(JSON.parse(process.argv[2] ?? '{}') as ProducerOptions)
process.on('SIGTERM', () => producer.end())
await producer.run()
process.exit(0)
