// A house for in-process tests of the public API: a migrated database and a prefix of its own, clients and workers that
// are closed after each test, and what tests ask of the rows. Call `openHouse` once per file, outside of tests.
import { Redis } from 'ioredis'
import { sql } from 'kysely'
import { afterAll, afterEach, beforeAll, expect, vi } from 'vitest'
import {
  type Client,
  createClient,
  createWorker,
  type Entry,
  type Events,
  type EventName,
  type Handler,
  type SessionView,
  type TunablesInput,
  type Worker,
  type WorkerOptions,
} from '../../src/index.ts'
import { connectMysql, type Mysql } from '../../src/mysql/connect.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
import { Keys } from '../../src/redis/keys.ts'
import { freshDatabase, freshPrefix, services } from '../support/services.ts'

/** Everything ten times faster than by default. */
export const FAST = {
  lockTtlMs: 3000,
  retryDelaysMs: [20, 50],
  stopGraceMs: 400,
  drainGraceMs: 10_000,
  redisTimeoutMs: 400,
  logger: false,
} as const satisfies TunablesInput & { logger: false }

/** Polls until `assertion` holds; its last failure is the test's. */
export const eventually = <T>(assertion: () => Promise<T> | T, timeout = 20_000): Promise<T> =>
  vi.waitFor(assertion, { timeout, interval: 20 })

/** A promise and what settles it: the signal between a handler and its test. */
export function signal<T = void>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined
  const promise = new Promise<T>((done) => (resolve = done))
  return { promise, resolve }
}

/** Resolves when the turn's signal fires. */
export const aborted = (on: AbortSignal): Promise<void> =>
  on.aborted
    ? Promise.resolve()
    : new Promise((resolve) => on.addEventListener('abort', () => resolve(), { once: true }))

export const failure = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => expect.unreachable('it should have failed'),
    (error: unknown) => error,
  )

const TABLES = ['butler_sessions', 'butler_messages', 'butler_entries'] as const

export function openHouse() {
  const clients: Client[] = []
  const workers: Worker[] = []
  const at = {} as { url: string; redisUrl: string; prefix: string; keys: Keys; mysql: Mysql; redis: Redis }
  const unhandled: unknown[] = []
  const note = (reason: unknown) => unhandled.push(reason)
  let drop: () => Promise<void>
  let made = 0

  const redisKeys = async (): Promise<string[]> => {
    const found: string[] = []
    for await (const page of at.redis.scanStream({ match: `${at.prefix}:*`, count: 1000 })) {
      found.push(...(page as string[]))
    }
    return found.sort()
  }

  beforeAll(async () => {
    process.on('unhandledRejection', note)
    const database = await freshDatabase()
    drop = database.drop
    at.url = database.url
    at.redisUrl = services().redisUrl
    at.prefix = freshPrefix()
    at.keys = new Keys(at.prefix)
    at.mysql = connectMysql(at.url, { poolSize: 4 })
    at.redis = new Redis(at.redisUrl)
    await migrateUp(at.mysql.db)
  })
  const close = async () => {
    await Promise.all(workers.splice(0).map((worker) => worker.stop({ graceMs: 0 })))
    await Promise.all(clients.splice(0).map((client) => client.close()))
  }
  afterEach(async () => {
    await close()
    // What a test leaves undone is no work for the next one's workers.
    for (const table of TABLES) await sql`delete from ${sql.table(table)}`.execute(at.mysql.db)
    const keys = await redisKeys()
    if (keys.length > 0) await at.redis.del(keys)
    expect(unhandled.splice(0)).toEqual([])
  })
  afterAll(async () => {
    await at.mysql.close()
    at.redis.disconnect()
    await drop()
    process.off('unhandledRejection', note)
  })

  return Object.assign(at, {
    /** Ends its clients and workers; done after each test anyway. */
    close,
    sessionId: () => `chat-${(made += 1)}`,
    client(options: Partial<WorkerOptions> = {}): Client {
      const client = createClient({
        redis: at.redisUrl,
        mysql: at.url,
        prefix: at.prefix,
        ...FAST,
        ...options,
      })
      clients.push(client)
      return client
    },
    /** Not started. */
    newWorker(handler: Handler | undefined, options: Partial<WorkerOptions> = {}): Worker {
      const worker = createWorker({
        redis: at.redisUrl,
        mysql: at.url,
        prefix: at.prefix,
        ...FAST,
        handler,
        ...options,
      })
      workers.push(worker)
      return worker
    },
    async worker(handler: Handler | undefined, options: Partial<WorkerOptions> = {}): Promise<Worker> {
      const worker = this.newWorker(handler, options)
      await worker.start()
      return worker
    },
    /** Resolves with the session when nothing of it waits or runs any more. */
    settled: (client: Client, id: string): Promise<SessionView> =>
      eventually(async () => {
        const view = await client.inspect(id)
        expect(view.state).toBe('idle')
        return view
      }),
    async transcript(client: Client, id: string): Promise<Entry[]> {
      const { entries } = await client.transcript(id, { limit: 1000 })
      expectValid(entries)
      return entries
    },
    /** How many rows there are of each kind, and which keys. */
    async everything(): Promise<unknown> {
      const counts = TABLES.map((table) => sql<{ n: number }>`select count(*) n from ${sql.table(table)}`)
      const rows = await Promise.all(counts.map((count) => count.execute(at.mysql.db)))
      return [...rows.map((one) => Number(one.rows[0]?.n)), await redisKeys()]
    },
    status: async (id: string): Promise<(string | null)[]> =>
      (
        await at.mysql.db
          .selectFrom('butler_messages')
          .select('status')
          .where('session_id', '=', id)
          .orderBy('seq')
          .execute()
      ).map((row) => row.status),
    redisKeys,
  })
}

/** All events of one name that a worker emits from now on. */
export function listen<Name extends EventName>(worker: Worker, name: Name): Events[Name][] {
  const heard: Events[Name][] = []
  worker.on(name, (fields) => heard.push(fields))
  return heard
}

export const types = (entries: readonly Entry[]): string[] => entries.map(({ type }) => type)

/** How each turn of a transcript ended, in order. */
export const outcomes = (entries: readonly Entry[]): unknown[] =>
  entries.filter(({ type }) => type === 'turn_ended').map(({ payload }) => Object(payload).outcome)

/** What every transcript keeps whatever happened: dense, ordered, each call with one result, each turn with one end. */
export function expectValid(entries: readonly Entry[]): void {
  const first = entries[0]?.entry ?? 1
  expect(entries.map(({ entry }) => entry)).toEqual(entries.map((_, index) => first + index))
  const sorted = entries.map(({ epoch }) => epoch).sort((a, b) => a - b)
  expect(entries.map(({ epoch }) => epoch)).toEqual(sorted)
  const open = new Set<string>()
  const messages = new Set<number>()
  let running: string | undefined
  let lastSeq = 0
  for (const { seq, attempt, type, callId } of entries) {
    expect(seq).toBeGreaterThanOrEqual(lastSeq)
    lastSeq = seq
    const turn = `${seq}/${attempt}`
    if (type === 'turn_started') {
      expect(running).toBeUndefined()
      running = turn
    } else if (type === 'message') {
      expect(messages.has(seq)).toBe(false)
      messages.add(seq)
    } else if (type === 'tool_call') {
      expect(open.has(`${turn} ${callId}`)).toBe(false)
      open.add(`${turn} ${callId}`)
    } else if (type === 'tool_result') {
      expect(open.delete(`${turn} ${callId}`)).toBe(true)
    } else if (type === 'turn_ended') {
      expect([turn, undefined]).toContain(running)
      expect([...open]).toEqual([])
      running = undefined
    }
  }
}
