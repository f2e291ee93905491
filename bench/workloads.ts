/**
 * The workloads. Each starts its own processes on a fresh database and prefix, and gives table rows: what was measured,
 * and `faults`, judged from what handlers saw against what was sent.
 */
import { sleep } from '../src/base/timing.ts'
import type { TunablesInput } from '../src/index.ts'
import { monotonicMs } from './clock.ts'
import { faultsIn, round, type Row, spread } from './figures.ts'
import { type Burst, HELD, type ProcessConfig, type Sent } from './process.ts'
import { type Child, cpuSeconds, peakMiB, type Rig } from './rig.ts'

export interface Settings {
  /** Repetitions of what is judged by its maximum. */
  readonly rounds: number
  /** Enqueues in flight in W1. */
  readonly inFlight: number
  /** Messages of a session in W1. */
  readonly perSession: number
}

export type Workload = (rig: Rig, settings: Settings) => Promise<Row[]>

interface Cast {
  readonly workers: Child[]
  readonly producer: Child
  /** One more process: a worker like the others by default. `unheard`: nothing that is published reaches it, or others. */
  readonly hire: (role?: ProcessConfig['role'], how?: { unheard: boolean }) => Promise<Child>
}

/** Runs `play` with so many workers that hear and a producer that is connected; everything is gone afterwards. */
async function stage<T>(
  rig: Rig,
  options: { workers: number; tunables?: TunablesInput; tell?: boolean; graceMs?: number },
  play: (cast: Cast) => Promise<T>,
): Promise<T> {
  const { drop, ...stores } = await rig.fresh()
  const { tunables = {}, tell = false, graceMs = 0 } = options
  const config = { ...stores, tunables, tell, graceMs }
  const all: Child[] = []
  const hire: Cast['hire'] = async (role = 'worker', { unheard } = { unheard: false }) => {
    const prefix = unheard ? `${stores.prefix}-apart` : stores.prefix
    const child = await rig.spawn({ ...config, role, prefix })
    all.push(child)
    return child
  }
  try {
    const workers: Child[] = []
    for (let index = 0; index < options.workers; index++) workers.push(await hire())
    const producer = await hire('producer')
    await rig.untilHearing(stores.prefix, options.workers)
    await producer.ask('hold', { session: 'first', handlerMs: 0 })
    await untilCompleted(workers, 1)
    return await play({ workers, producer, hire })
  } finally {
    await Promise.all(all.map((child) => child.end()))
    await drop()
  }
}

/** Resolves with the time of the last completion, once the workers have completed so many messages. */
async function untilCompleted(workers: readonly Child[], expected: number): Promise<number> {
  let [seen, quiet] = [-1, 0]
  for (;;) {
    const progress = await Promise.all(workers.map((worker) => worker.ask('progress')))
    const completed = progress.reduce((sum, one) => sum + one.completed, 0)
    if (completed >= expected) return Math.max(...progress.map(({ lastAt }) => lastAt))
    quiet = completed === seen ? quiet + 1 : 0
    seen = completed
    if (quiet > 600)
      throw new Error(`Nothing moves any more: ${completed} of ${expected} messages are complete.`)
    await sleep(50)
  }
}

async function runsOf(workers: readonly Child[]) {
  const all = (await Promise.all(workers.map((worker) => worker.ask('runs')))).flat()
  return all.filter(({ session }) => session !== 'first')
}

/** W1: everything at once; what a message costs, and where. */
export const throughput: Workload = async (rig, { inFlight, perSession }) => {
  const burst: Burst = { sessions: 1000, perSession, inFlight, bytes: 200, handlerMs: 0 }
  const rows: Row[] = []
  for (const workers of [1, 2])
    rows.push(
      await stage(rig, { workers, tunables: { concurrency: 200 } }, (cast) => flood(rig, cast, burst)),
    )
  return rows
}

async function flood(rig: Rig, { workers, producer }: Cast, burst: Burst): Promise<Row> {
  const messages = burst.sessions * burst.perSession
  const cpu = () => ({
    producer: cpuSeconds(producer.pid),
    worker: workers.reduce((sum, { pid }) => sum + cpuSeconds(pid), 0),
    redis: cpuSeconds(rig.redis.pid),
    mysql: cpuSeconds(rig.mysql.pid),
  })
  const [cpuBefore, before] = [cpu(), await rig.counters()]
  const sent = await producer.ask('burst', burst)
  const lastAt = await untilCompleted(workers, messages + 1)
  const [after, cpuAfter] = [await rig.counters(), cpu()]
  const firstAt = Math.min(...sent.map(({ calledAt }) => calledAt))
  const enqueuedAt = Math.max(...sent.map(({ ackedAt }) => ackedAt))
  const perMessage = (name: keyof typeof cpuBefore) => ((cpuAfter[name] - cpuBefore[name]) * 1000) / messages
  const names = ['producer', 'worker', 'redis', 'mysql'] as const
  return {
    workers: workers.length,
    'messages/s': round((messages * 1000) / (lastAt - firstAt)),
    'enqueues/s': round((messages * 1000) / (enqueuedAt - firstAt)),
    'CPU ms/message': round(names.reduce((sum, name) => sum + perMessage(name), 0)),
    ...Object.fromEntries(names.map((name) => [name, round(perMessage(name))])),
    'Redis commands': round((after.redisCommands - before.redisCommands) / messages),
    statements: round((after.statements - before.statements) / messages),
    commits: round((after.commits - before.commits) / messages),
    'worker MiB': round(Math.max(...workers.map(({ pid }) => peakMiB(pid)))),
    faults: faultsIn(await runsOf(workers), sent),
  }
}

/** W2: how long a single message takes when nothing is in its way. */
export const latency: Workload = (rig) =>
  stage(rig, { workers: 1 }, async ({ workers, producer }) => {
    const sessions = 500
    const bare = await rig.bare({ count: 250, everyMs: 20 })
    const warm = await producer.ask('burst', {
      sessions,
      perSession: 1,
      inFlight: 50,
      bytes: 200,
      handlerMs: 0,
    })
    await untilCompleted(workers, sessions + 1)
    await sleep(1000)
    const cpuBefore = cpuSeconds(workers[0]?.pid)
    const sent = await producer.ask('stream', { sessions, perSecond: 50, seconds: 20, bytes: 200 })
    await untilCompleted(workers, sessions + sent.length + 1)
    const cpu = round(cpuSeconds(workers[0]?.pid) - cpuBefore)
    const runs = await runsOf(workers)
    const startedAt = new Map(runs.map(({ session, n, startedAt: at }) => [`${session} ${n}`, at]))
    const starts = sent.map(
      ({ session, n, calledAt }) => (startedAt.get(`${session} ${n}`) ?? NaN) - calledAt,
    )
    const acks = sent.map(({ calledAt, ackedAt }) => ackedAt - calledAt)
    const faults = faultsIn(runs, [...warm, ...sent])
    return [
      { ms: 'bare insert + publish', ...spread(bare), 'worker CPU s': 0, faults: '' },
      { ms: 'enqueue → acknowledged', ...spread(acks), 'worker CPU s': cpu, faults },
      { ms: 'enqueue → handler start', ...spread(starts), 'worker CPU s': cpu, faults },
    ]
  })

/** Idle release, shortened so that it can be waited for; the watch is over before it. */
const IDLE_RELEASE_MS = 60_000

/** W4: what sessions cost that do nothing, beside the fixed cost of the process. */
export const idle: Workload = (rig) =>
  stage(
    rig,
    { workers: 1, tunables: { concurrency: 200, idleReleaseMs: IDLE_RELEASE_MS } },
    async ({ workers, producer }) => {
      const sessions = 10_000
      const [worker] = workers
      if (!worker) return []
      const watch = async (what: string, seconds: number): Promise<Row> => {
        const [before, cpuBefore] = [await rig.counters(), cpuSeconds(worker.pid)]
        await sleep(seconds * 1000)
        const after = await rig.counters()
        return {
          '1 worker process': what,
          'Redis commands/s': round((after.redisCommands - before.redisCommands) / seconds),
          'statements/s': round((after.statements - before.statements) / seconds),
          'Redis connections': after.redisConnections,
          'MySQL connections': after.mysqlConnections,
          'CPU %': round(((cpuSeconds(worker.pid) - cpuBefore) * 100) / seconds),
          'heap bytes/session': round(((await worker.ask('heapBytes')) - emptyHeap) / sessions),
        }
      }
      const sent = await producer.ask('burst', {
        sessions: 200,
        perSession: 5,
        inFlight: 200,
        bytes: 200,
        handlerMs: 0,
      })
      await untilCompleted(workers, sent.length + 1)
      await sleep(1000)
      const emptyHeap = await worker.ask('heapBytes')
      const empty = await watch('201 sessions', 10)
      await producer.ask('burst', { sessions, perSession: 1, inFlight: 200, bytes: 200, handlerMs: 0 })
      await untilCompleted(workers, sent.length + sessions + 1)
      await sleep(1000)
      const full = await watch(`${sessions} sessions`, 20)
      await sleep(IDLE_RELEASE_MS)
      return [empty, full, await watch('after idle release', 10)]
    },
  )

/** W5: a worker dies, or is told to go, in the middle of a turn; how long its session stands still. */
export const takeover: Workload = async (rig, { rounds }) => {
  const killed = await stage(rig, { workers: 2, tell: true }, (cast) => change(cast, 'SIGKILL', rounds))
  const drained = await stage(rig, { workers: 2, tell: true, graceMs: 200 }, (cast) =>
    change(cast, 'SIGTERM', rounds),
  )
  return [
    { seconds: 'killed → started again', rounds, ...spread(killed) },
    { seconds: 'drained: aborted → started again', rounds, ...spread(drained) },
  ]
}

/** A survivor that has just started may not judge others yet; a fleet's processes are older than this. */
const SEASONED_MS = 6000

async function change({ workers, producer, hire }: Cast, signal: 'SIGKILL' | 'SIGTERM', rounds: number) {
  const seconds: number[] = []
  const crew = [...workers]
  for (let round = 0; round < rounds; round++) {
    await sleep(SEASONED_MS)
    const session = `turn-${round}`
    const started = (attempt: number) =>
      Promise.race(
        crew.map((worker) => worker.heard('started', session, attempt).then((run) => ({ worker, run }))),
      )
    const [first, again] = [started(1), started(2)]
    await producer.ask('hold', { session, handlerMs: 600_000 })
    const { worker: victim } = await first
    const aborted = victim.heard('ended', session, 1)
    await sleep(1000)
    const killedAt = monotonicMs()
    const gone = victim.kill(signal)
    const startedAt = (await again).run.startedAt
    const leftAt = signal === 'SIGKILL' ? killedAt : (await aborted).endedAt
    await gone
    seconds.push((startedAt - leftAt) / 1000)
    crew.splice(crew.indexOf(victim), 1, await hire())
  }
  return seconds
}

/** W8: bursts with turns of different lengths on two workers: who comes second must stay second. */
export const order: Workload = (rig) =>
  stage(rig, { workers: 2, tunables: { concurrency: 500 } }, async ({ workers, producer }) => {
    const sent: Sent[] = await producer.ask('burst', {
      sessions: 500,
      perSession: 6,
      inFlight: 500,
      bytes: 0,
      handlerMs: 50,
    })
    const lastAt = await untilCompleted(workers, sent.length + 1)
    const seconds = (lastAt - Math.min(...sent.map(({ calledAt }) => calledAt))) / 1000
    return [{ messages: sent.length, seconds: round(seconds), faults: faultsIn(await runsOf(workers), sent) }]
  })

/** Turns that the server of W9 holds, for whose locks it must find the time. */
const HELD_TURNS = 20

/** W9: a turn streams, and is read over HTTP from another server; beside it the barest loop, with the same readers. */
export const stream: Workload = async (rig) => {
  const rows: Row[] = []
  for (const [watchers, perSecond] of [
    [1, 50],
    [1000, 10],
  ] as const) {
    rows.push(
      ...(await stage(rig, { workers: 1 }, async ({ workers, producer, hire }) => {
        const [seconds, emits] = [20, 20 * perSecond]
        const measure = async (what: string, server: Child, send: () => Promise<unknown>): Promise<Row> => {
          const reader = await hire('reader')
          const url = await server.ask('url')
          // Warm, and what the process weighs with one who reads.
          await reader.ask('open', { url, count: 1 })
          const rss = await server.ask('rssMiB')
          if (watchers > 1) await reader.ask('open', { url, count: watchers - 1 })
          // Collects what their coming left behind, which is not what is measured.
          await server.ask('rssMiB')
          const cpu = cpuSeconds(server.pid)
          await send()
          const expected = emits * watchers
          const giveUpAt = monotonicMs() + 5000
          while ((await reader.ask('deltas')) < expected && monotonicMs() < giveUpAt) await sleep(50)
          const { latencies, deltas } = await reader.ask('seen')
          const row = {
            'emit → read, ms': `${watchers} over HTTP, ${what}`,
            ...spread(latencies),
            'CPU s / 100,000': round(((cpuSeconds(server.pid) - cpu) * 100_000) / deltas),
            'MiB more': round((await server.ask('rssMiB')) - rss),
            'late renewals': what === 'bare' ? 0 : await server.ask('lateRenewals'),
            faults: deltas === expected ? '' : `${deltas} of ${expected} deltas`,
          }
          await reader.end()
          return row
        }
        const [server, bare] = [await hire('server'), await hire('bare')]
        for (let index = 0; index < HELD_TURNS; index++)
          await producer.ask('hold', { session: `held-${index}`, handlerMs: 0, kind: HELD })
        return [
          await measure('bare', bare, () => bare.ask('loop', { perSecond, seconds })),
          await measure('served', server, async () => {
            await producer.ask('hold', { session: 'first', handlerMs: seconds * 1000, emits })
            await untilCompleted(workers, 2)
          }),
        ]
      })),
    )
  }
  return rows
}

/** W9, without HTTP: a turn streams, others watch from another process. */
export const watch: Workload = async (rig) => {
  const rows: Row[] = []
  for (const watchers of [1, 1000]) {
    rows.push(
      await stage(rig, { workers: 1 }, async ({ workers, producer, hire }) => {
        const watcher = await hire('watcher')
        const [seconds, emits] = [10, 500]
        // Warm, and what the process weighs with one who watches.
        await watcher.ask('watch', { session: 'first', watchers: 1 })
        const rss = await watcher.ask('rssMiB')
        await watcher.ask('watch', { session: 'first', watchers })
        const [before, cpu] = [await rig.counters(), cpuSeconds(watcher.pid)]
        await producer.ask('hold', { session: 'first', handlerMs: seconds * 1000, emits })
        await untilCompleted(workers, 2)
        const { latencies, deltas } = await watcher.ask('seen')
        const cpuAfter = cpuSeconds(watcher.pid)
        return {
          'emit → seen, ms': `${watchers} watchers`,
          ...spread(latencies),
          'CPU s / 100,000': round(((cpuAfter - cpu) * 100_000) / deltas),
          'MiB more': round((await watcher.ask('rssMiB')) - rss),
          statements: (await rig.counters()).statements - before.statements,
          faults: deltas === emits * (watchers + 1) ? '' : `${deltas} deltas`,
        }
      }),
    )
  }
  return rows
}

/** Stops are spread over this long, so that looks at the rows meet them at any age. */
const STOPS_MS = 10_000

/** W10: Stop, from another process, with and without notices: how soon signals fire, and when it is known to be quiet. */
export const stop: Workload = async (rig) => {
  const rows: Row[] = []
  for (const unheard of [false, true]) {
    const options = { workers: 1, tell: true, tunables: { concurrency: 200 } }
    rows.push(
      ...(await stage(rig, options, async ({ workers: [worker], producer, hire }) => {
        const sessions = Array.from({ length: unheard ? 100 : 200 }, (_, index) => `turn-${index}`)
        if (!worker) return []
        const stopper = await hire('producer', { unheard })
        const started = sessions.map((session) => worker.heard('started', session, 1))
        const ended = sessions.map((session) => worker.heard('ended', session, 1))
        for (const session of sessions) await producer.ask('hold', { session, handlerMs: 600_000 })
        await Promise.all(started)
        const beginAt = monotonicMs()
        const stops = sessions.map(async (session, index) => {
          await sleep(beginAt + (index * STOPS_MS) / sessions.length - monotonicMs())
          return stopper.ask('stop', { session })
        })
        const told = await Promise.all(stops)
        const signals = await Promise.all(ended)
        const latencies = told.map(({ calledAt }, index) => (signals[index]?.endedAt ?? NaN) - calledAt)
        const others = told.filter(({ outcome }) => outcome !== 'aborted').length
        const how = unheard ? 'every notice lost' : 'notified'
        const faults = others === 0 ? 'none' : `${others} not aborted`
        return [
          { ms: `stop → signal, ${how}`, ...spread(latencies), faults },
          {
            ms: `stop → quiet, ${how}`,
            ...spread(told.map(({ calledAt, quietAt }) => quietAt - calledAt)),
            faults,
          },
        ]
      })),
    )
  }
  return rows
}
