/**
 * What a workload stands on: servers (private ones unless the environment names others), a fresh database and prefix
 * per run, processes to order about, and the servers' own counters.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { type Connection, createConnection, type RowDataPacket } from 'mysql2/promise'
import { sleep } from '../src/base/timing.ts'
import { ensureDatabase, findOrStart, type Server } from '../src/cli/servers.ts'
import { migrate } from '../src/index.ts'
import { bareLatencies } from './bare.ts'
import { compileProcess } from './compiled.ts'
import type { Asks, ProcessConfig, Run, Told } from './process.ts'

/** Counters since the server started, and what is connected now; our own two questions are not in them. */
export interface Counters {
  redisCommands: number
  redisConnections: number
  statements: number
  commits: number
  mysqlConnections: number
}

const STATUS = ['Questions', 'Com_commit', 'Threads_connected']

export class Rig {
  readonly redis: Server
  readonly mysql: Server
  readonly versions: string
  readonly #observer: { redis: Redis; mysql: Connection }
  readonly #program: string
  readonly #profileFolder: string | undefined
  readonly #end: () => Promise<void>
  #asked = 0
  #spawned = 0

  private constructor(
    servers: { redis: Server; mysql: Server },
    observer: { redis: Redis; mysql: Connection },
    options: {
      program: string
      profileFolder: string | undefined
      versions: string
      end: () => Promise<void>
    },
  ) {
    this.redis = servers.redis
    this.mysql = servers.mysql
    this.#observer = observer
    this.#program = options.program
    this.#profileFolder = options.profileFolder
    this.versions = options.versions
    this.#end = options.end
  }

  static async open(profileFolder?: string): Promise<Rig> {
    const program = await compileProcess()
    const folder = await mkdtemp(join(tmpdir(), 'butler-bench-'))
    const log = () => undefined
    const { redis, mysql, stop } = await findOrStart({ folder, env: process.env, install: false, log })
    await ensureDatabase(mysql.url)
    const observer = { redis: new Redis(redis.url), mysql: await createConnection({ uri: mysql.url }) }
    const end = async () => {
      observer.redis.disconnect()
      await observer.mysql.end()
      await stop()
      await rm(folder, { recursive: true, force: true })
    }
    const redisVersion = field(await observer.redis.info('server'), 'redis_version')
    const [[row]] = await observer.mysql.query<RowDataPacket[]>('SELECT VERSION() AS version')
    const versions = `Redis ${redisVersion}, MySQL ${row?.['version']}, Node ${process.versions.node}`
    return new Rig({ redis, mysql }, observer, { program, profileFolder, versions, end })
  }

  /** What the stores alone take at this pace; see `bare.ts`. */
  async bare(pace: { count: number; everyMs: number }): Promise<number[]> {
    const { redis, mysql, drop } = await this.fresh()
    try {
      return await bareLatencies({ redis, mysql }, pace)
    } finally {
      await drop()
    }
  }

  /** A database and a prefix that nothing was ever written to. */
  async fresh(): Promise<{ redis: string; mysql: string; prefix: string; drop: () => Promise<void> }> {
    const name = `bench_${process.pid}_${Math.random().toString(36).slice(2, 8)}`
    const url = new URL(this.mysql.url)
    url.pathname = `/${name}`
    await ensureDatabase(url.href)
    await migrate(url.href)
    const drop = async () => void (await this.#observer.mysql.query('DROP DATABASE ??', [name]))
    return { redis: this.redis.url, mysql: url.href, prefix: name, drop }
  }

  async spawn(config: ProcessConfig): Promise<Child> {
    const profile = this.#profileFolder
      ? ['--cpu-prof', `--cpu-prof-dir=${join(this.#profileFolder, `${config.role}-${++this.#spawned}`)}`]
      : []
    const execArgv = ['--enable-source-maps', '--expose-gc', ...profile]
    const child = new Child(fork(this.#program, [JSON.stringify(config)], { execArgv }), config.role)
    await child.ready
    return child
  }

  /** Resolves when so many workers hear the wake channel: before that a message would wait for a sweep. */
  async untilHearing(prefix: string, workers: number): Promise<void> {
    for (;;) {
      const [, heard] = (await this.#observer.redis.pubsub('NUMSUB', `${prefix}:wake`)) as [string, number]
      if (heard >= workers) return
      await sleep(20)
    }
  }

  async counters(): Promise<Counters> {
    const info = await this.#observer.redis.info()
    const [rows] = await this.#observer.mysql.query<RowDataPacket[]>(
      'SHOW GLOBAL STATUS WHERE Variable_name IN (?)',
      [STATUS],
    )
    const status = new Map(rows.map((row) => [String(row['Variable_name']), Number(row['Value'])]))
    this.#asked += 1
    return {
      redisCommands: Number(field(info, 'total_commands_processed')) - this.#asked,
      redisConnections: Number(field(info, 'connected_clients')) - 1,
      statements: (status.get('Questions') ?? 0) - this.#asked,
      commits: status.get('Com_commit') ?? 0,
      mysqlConnections: (status.get('Threads_connected') ?? 0) - 1,
    }
  }

  close(): Promise<void> {
    return this.#end()
  }
}

/** A process of ours, asked over IPC. */
export class Child {
  readonly role: string
  readonly ready: Promise<void>
  readonly #process: ChildProcess
  readonly #waiting = new Map<number, { resolve: (value: never) => void; reject: (error: Error) => void }>()
  readonly #exited: Promise<unknown>
  readonly #told = new EventEmitter().setMaxListeners(0)
  #last = 0

  constructor(process: ChildProcess, role: string) {
    this.role = role
    this.#process = process
    this.#exited = once(process, 'exit')
    this.ready = new Promise((resolve, reject) => {
      process.once('exit', () => {
        const error = new Error(`A ${role} process ended early.`)
        reject(error)
        for (const { reject: fail } of this.#waiting.values()) fail(error)
      })
      process.on(
        'message',
        (message: { ready?: true; told?: Told; id?: number; value?: never; error?: string }) => {
          if (message.ready) resolve()
          if (message.told) this.#told.emit(nameOf(message.told.event, message.told.run), message.told.run)
          const waiting = this.#waiting.get(message.id ?? 0)
          this.#waiting.delete(message.id ?? 0)
          if (message.error === undefined) waiting?.resolve(message.value as never)
          else waiting?.reject(new Error(`${role}: ${message.error}`))
        },
      )
    })
  }

  get pid(): number {
    return this.#process.pid ?? 0
  }

  ask<Name extends keyof Asks>(name: Name, argument?: Asks[Name][0]): Promise<Asks[Name][1]> {
    const id = ++this.#last
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject })
      this.#process.send({ id, name, argument })
    })
  }

  /** Resolves when a worker that was made to `tell` tells of this attempt at a session's message. */
  async heard(event: Told['event'], session: string, attempt: number): Promise<Run> {
    const [run] = (await once(this.#told, nameOf(event, { session, attempt }))) as [Run]
    return run
  }

  /** Sends a signal and waits for the end that it brings. */
  async kill(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    this.#process.kill(signal)
    await this.#exited
  }

  /** Lets it close what it opened; a dead one is fine. */
  async end(): Promise<void> {
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) return
    await this.ask('end').catch(() => undefined)
    await this.#exited
  }
}

/** CPU seconds a process has used so far; NaN where there is no /proc or the process is not ours. */
export function cpuSeconds(pid: number | undefined): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return (Number(fields[11]) + Number(fields[12])) / 100
  } catch {
    return NaN
  }
}

/** Most memory a process ever held, MiB. */
export function peakMiB(pid: number): number {
  try {
    return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024
  } catch {
    return NaN
  }
}

const nameOf = (event: Told['event'], { session, attempt }: Pick<Run, 'session' | 'attempt'>): string =>
  `${event} ${session} ${attempt}`

const field = (info: string, name: string): string =>
  new RegExp(`^${name}:(.*?)\\r?$`, 'm').exec(info)?.[1] ?? ''
