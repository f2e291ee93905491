// The stage of one round: a database and a prefix of its own, workers and producers with a proxy in front of either store,
// and a keeper that starts a new process where one has ended.
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { migrate, type TunablesInput } from '../../src/index.ts'
import { bundled } from '../support/bundle.ts'
import { eventually, until } from '../support/eventually.ts'
import { type Fleet, type Member, startFleet } from '../support/fleet.ts'
import { monotonicNs, type Note, scribe } from '../support/history.ts'
import { type Proxy, startProxy } from '../support/proxy.ts'
import { type Desk, hasEnded, PRODUCER, startClient, WATCHERS } from './desk.ts'
import { Dice } from './dice.ts'
import type { ProducerOptions } from './producer.ts'
import type { Line } from './line-faults.ts'
import type { Servers } from './servers.ts'
import { placeOf, sightingsOf } from './sightings.ts'
import type { WatchersOptions } from './watchers.ts'
import { FLEET_PROGRAMS, type Through, type Way, wayThrough } from './way.ts'

export interface StageOptions {
  readonly servers: Servers
  readonly folder: string
  readonly seed: number
  readonly workers: number
  readonly producers: number
  readonly perSecond: number
  readonly sessions: readonly string[]
  /** So many of them are watched. */
  readonly watched: number
  readonly through: Through
  readonly tunables: TunablesInput
  /** Where {@link PROGRAMS} are bundled. */
  readonly code: string
}

/** The two lines of a worker: everything it says to the stores goes through them. */
export interface Lines {
  readonly redis: Proxy
  readonly mysql: Proxy
}

/** Where a worker works. The process changes, its lines stay. */
export interface Post {
  readonly lines: Lines
  member: Member
  /** Kept empty on purpose: nobody is started there. */
  vacant: boolean
  /** How its process was asked to end. */
  asked?: 'kill' | 'terminate' | undefined
  /** The start that is under way. */
  starting: Promise<void>
}

const HOUR_MS = 3_600_000
const LEAVE_MS = 20_000
/** A watcher finds out by itself that its connection is dead, and then that another one is, too. */
const CATCH_UP_MS = 50_000
/** How much of the end of a log is kept. */
const LOG_MAX = 2000

const SECOND_CLOCK = 'test/torture/second-clock.ts'
/** What a stage starts. */
export const PROGRAMS = [...FLEET_PROGRAMS, PRODUCER, WATCHERS, SECOND_CLOCK]

export class Stage {
  readonly options: StageOptions
  readonly database: string
  readonly prefix: string
  readonly posts: Post[] = []
  /** Producers. */
  readonly desks: Desk[] = []
  readonly way: Way
  readonly note: (note: Note) => void
  /** The process with the watchers, if anything is watched. */
  window: Desk | undefined
  readonly #fleet: Fleet
  /** Of the processes that speak to the fleet. */
  readonly #clientLines: Line[] = []
  #over = false

  private constructor(options: StageOptions, way: Way, fleet: Fleet, database: string, prefix: string) {
    this.options = options
    this.way = way
    this.#fleet = fleet
    this.database = database
    this.prefix = prefix
    this.note = scribe(join(fleet.folder, 'history'), 'rig')
  }

  static async open(options: StageOptions): Promise<Stage> {
    const { servers, folder: parent, seed, workers, producers } = options
    const [database, prefix] = [`butler_${seed}`, `torture-${seed}`]
    await servers.sql(`drop database if exists ${database}`)
    await servers.sql(`create database ${database} character set utf8mb4`)
    const mysqlUrl = servers.mysqlUrl(database)
    await migrate(mysqlUrl)
    const { tunables, code, through } = options
    const place = { redisUrl: servers.redisUrl, mysqlUrl }
    const way = await wayThrough(through, { ...place, tunables: { prefix, ...tunables } })
    const processes = { parent, prefix, tunables, code, program: way.program }
    const fleet = await startFleet({ ...place, ...processes, workers: 0, mayCrash: true })
    const stage = new Stage(options, way, fleet, database, prefix)
    try {
      await Promise.all(Array.from({ length: workers }, () => stage.#openPost()))
      await Promise.all(Array.from({ length: producers }, (_, index) => stage.#openDesk(`p${index}`)))
      if (options.watched > 0) await stage.#openWindow()
      return stage
    } catch (error) {
      await stage.close()
      throw error
    }
  }

  get mysqlUrl(): string {
    return this.options.servers.mysqlUrl(this.database)
  }

  history() {
    return this.#fleet.history()
  }

  get linesToRedis(): Proxy[] {
    const own = this.#clientLines.filter(({ store }) => store === 'redis')
    return [...this.posts.map(({ lines }) => lines.redis), ...own.map(({ proxy }) => proxy)]
  }

  get #clients(): Desk[] {
    return [...this.desks, ...(this.window ? [this.window] : [])]
  }

  /** Each session that is watched has two: one from the beginning, one that comes later. */
  get #watchers(): WatchersOptions['watchers'] {
    return this.options.sessions.slice(0, this.options.watched).flatMap((session) => [
      { name: `${session}/first`, session, later: false },
      { name: `${session}/later`, session, later: true },
    ])
  }

  key(session: string, what: 'lock' | 'queue' | 'processing'): string {
    return `${this.prefix}:{${session}}:${what}`
  }

  /** Ends a post's process and keeps it empty until {@link occupy}. */
  async vacate(post: Post, how: 'kill' | 'terminate'): Promise<void> {
    post.vacant = true
    await post.starting
    post.asked = how
    if (how === 'kill') await post.member.kill()
    else post.member.terminate()
  }

  /** Somebody works there again. */
  async occupy(post: Post): Promise<void> {
    // A process that drains must have left; one that never does is killed, as a deploy would.
    await until(() => !post.member.alive, { ms: LEAVE_MS, what: 'a worker to leave' }).catch(() => {
      const { processId: process, log } = post.member
      this.note({ what: 'overdue', fields: { process, log: log.slice(-LOG_MAX), ms: LEAVE_MS } })
      post.asked = 'kill'
      return post.member.kill()
    })
    if (this.#over) return
    post.vacant = false
    post.starting = this.#start(post)
    await post.starting
  }

  /** SIGKILL, and a successor, which is ready then: before that, the SIGTERM of the end would be its death. */
  async replaceProducer(desk: Desk): Promise<void> {
    desk.child.kill('SIGKILL')
    if (desk.child.exitCode === null && desk.child.signalCode === null) await once(desk.child, 'exit')
    desk.generation += 1
    desk.child = await this.#produce(desk)
  }

  /** Producers finish what they have begun. */
  async endProducers(): Promise<void> {
    for (const { child } of this.desks) child.kill('SIGTERM')
    await until(() => this.desks.every(hasEnded), { ms: 60_000, what: 'the producers to finish' })
  }

  /** Watchers leave when they have seen everything; whoever has not even after a while is left to the rule. */
  async endWatchers(): Promise<void> {
    const { window } = this
    if (!window) return
    const heads = await this.options.servers.sql<{ id: string; head: number }>(
      `select id, entry_seq as head from ${this.database}.butler_sessions`,
    )
    const headOf = new Map(heads.map(({ id, head }) => [id, head]))
    const areThere = () => {
      const places = new Map(sightingsOf(this.history()).map((one) => [one.watcher, placeOf(one)]))
      return this.#watchers.every(({ name, session }) => places.get(name)! >= (headOf.get(session) ?? 0))
    }
    await until(areThere, { ms: CATCH_UP_MS, everyMs: 250 }).catch(() => undefined)
    window.child.kill('SIGTERM')
    await until(() => hasEnded(window), { ms: LEAVE_MS, what: 'the watchers to leave' })
  }

  async close({ dropped = true } = {}): Promise<void> {
    this.#over = true
    for (const { child } of this.#clients) child.kill('SIGKILL')
    await Promise.all(this.posts.map(({ starting }) => starting))
    await this.#fleet.stop()
    const lines = this.posts.flatMap(({ lines: { redis, mysql } }) => [redis, mysql])
    await Promise.all([...lines, ...this.#clientLines.map(({ proxy }) => proxy)].map((line) => line.close()))
    if (!dropped) return
    const drop = () => this.options.servers.sql(`drop database if exists ${this.database}`)
    await eventually(drop, { ms: 30_000, what: 'the database to go' })
  }

  async #openLines(): Promise<Lines> {
    const [redis, mysql] = await Promise.all([
      startProxy(this.options.servers.redisUrl),
      startProxy(this.mysqlUrl),
    ])
    return { redis, mysql }
  }

  async #openPost(): Promise<void> {
    const lines = await this.#openLines()
    const member = await this.#spawn(lines)
    const post: Post = { lines, member, vacant: false, starting: Promise.resolve() }
    this.posts.push(post)
    this.#keep(post)
  }

  #spawn(lines: Lines): Promise<Member> {
    // Each process has a wall clock of its own, up to an hour wrong.
    const jumpMs = Dice.of(this.options.seed, 'clock', this.#fleet.workers.length).between(-HOUR_MS, HOUR_MS)
    return this.#fleet.spawn({
      redisUrl: lines.redis.url,
      mysqlUrl: lines.mysql.url,
      preload: [bundled(this.options.code, SECOND_CLOCK)],
      env: { JUMP_MS: String(jumpMs) },
    })
  }

  async #start(post: Post): Promise<void> {
    // While a store is away a worker cannot start; whoever looks after processes tries again.
    while (!this.#over && !post.vacant && !post.member.alive) {
      const began = monotonicNs()
      const member = await this.#spawn(post.lines).catch((error: unknown) => {
        const ms = (monotonicNs() - began) / 1e6
        if (!this.#over)
          this.note({ what: 'unstarted', reason: String(error).slice(-LOG_MAX), fields: { ms } })
      })
      if (!member) continue
      post.member = member
      post.asked = undefined
      this.#aim()
      this.#keep(post)
    }
  }

  /** Notes how a worker ended. One that ended unasked (a message that kills its process) gets a successor. */
  #keep(post: Post): void {
    const { member } = post
    void member.exited.then((end) => {
      if (this.#over || post.member !== member) return
      const fields = { process: member.processId, asked: post.asked, log: member.log.slice(-LOG_MAX) }
      this.note({ what: 'ended', name: end, fields })
      if (!post.vacant) post.starting = this.#start(post)
    })
  }

  async #openDesk(name: string): Promise<void> {
    const desk = { name, lines: await this.#openClientLines(), generation: 0 }
    this.desks.push({ ...desk, child: await this.#produce(desk) })
  }

  async #openWindow(): Promise<void> {
    const { code, seed } = this.options
    const [name, lines] = ['watchers', await this.#openClientLines()]
    const options: WatchersOptions = {
      to: this.way.addressOf(lines),
      history: join(this.#fleet.folder, 'history'),
      seed,
      name,
      watchers: this.#watchers,
    }
    const child = await startClient(code, WATCHERS, options, (reason) => this.#crashed(name, reason))
    this.window = { name, lines, child, generation: 0 }
  }

  async #openClientLines(): Promise<Line[]> {
    const lines = await this.way.openLines(this.posts)
    this.#clientLines.push(...lines)
    this.#aim()
    return lines
  }

  /** Lines to a server lead to the process that is there now. */
  #aim(): void {
    for (const { post, proxy } of this.#clientLines) if (post) proxy.aim(post.member.url)
  }

  #crashed(name: string, reason: string): void {
    if (!this.#over) this.note({ what: 'crashed', name, reason })
  }

  async #produce({
    name,
    generation,
    lines,
  }: Pick<Desk, 'name' | 'generation' | 'lines'>): Promise<ChildProcess> {
    const { code, seed, sessions, perSecond, producers } = this.options
    const options: ProducerOptions = {
      to: this.way.addressOf(lines),
      history: join(this.#fleet.folder, 'history'),
      name: `${name}g${generation}`,
      perSecond: perSecond / producers,
      seed,
      sessions,
    }
    return startClient(code, PRODUCER, options, (reason) => this.#crashed(name, reason))
  }
}
