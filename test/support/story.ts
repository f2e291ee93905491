// What every story needs: a migrated database and a prefix of its own, worker processes, a client whose calls are noted
// down for the checker, and the check itself at the end.
//
//   const story = await beginStory({ workers: 2 })
//   await story.send('chat-1', { do: 'gate', name: 'go' })
//   const { process } = await story.fleet.saw('start', 'chat-1')
//   …
//   await story.end()        waits until everything accepted is final, checks the invariants, takes all down
//
// `afterEach(endStories)`: so that a failed test leaves no process behind.
import { Redis } from 'ioredis'
import { createConnection, type Connection, type RowDataPacket } from 'mysql2/promise'
import {
  type Accepted,
  type Client,
  createClient,
  type Entry,
  type SendOptions,
  type StopOptions,
  type Worker,
  type TunablesInput,
} from '../../src/index.ts'
import type { Server } from '../../src/cli/servers.ts'
import { expect, inject, vi } from 'vitest'
import { connectMysql } from '../../src/mysql/connect.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
import { type AcceptedNote, check, type Evidence, type StopNote } from './checker.ts'
import { eventually, type Patience } from './eventually.ts'
import { type Fleet, type Overrides, startFleet } from './fleet.ts'
import { monotonicNs } from './history.ts'
import type { Script } from './probe-handler.ts'
import { startProbe } from './probe.ts'
import { freshDatabase, freshPrefix, ownMysql, ownRedis, runFolder, services } from './services.ts'

/** Ten times faster than in production; everything else follows from it. */
export const FAST = {
  lockTtlMs: 3000,
  retryDelaysMs: [100, 200],
  stopGraceMs: 500,
  drainGraceMs: 500,
} as const

export interface StoryOptions {
  /** Worker processes; see `story.local()` for workers that need none. Default 0. */
  readonly workers?: number
  /** Over FAST. */
  readonly tunables?: TunablesInput
  /** Servers that only this story uses, which it may kill, freeze and empty. */
  readonly own?: { readonly redis?: boolean; readonly mysql?: boolean }
  readonly mayCrash?: boolean
}

/** Processes start slowly on a busy machine; what hangs is found by the shorter deadlines of `eventually`. */
vi.setConfig({ testTimeout: 90_000 })

const open = new Set<Story>()

export class Story {
  readonly fleet: Fleet
  readonly client: Client
  readonly redisUrl: string
  readonly mysqlUrl: string
  readonly prefix: string
  readonly tunables: TunablesInput
  /** Set when the story has its own. */
  readonly servers: { redis?: Server; mysql?: Server }
  readonly accepted: AcceptedNote[] = []
  readonly stops: StopNote[] = []
  /** Handles to look and to meddle with; connected on first use. */
  #redis: Redis | undefined
  #sql: Promise<Connection> | undefined
  readonly #drop: () => Promise<void>
  readonly #locals: Worker[] = []

  constructor(
    parts: Pick<Story, 'fleet' | 'client' | 'redisUrl' | 'mysqlUrl' | 'prefix' | 'tunables' | 'servers'> & {
      drop: () => Promise<void>
    },
  ) {
    this.fleet = parts.fleet
    this.client = parts.client
    this.redisUrl = parts.redisUrl
    this.mysqlUrl = parts.mysqlUrl
    this.prefix = parts.prefix
    this.tunables = parts.tunables
    this.servers = parts.servers
    this.#drop = parts.drop
    open.add(this)
  }

  /** A connection of the test's own, for looking and for meddling. */
  get redis(): Redis {
    this.#redis ??= new Redis(this.redisUrl).on('error', () => undefined)
    return this.#redis
  }

  async sql<Row = Record<string, unknown>>(text: string, values: unknown[] = []): Promise<Row[]> {
    this.#sql ??= createConnection({ uri: this.mysqlUrl })
    const [rows] = await (await this.#sql).query<RowDataPacket[]>(text, values)
    return rows as unknown as Row[]
  }

  key(session: string, what: 'lock' | 'queue' | 'processing'): string {
    return `${this.prefix}:{${session}}:${what}`
  }

  /**
   * A worker in the test's own process, which costs no start-up: for everything but killing, freezing and blocking it.
   * Stopped by `end()` and `close()`, if the test has not done so.
   */
  async local(overrides: Overrides = {}): Promise<Worker> {
    const { redisUrl, mysqlUrl, prefix, fleet } = this
    const tunables = { prefix, ...this.tunables, ...overrides.tunables }
    const { worker } = await startProbe(
      { redisUrl, mysqlUrl, folder: fleet.folder, ...overrides, tunables },
      false,
    )
    this.#locals.push(worker)
    return worker
  }

  /** Enqueues and notes it down. */
  async send(sessionId: string, script: Script, options: SendOptions = {}): Promise<Accepted> {
    const from = monotonicNs()
    const accepted = await this.client.enqueue(sessionId, { payload: script }, options)
    this.accepted.push({ sessionId, ...accepted, key: options.idempotencyKey, from, to: monotonicNs() })
    return accepted
  }

  async stop(sessionId: string, options: StopOptions = {}) {
    const receipt = await this.client.stop(sessionId, options)
    const { head } = await this.client.transcript(sessionId, { limit: 1 })
    this.stops.push({ sessionId, through: receipt.through, head })
    return receipt
  }

  /** The session's whole transcript. */
  async transcript(sessionId: string): Promise<Entry[]> {
    const entries: Entry[] = []
    for (;;) {
      const page = await this.client.transcript(sessionId, { after: entries.at(-1)?.entry ?? 0, limit: 1000 })
      entries.push(...page.entries)
      if (page.entries.length === 0) return entries
    }
  }

  /** How each turn of the session ended, in order: `1 completed`, … */
  async outcomes(sessionId: string): Promise<string[]> {
    return (await this.transcript(sessionId))
      .filter(({ type }) => type === 'turn_ended')
      .map(({ seq, payload }) => `${seq} ${(payload as { outcome: string }).outcome}`)
  }

  /** Resolves when every message of every session has its final state. */
  async settled(patience: Patience = {}): Promise<void> {
    const unfinished = () =>
      this.sql<{ id: string }>(
        `select id, done_seq, inbox_seq, running_seq, owner, starts from butler_sessions
         where inbox_seq > done_seq limit 3`,
      )
    const isDone = async () => {
      const left = await unfinished()
      if (left.length > 0) throw new Error(`unfinished: ${JSON.stringify(left)}`)
    }
    try {
      await eventually(isDone, { ms: 25_000, everyMs: 50, what: 'every message to be final', ...patience })
    } catch (error) {
      const [first] = await unfinished()
      throw new Error(`${String(error)}\n${first ? await this.#tell(first.id) : ''}`, { cause: error })
    }
  }

  /** Waits for the end of everything, checks the invariants, and takes all down. */
  async end(evidence: Partial<Evidence> = {}): Promise<void> {
    await this.settled()
    const { mysqlUrl, accepted, stops } = this
    const history = this.fleet.history()
    const problems = await check({ mysqlUrl, accepted, stops, history, ...evidence })
    const told = await Promise.all(
      [...new Set(problems.map((problem) => problem.split(':')[0] ?? ''))].map((session) =>
        this.#tell(session),
      ),
    )
    expect(problems, told.join('\n')).toEqual([])
    await this.close()
  }

  /** What happened in a session, for whoever has to find out why. */
  async #tell(session: string): Promise<string> {
    const entries = (await this.transcript(session)).map(
      ({ entry, seq, attempt, epoch, type, payload, createdAt }) =>
        `${createdAt} entry ${entry}: ${seq}.${attempt} epoch ${epoch} ${type} ${JSON.stringify(payload).slice(0, 80)}`,
    )
    const lines = this.fleet
      .history()
      .filter((line) => (line.session ?? line.fields?.['session'] ?? session) === session)
      .map((line) => JSON.stringify(line))
    return [`--- ${session}`, ...entries, ...lines.slice(-100)].join('\n')
  }

  async close(): Promise<void> {
    if (!open.delete(this)) return
    try {
      await Promise.all(this.#locals.map((worker) => worker.stop({ graceMs: 0 })))
      await this.fleet.stop()
    } finally {
      await this.client.close()
      this.#redis?.disconnect()
      await this.#sql?.then((connection) => connection.end()).catch(() => undefined)
      await this.#drop()
    }
  }
}

export async function beginStory(options: StoryOptions = {}): Promise<Story> {
  const { own = {}, workers = 0, mayCrash = false } = options
  const servers: Story['servers'] = {}
  const [redis, mysql] = await Promise.all([
    own.redis ? ownRedis() : undefined,
    own.mysql ? ownMysql() : undefined,
  ])
  if (redis) servers.redis = redis
  if (mysql) servers.mysql = mysql
  const database = mysql ? { url: mysql.url, drop: async () => undefined } : await freshDatabase()
  const redisUrl = redis?.url ?? services().redisUrl
  const drop = async () => {
    await Promise.all([redis?.stop(), mysql?.stop(), database.drop()])
  }
  try {
    await migrate(database.url)
    const prefix = freshPrefix()
    const tunables = { ...FAST, ...options.tunables }
    const place = { parent: runFolder(), code: inject('code'), redisUrl, mysqlUrl: database.url, prefix }
    const fleet = await startFleet({ ...place, workers, tunables, mayCrash })
    const client = createClient({ redis: redisUrl, mysql: database.url, logger: false, prefix, ...tunables })
    return new Story({ fleet, client, redisUrl, mysqlUrl: database.url, prefix, tunables, servers, drop })
  } catch (error) {
    await drop()
    throw error
  }
}

export async function migrate(mysqlUrl: string): Promise<void> {
  const mysql = connectMysql(mysqlUrl, { timeoutMs: 20_000 })
  await migrateUp(mysql.db)
  await mysql.close()
}

/** For `afterEach`: whatever a failed test left behind. */
export async function endStories(): Promise<void> {
  await Promise.allSettled([...open].map((story) => story.close()))
}
