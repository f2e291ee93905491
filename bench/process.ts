/**
 * A process of the bench, in one of several roles. Forked by rig.ts; does what its parent says over IPC and remembers what
 * it saw.
 */
import { sleep } from '../src/base/timing.ts'
import { createHttpHandler, localAccess } from '../src/http/index.ts'
import { listen } from '../src/http/server.ts'
import { createClient, createWorker, type TunablesInput } from '../src/index.ts'
import { monotonicMs } from './clock.ts'
import { BareServer, Readers, type Seen } from './sse.ts'

export interface ProcessConfig {
  /** A `server` is what `serve` is, for readers over HTTP; `bare` is what it is measured against. */
  readonly role: 'worker' | 'producer' | 'watcher' | 'server' | 'bare' | 'reader'
  readonly redis: string
  readonly mysql: string
  readonly prefix: string
  readonly tunables: TunablesInput
  /** Whether a worker reports every start and end at once, because it may be killed before it is asked. */
  readonly tell: boolean
  /** How long running turns may go on after SIGTERM. */
  readonly graceMs: number
}

/** One call of a handler: the sender's number `n` of the message within its session, and when. */
export interface Run {
  readonly session: string
  readonly n: number
  readonly attempt: number
  readonly startedAt: number
  endedAt: number
}

/** One enqueue: when it was called and when it returned. */
export interface Sent {
  readonly session: string
  readonly n: number
  readonly calledAt: number
  readonly ackedAt: number
}

/** What a worker reports by itself when it was told to. */
export interface Told {
  readonly event: 'started' | 'ended'
  readonly run: Run
}

/** One stop that waited until it was quiet, and what became of the running turn. */
export interface Stop {
  readonly session: string
  readonly calledAt: number
  readonly quietAt: number
  readonly outcome: string
}

export interface Burst {
  readonly sessions: number
  readonly perSession: number
  /** Enqueues in flight; the messages of a session are sent one after the other. */
  readonly inFlight: number
  readonly bytes: number
  /** Handlers take 0 to this long. */
  readonly handlerMs: number
}

export interface Stream {
  readonly sessions: number
  readonly perSecond: number
  readonly seconds: number
  readonly bytes: number
}

/** What each role can be asked, with argument and answer. */
export interface Asks {
  progress: [argument: undefined, answer: { completed: number; lastAt: number }]
  runs: [argument: undefined, answer: Run[]]
  heapBytes: [argument: undefined, answer: number]
  burst: [argument: Burst, answer: Sent[]]
  stream: [argument: Stream, answer: Sent[]]
  hold: [argument: { session: string; handlerMs: number; emits?: number; kind?: string }, answer: Sent]
  stop: [argument: { session: string }, answer: Stop]
  watch: [argument: { session: string; watchers: number }, answer: void]
  seen: [argument: undefined, answer: Seen]
  url: [argument: undefined, answer: string]
  lateRenewals: [argument: undefined, answer: number]
  open: [argument: { url: string; count: number }, answer: void]
  loop: [argument: { perSecond: number; seconds: number }, answer: void]
  deltas: [argument: undefined, answer: number]
  rssMiB: [argument: undefined, answer: number]
  end: [argument: undefined, answer: void]
}

type Answers = { [Name in keyof Asks]?: (argument: Asks[Name][0]) => Promise<Asks[Name][1]> | Asks[Name][1] }

async function beWorker({ tell, graceMs, ...config }: ProcessConfig): Promise<Answers> {
  const runs: Run[] = []
  const progress = { completed: 0, lastAt: 0 }
  const report = (told: Told) => tell && process.send?.({ told })
  const worker = createWorker({
    ...connections(config),
    handlers: {
      message: async (turn) => {
        const { sessionId: session, message, attempt, signal } = turn
        const startedAt = monotonicMs()
        const [n = 0, handlerMs = 0, emits = 0] = (message.payload as string).split(' ', 3).map(Number)
        const run: Run = { session, n, attempt, startedAt, endedAt: 0 }
        runs.push(run)
        report({ event: 'started', run })
        // What is emitted says when.
        for (let count = 0; count < emits; count++) {
          await sleep(handlerMs / emits, signal)
          turn.emit(monotonicMs())
        }
        if (handlerMs > 0 && attempt === 1 && !emits) await sleep(handlerMs, signal)
        run.endedAt = monotonicMs()
        report({ event: 'ended', run })
      },
    },
  })
  worker.on('turn.completed', () => {
    progress.completed += 1
    progress.lastAt = monotonicMs()
  })
  await worker.start()
  const end = () => worker.stop({ graceMs })
  process.once('SIGTERM', () => void end().then(() => process.exit(0)))
  return { progress: () => progress, runs: () => runs, heapBytes, end }
}

function beProducer(config: ProcessConfig): Answers {
  const client = createClient(connections(config))
  const numbers = new Map<string, number>()
  const send = async (
    session: string,
    handlerMs: number,
    bytes: number,
    emits = 0,
    kind = 'message',
  ): Promise<Sent> => {
    const n = (numbers.get(session) ?? 0) + 1
    numbers.set(session, n)
    const payload = `${n} ${Math.round(handlerMs)} ${emits} `.padEnd(bytes, 'x')
    const calledAt = monotonicMs()
    await client.enqueue(session, { kind, payload })
    return { session, n, calledAt, ackedAt: monotonicMs() }
  }
  return {
    hold: ({ session, handlerMs, emits, kind }) => send(session, handlerMs, 0, emits, kind),
    stop: async ({ session }) => {
      const calledAt = monotonicMs()
      const { outcomes } = await client.stop(session, { waitMs: 60_000 })
      return { session, calledAt, quietAt: monotonicMs(), outcome: outcomes[0]?.outcome ?? 'nothing' }
    },
    burst: async ({ sessions, perSession, inFlight, bytes, handlerMs }) => {
      const sent: Sent[] = []
      const lane = async (first: number) => {
        for (let round = 0; round < perSession; round++) {
          for (let index = first; index < sessions; index += inFlight) {
            sent.push(await send(`s${index}`, Math.random() * handlerMs, bytes))
          }
        }
      }
      await Promise.all(Array.from({ length: Math.min(inFlight, sessions) }, (_, first) => lane(first)))
      return sent
    },
    stream: async ({ sessions, perSecond, seconds, bytes }) => {
      const pending: Promise<Sent>[] = []
      const beginAt = monotonicMs()
      for (let index = 0; index < perSecond * seconds; index++) {
        // By the clock and not by the answer, so that a slow answer does not slow the load down.
        await sleep(beginAt + (index * 1000) / perSecond - monotonicMs())
        pending.push(send(`s${index % sessions}`, 0, bytes))
      }
      return Promise.all(pending)
    },
    end: () => client.close(),
  }
}

function beWatcher(config: ProcessConfig): Answers {
  const client = createClient(connections(config))
  const seen: Seen = { latencies: [], deltas: 0 }
  const follow = async (session: string, isFirst: boolean, onHead: () => void) => {
    for await (const event of client.subscribe(session)) {
      if (event.type === 'entry' && event.entry.type === 'turn_ended') onHead()
      if (event.type !== 'delta') continue
      seen.deltas += 1
      // A part of them: there would be too many numbers.
      if (isFirst || Math.random() < 0.02) seen.latencies.push(monotonicMs() - (event.delta as number))
    }
  }
  return {
    /** Resolves when all have seen the end of a turn. */
    watch: async ({ session, watchers }) => {
      const heads = Array.from({ length: watchers }, (_, index) => {
        return new Promise<void>(
          (resolve) => void follow(session, index === 0, resolve).catch(() => undefined),
        )
      })
      await Promise.all(heads)
    },
    seen: () => seen,
    rssMiB,
    end: () => client.close(),
  }
}

/** Kind of the turns that a server holds, so that it has something to renew. */
export const HELD = 'held'

async function beServer(config: ProcessConfig): Promise<Answers> {
  const client = createClient(connections(config))
  const worker = createWorker({
    ...connections(config),
    handlers: { [HELD]: ({ signal }) => sleep(3_600_000, signal) },
  })
  let late = 0
  worker.on('lock.late', () => (late += 1))
  await worker.start()
  const handler = createHttpHandler({ client, access: localAccess(), logger: false })
  const server = await listen(handler, { host: '127.0.0.1', port: 0 })
  return {
    url: () => `${server.url}/v1/sessions/first/events`,
    lateRenewals: () => late,
    rssMiB,
    end: async () => {
      await Promise.all([server.close(0), worker.stop({ graceMs: 0 })])
      await client.close()
    },
  }
}

async function beBare(): Promise<Answers> {
  const server = new BareServer()
  const url = await server.listen()
  return {
    url: () => url,
    loop: (pace) => server.loop(pace),
    rssMiB,
    end: () => server.close(),
  }
}

function beReader(): Answers {
  const readers = new Readers()
  return {
    open: ({ url, count }) => readers.open(url, count),
    deltas: () => readers.deltas,
    seen: () => readers.take(),
    end: () => readers.close(),
  }
}

const connections = ({ redis, mysql, prefix, tunables }: Omit<ProcessConfig, 'tell' | 'graceMs'>) => {
  return { ...tunables, redis, mysql, prefix }
}

function rssMiB(): number {
  heapBytes()
  return process.memoryUsage.rss() / 2 ** 20
}

function heapBytes(): number {
  // Twice: what finalisers let go of is only collected the next time.
  for (let round = 0; round < 2; round++) globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

if (process.send) {
  const config = JSON.parse(process.argv[2] ?? '') as ProcessConfig
  const roles = {
    worker: beWorker,
    producer: beProducer,
    watcher: beWatcher,
    server: beServer,
    bare: beBare,
    reader: beReader,
  }
  const answers = await roles[config.role](config)
  process.on('message', ({ id, name, argument }: { id: number; name: keyof Asks; argument: never }) => {
    const answer = async () => {
      const value = await answers[name]?.(argument)
      process.send?.({ id, value }, () => name === 'end' && process.exit(0))
    }
    answer().catch((error: unknown) => process.send?.({ id, error: String(error) }))
  })
  process.once('disconnect', () => process.exit(0))
  process.send({ ready: true })
}
