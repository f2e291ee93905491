// Where one life is played: the worker under test behind its two wires, the client, whoever takes over, and everything
// that is noted down for the checker.
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { type Client, createClient, type TunablesInput, type Worker } from '../../src/index.ts'
import type { AcceptedNote, StopNote } from '../support/checker.ts'
import { type Patience, until } from '../support/eventually.ts'
import { HistoryFile, type Line, monotonicNs } from '../support/history.ts'
import type { Script } from '../support/probe-handler.ts'
import { type ProbeOptions, startProbe } from '../support/probe.ts'
import type { Ground } from './ground.ts'
import type { Life } from './lives.ts'
import { Tally } from './tally.ts'
import type { Victim, Victims } from './victims.ts'
import { Wire } from './wire.ts'

/** Ten times faster than in production, but for the lock: whatever waits for it to expire has not come in time. */
const TIMES = {
  lockTtlMs: 60_000,
  renewMs: 1000,
  sweepMs: 500,
  heartbeatMs: 75,
  heartbeatTtlMs: 300,
  deadAfterMs: 250,
  hungAfterMs: 400,
  retakeMs: 100,
  lookMs: 500,
  lookFastMs: 100,
  giveAwayMs: 300,
  retryDelaysMs: [100, 200],
  stopGraceMs: 500,
  drainGraceMs: 500,
} as const
/** Far beyond every bound at these times, because the machine may be busy, and far below the lock's. */
const PATIENCE: Patience = { ms: 25_000, everyMs: 10 }

export interface StageOptions {
  readonly life: Life
  readonly ground: Ground
  readonly victims: Victims
  readonly parent: string
  /** Of the keys in Redis. */
  readonly prefix: string
}

interface Wires {
  readonly redis: Wire
  readonly mysql: Wire
}

export class Stage {
  readonly accepted: AcceptedNote[] = []
  readonly stops: StopNote[] = []
  readonly tally: Tally
  readonly victim: Victim
  readonly client: Client
  /** Processes that were killed. */
  deaths = 0
  readonly #wires: Wires
  readonly #options: StageOptions
  readonly #tunables: TunablesInput
  readonly #folder: string
  readonly #history: HistoryFile
  readonly #redis: Redis
  #predecessor: Victim | undefined
  #relief: Promise<Worker> | undefined

  private constructor(options: StageOptions, folder: string, tally: Tally, wires: Wires) {
    const { life, ground, victims, prefix } = options
    this.#options = options
    this.#folder = folder
    this.#history = new HistoryFile(join(folder, 'history'))
    this.#tunables = { ...TIMES, ...life.tunables, prefix }
    this.tally = tally
    this.#wires = wires
    this.victim = victims.take()
    this.client = createClient({
      redis: ground.redisUrl,
      mysql: ground.mysqlUrl,
      logger: false,
      ...this.#tunables,
    })
    this.#redis = new Redis(ground.redisUrl)
  }

  static async open(options: StageOptions): Promise<Stage> {
    await options.ground.clear()
    const folder = await mkdtemp(join(options.parent, 'point-'))
    const { redisUrl, mysqlUrl } = options.ground
    const tally = new Tally()
    const redis = await Wire.open('redis', redisUrl, tally)
    const mysql = await Wire.open('mysql', mysqlUrl, tally)
    return new Stage(options, folder, tally, { redis, mysql })
  }

  /** The worker under test serves, and hears what it is told. */
  async serve(): Promise<void> {
    await this.victim.serve(this.#probe({ redisUrl: this.#wires.redis.url, mysqlUrl: this.#wires.mysql.url }))
    const { processId } = this.victim
    if (processId !== undefined) await this.#present(processId, () => this.victim.end !== undefined)
  }

  async send(
    payload: Script,
    { session = 'chat-1', whenBusy }: { session?: string; whenBusy?: 'interrupt' } = {},
  ): Promise<void> {
    const from = monotonicNs()
    const accepted = await this.client.enqueue(session, { payload }, { whenBusy })
    this.accepted.push({ sessionId: session, ...accepted, from, to: monotonicNs() })
    if (whenBusy) await this.#stopped(accepted.seq - 1)
  }

  async stop(): Promise<void> {
    const { through } = await this.client.stop('chat-1')
    await this.#stopped(through)
  }

  withdraw(seq: number): Promise<void> {
    return this.client.withdraw('chat-1', seq)
  }

  /** A handler of anybody noted that about a message of chat-1. */
  async saw(what: string, seq: number): Promise<void> {
    const isIt = (line: Line) => line.what === what && line.session === 'chat-1' && line.seq === seq
    await until(() => this.history().some(isIt), { ...PATIENCE, what: `"${what}" of message ${seq}` })
  }

  /** Everything up to there has its final state. */
  async final(seq: number, session = 'chat-1'): Promise<void> {
    let row = ''
    const isFinal = async () => {
      const [found] = await this.#options.ground.sql<{ done_seq: number }>(
        `select done_seq, inbox_seq, stop_seq, running_seq, owner, epoch, starts, failures, crashes, retry_at
         from butler_sessions where id = ?`,
        [session],
      )
      row = JSON.stringify(found)
      return Number(found?.done_seq) >= seq
    }
    await until(isFinal, { ...PATIENCE, what: 'nothing' }).catch(() => {
      throw new Error(`${session}: I8: message ${seq} was not final after ${PATIENCE.ms} ms: ${row}`)
    })
  }

  /** Nobody's lock on chat-1 is a busy one any more. */
  async idle(): Promise<void> {
    const isIdle = async () => {
      const value = await this.#redis.get(`${this.#options.prefix}:{chat-1}:lock`)
      return value === null || value.endsWith('/idle')
    }
    await until(isIdle, { ...PATIENCE, what: 'an idle lock' })
  }

  /** Nothing that the worker says is heard any more. */
  mute(): void {
    for (const wire of Object.values(this.#wires) as Wire[]) wire.hold()
  }

  /** Opens a gate, for good. */
  async open(gate: string): Promise<void> {
    await writeFile(join(this.#folder, gate), '')
  }

  /** Whoever takes over is there: a worker in this process, which nothing happens to. */
  async relieve(): Promise<void> {
    this.#relief ??= startProbe(this.#probe({}), false).then(({ worker }) => worker)
    await this.#present((await this.#relief).processId)
  }

  /** The process that nothing happens to, once it is there. */
  async survivor(): Promise<string | undefined> {
    return (await this.#relief)?.processId
  }

  /** The worker under test drains; unless it is killed, no lock names it when it has left. */
  async drained(): Promise<void> {
    this.victim.terminate()
    if ((await this.victim.exited) !== '0') return
    const locks = (await this.#keys()).filter((key) => key.includes(` ${this.victim.processId}.`))
    if (locks.length > 0) throw new Error(`The worker drained and left ${locks.join(', ')}.`)
  }

  /** Of a session at rest Redis keeps an idle lock at most, and for their time the deltas of a turn whose process died. */
  async clean(): Promise<void> {
    let left = ''
    const isClean = async () => {
      const mayStay = this.deaths > 0 ? /:lock .*\/idle$|:live expires$/ : /:lock .*\/idle$/
      left = (await this.#keys()).filter((key) => !mayStay.test(key)).join(', ')
      return left === ''
    }
    await until(isClean, { ...PATIENCE, what: 'clean keys' }).catch(() => {
      throw new Error(`Left in Redis after ${PATIENCE.ms} ms: ${left}`)
    })
  }

  /** Another process has come to `until` with a message, and a second one waits. */
  async predecessor(script: Script, saw: string): Promise<void> {
    this.#predecessor = this.#options.victims.take()
    await this.#predecessor.serve(this.#probe({}))
    await this.send(script)
    await this.saw(saw, 1)
    await this.send({ do: 'echo' })
  }

  /** That process dies. */
  async bury(): Promise<void> {
    this.#predecessor?.kill()
    this.deaths += 1
    await this.#predecessor?.exited
  }

  history(): Line[] {
    return this.#history.read()
  }

  async close(): Promise<void> {
    this.victim.kill()
    this.#predecessor?.kill()
    const relief = await this.#relief?.catch(() => undefined)
    await Promise.all([this.victim.exited, this.#predecessor?.exited, relief?.stop({ graceMs: 0 })])
    await Promise.all([this.client.close(), this.#wires.redis.close(), this.#wires.mysql.close()])
    this.#redis.disconnect()
    await rm(this.#folder, { recursive: true, force: true })
  }

  /** Every key of a session: name, space, value of a lock or type of anything else. */
  async #keys(): Promise<string[]> {
    const names = new Set<string>()
    const match = `${this.#options.prefix}:{*`
    let cursor = '0'
    do {
      const [next, some] = await this.#redis.scan(cursor, 'MATCH', match, 'COUNT', 1000)
      for (const name of some) names.add(name)
      cursor = next
    } while (cursor !== '0')
    const about = async (name: string) => {
      if (name.endsWith(':lock')) return this.#redis.get(name)
      if (name.endsWith(':live') && (await this.#redis.pttl(name)) > 0) return 'expires'
      return this.#redis.type(name)
    }
    return Promise.all([...names].map(async (name) => `${name} ${await about(name)}`))
  }

  async #stopped(through: number): Promise<void> {
    const { head } = await this.client.transcript('chat-1', { limit: 1 })
    this.stops.push({ sessionId: 'chat-1', through, head })
  }

  #probe(urls: { redisUrl?: string; mysqlUrl?: string }): ProbeOptions {
    const { redisUrl, mysqlUrl } = this.#options.ground
    return { redisUrl, mysqlUrl, ...urls, tunables: this.#tunables, folder: this.#folder }
  }

  /** Its heartbeat is there, and so is its subscription. */
  async #present(processId: string, isGone = () => false): Promise<void> {
    const { prefix } = this.#options
    const isPresent = async () => {
      if (isGone()) return true
      const channel = `${prefix}:process:${processId}`
      const [beating, [, subscribers]] = await Promise.all([
        this.#redis.exists(`${prefix}:proc:${processId}`),
        this.#redis.pubsub('NUMSUB', channel) as Promise<[string, number]>,
      ])
      return beating === 1 && Number(subscribers) === 1
    }
    await until(isPresent, { ...PATIENCE, what: 'a worker to be present' })
  }
}
