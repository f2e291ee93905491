/** The demo's processes: starts them, follows what they report, ends them. Knows at any time which turn runs where. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { withDeadline } from '../base/timing.ts'
import type { Answer, Order } from './producer-process.ts'
import type { Report, WorkerConfig } from './worker-process.ts'

export interface Sent {
  readonly session: string
  readonly seq: number
  readonly id: string
}

/** A turn that runs now, as its worker reported it. */
export interface Running {
  readonly worker: Worker
  readonly session: string
  readonly seq: number
  readonly attempt: number
  /** Steps that ran in this attempt. */
  steps: number
}

export interface Worker {
  readonly name: string
  /** Its id in the transcript. */
  readonly process: string
  readonly child: ChildProcess
}

type OnReport = (report: Report, name: string) => void

const ORDER_MS = 15_000
const START_MS = 60_000
const TURN_MS = 60_000

export class Fleet {
  readonly #config: WorkerConfig
  readonly #onReport: OnReport
  readonly #children: ChildProcess[] = []
  readonly #workers = new Map<string, Worker>()
  readonly #names = new Map<string, string>()
  readonly #running = new Map<string, Running>()
  readonly #orders = new Map<number, (answer: Answer) => void>()
  #watchers: (() => void)[] = []
  #producer: ChildProcess | undefined
  #lastOrder = 0
  /** Everything that was accepted. */
  readonly sent: Sent[] = []

  constructor(config: WorkerConfig, onReport: OnReport) {
    this.#config = config
    this.#onReport = onReport
  }

  get running(): Running[] {
    return [...this.#running.values()]
  }

  /** Of a worker by its id in the transcript, also when it is gone. */
  nameOf(processId: string): string {
    return this.#names.get(processId) ?? processId
  }

  startProducer(): void {
    const producer = this.#fork('producer-process')
    producer.on('message', (answer: Answer) => {
      this.#orders.get(answer.order)?.(answer)
      this.#orders.delete(answer.order)
    })
    this.#producer = producer
  }

  /** Resolves once the worker serves. */
  async hire(name: string): Promise<Worker> {
    const child = this.#fork('worker-process')
    const ready = new Promise<string>((resolve, reject) => {
      child.on('message', (report: Report) => {
        if (report.is === 'ready') resolve(report.process)
        this.#note(name, report)
      })
      child.once('exit', (code) => reject(new Error(`Worker ${name} ended with ${code}.`)))
    })
    const process = await withDeadline(ready, START_MS, () => new Error(`Worker ${name} did not start.`))
    const worker = { name, process, child }
    this.#workers.set(name, worker)
    this.#names.set(process, name)
    child.once('exit', () => {
      this.#workers.delete(name)
      for (const [session, turn] of this.#running) if (turn.worker === worker) this.#running.delete(session)
    })
    return worker
  }

  /** Resolves when the producer's message was accepted. */
  async send(session: string, script: number): Promise<Sent> {
    const order: Order = { order: ++this.#lastOrder, session, script }
    const answered = new Promise<Answer>((resolve, reject) => {
      this.#orders.set(order.order, resolve)
      this.#producer?.send(order, (error) => error && reject(error))
    })
    const answer = await withDeadline(answered, ORDER_MS, () => new Error('The producer does not answer.'))
    if ('error' in answer) throw new Error(`A message was not accepted: ${answer.error}`)
    const sent = { session: answer.session, seq: answer.seq, id: answer.id }
    this.sent.push(sent)
    return sent
  }

  /** Resolves with the first turn that runs and suits, now or after some report. */
  turn(suits: (turn: Running) => boolean): Promise<Running> {
    return withDeadline(
      this.#turn(suits),
      TURN_MS,
      () => new Error('No turn came to the point where it was wanted.'),
    )
  }

  async #turn(suits: (turn: Running) => boolean): Promise<Running> {
    for (;;) {
      const turn = this.running.find(suits)
      if (turn) return turn
      await new Promise<void>((resolve) => this.#watchers.push(resolve))
    }
  }

  /** Ends everything that still runs, politely; resolves when it is gone. */
  async end(): Promise<void> {
    await Promise.all(this.#children.map((child) => signal(child, 'SIGTERM')))
  }

  /** For the way out: nothing of ours may outlive us. */
  killAll(): void {
    for (const child of this.#children) child.kill('SIGKILL')
  }

  #fork(name: string): ChildProcess {
    const extension = import.meta.url.endsWith('.ts') ? '.ts' : '.js'
    const file = fileURLToPath(new URL(`./${name}${extension}`, import.meta.url))
    const child = fork(file, [JSON.stringify(this.#config)], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    this.#children.push(child)
    return child
  }

  #note(name: string, report: Report): void {
    const worker = this.#workers.get(name)
    if (report.is === 'started' && worker) {
      const { session, seq, attempt } = report
      this.#running.set(session, { worker, session, seq, attempt, steps: 0 })
    }
    const turn = 'session' in report ? this.#running.get(report.session) : undefined
    if (turn && turn.worker === worker) {
      if (report.is === 'tool' && report.fresh) turn.steps += 1
      if (report.is === 'ended') this.#running.delete(turn.session)
    }
    this.#onReport(report, name)
    for (const wake of this.#watchers.splice(0)) wake()
  }
}

/** Sends a signal to a child that still runs; resolves with its exit code when it is gone. */
export async function signal(child: ChildProcess, name: 'SIGTERM' | 'SIGKILL'): Promise<number | null> {
  if (child.exitCode === null && child.signalCode === null) {
    const gone = once(child, 'exit')
    child.kill(name)
    await gone
  }
  return child.exitCode
}
