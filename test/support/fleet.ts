// Real worker processes for a story: started, killed, frozen, thawed, terminated and restarted by the test.
//
//   const fleet = await startFleet({ workers: 2, parent, code, redisUrl, mysqlUrl, prefix, tunables: { lockTtlMs: 3000 } })
//   const start = await fleet.waitFor((lines) => lines.find(({ what }) => what === 'start'))
//   fleet.byProcess(start.process).kill()
//   fleet.open('go')                            lets handlers pass the gate `go` (probe-handler.ts)
//   await fleet.stop()                          ends all of them by pid; throws if one had ended unasked
//
// A process that exits although nobody asked it to fails the test at the next wait, with the end of its log; a story
// whose handlers take processes down says so with `mayCrash`.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TunablesInput } from '../../src/index.ts'
import { bundled } from './bundle.ts'
import { until, type Patience } from './eventually.ts'
import { HistoryFile, type Line } from './history.ts'
import type { ProbeOptions } from './probe.ts'

export interface FleetOptions {
  /** How many are started before `startFleet` resolves. */
  readonly workers: number
  /** Where its folder is made. */
  readonly parent: string
  readonly redisUrl: string
  readonly mysqlUrl: string
  readonly prefix: string
  readonly tunables?: TunablesInput
  /** Processes may end by themselves. */
  readonly mayCrash?: boolean
  /** Where the program is bundled. */
  readonly code: string
  /** What a process runs: it takes {@link ProbeOptions} and notes down when it is `ready`. Default {@link PROBE_WORKER}. */
  readonly program?: string
}

/** What one worker gets instead of the fleet's: a proxy's URL, a setting of its own. */
export interface Overrides {
  readonly redisUrl?: string
  readonly mysqlUrl?: string
  readonly tunables?: TunablesInput
  readonly kinds?: readonly string[]
  /** Modules loaded before everything else, and what the environment adds. */
  readonly preload?: readonly string[]
  readonly env?: Readonly<Record<string, string>>
}

export const PROBE_WORKER = 'test/support/probe-worker.ts'
const LOG_MAX = 20_000

export class Member {
  readonly pid: number
  readonly overrides: Overrides
  /** As the system knows the process; set when it is ready. */
  processId = ''
  /** Where it answers requests, if it does; set when it is ready. */
  url = ''
  /** The end of its standard error. */
  log = ''
  readonly exited: Promise<string>
  #end: string | undefined
  #asked = false
  readonly #child: ChildProcess

  constructor(child: ChildProcess, overrides: Overrides) {
    this.#child = child
    this.pid = child.pid ?? 0
    this.overrides = overrides
    child.stderr
      ?.setEncoding('utf8')
      .on('data', (text: string) => (this.log = (this.log + text).slice(-LOG_MAX)))
    child.stdin?.on('error', () => undefined)
    this.exited = once(child, 'exit').then(([code, signal]) => (this.#end = String(signal ?? code)))
  }

  /** Exit code or signal, once it has ended. */
  get end(): string | undefined {
    return this.#end
  }

  /** It ended although nobody asked it to. */
  get deserted(): boolean {
    return this.#end !== undefined && !this.#asked
  }

  get alive(): boolean {
    return this.#end === undefined
  }

  /** SIGKILL; resolves when it is gone. */
  async kill(): Promise<void> {
    this.#signal('SIGKILL')
    await this.exited
  }

  freeze(): void {
    this.#child.kill('SIGSTOP')
  }

  thaw(): void {
    this.#child.kill('SIGCONT')
  }

  /** The wall clock of a process that was started with a second one in its preload jumps to the other. */
  jump(): void {
    this.#child.kill('SIGUSR2')
  }

  /** SIGTERM, as a deploy does; `exited` says when it has left. */
  terminate(): void {
    this.#signal('SIGTERM')
  }

  #signal(signal: NodeJS.Signals): void {
    this.#asked = true
    this.#child.kill(signal)
  }
}

export class Fleet {
  /** Every process there has been, in the order of starting. */
  readonly workers: Member[] = []
  readonly folder: string
  readonly #options: FleetOptions
  readonly #history: HistoryFile

  constructor(options: FleetOptions, folder: string) {
    this.#options = options
    this.folder = folder
    this.#history = new HistoryFile(join(folder, 'history'))
  }

  /** Starts one more and resolves when it serves. */
  async spawn(overrides: Overrides = {}): Promise<Member> {
    const { redisUrl, mysqlUrl, prefix, tunables, code } = this.#options
    const program = bundled(code, this.#options.program ?? PROBE_WORKER)
    const options: ProbeOptions = {
      redisUrl: overrides.redisUrl ?? redisUrl,
      mysqlUrl: overrides.mysqlUrl ?? mysqlUrl,
      tunables: { prefix, ...tunables, ...overrides.tunables },
      folder: this.folder,
      ...(overrides.kinds ? { kinds: overrides.kinds } : {}),
    }
    const preload = (overrides.preload ?? []).flatMap((name) => ['--import', name])
    const args = [...preload, '--unhandled-rejections=strict', program, JSON.stringify(options)]
    const env = { ...process.env, ...overrides.env }
    const child = spawn(process.execPath, args, { stdio: ['pipe', 'ignore', 'pipe'], env })
    const member = new Member(child, overrides)
    this.workers.push(member)
    const ready = await this.waitFor(
      (lines) => lines.find(({ pid, what }) => pid === member.pid && what === 'ready') ?? !member.alive,
      { ms: 60_000, what: 'a worker process to be ready' },
    ).catch(async (error: unknown) => {
      await member.kill()
      throw error
    })
    if (ready === true) throw new Error(`A worker process did not start (${member.end}):\n${member.log}`)
    member.processId = ready.process
    member.url = (ready.fields?.['url'] as string | undefined) ?? ''
    return member
  }

  /** A new process with the same options, after the old one has ended (it is killed if it has not). */
  async restart(member: Member): Promise<Member> {
    if (member.alive) await member.kill()
    return this.spawn(member.overrides)
  }

  byProcess(processId: string): Member {
    const found = this.workers.find((member) => member.processId === processId)
    if (!found) throw new Error(`No worker process is called ${processId}.`)
    return found
  }

  /** The others that are alive. */
  except(...members: Member[]): Member[] {
    return this.workers.filter((member) => member.alive && !members.includes(member))
  }

  history(): Line[] {
    return this.#history.read()
  }

  /** Resolves with what `predicate` finds in the history as soon as that is neither undefined, null nor false. */
  waitFor<T>(
    predicate: (lines: Line[]) => T,
    patience: Patience = {},
  ): Promise<Exclude<T, undefined | null | false>> {
    return until(() => {
      this.#assertLoyal()
      return predicate(this.history())
    }, patience)
  }

  /** The line in which a handler says `what` about this message; the first one, or the one of `attempt`. */
  saw(what: string, session: string, seq = 1, attempt?: number, patience: Patience = {}): Promise<Line> {
    return this.waitFor(
      (lines) =>
        lines.find(
          (line) =>
            line.what === what &&
            line.session === session &&
            line.seq === seq &&
            (attempt === undefined || line.attempt === attempt),
        ),
      { what: `"${what}" of ${session} ${seq}, attempt ${attempt ?? 'any'}`, ...patience },
    )
  }

  /** Telemetry events of that name, of all processes. */
  events(name: string): Line[] {
    return this.history().filter((line) => line.what === 'event' && line.name === name)
  }

  /** Opens a gate, for good. */
  async open(gate: string): Promise<void> {
    await writeFile(join(this.folder, gate), '')
  }

  /** Ends every process by its pid. Throws if one had ended by itself, unless the fleet may crash. */
  async stop(): Promise<void> {
    const deserted = this.workers.filter((member) => member.deserted)
    for (const member of this.workers) if (member.alive) void member.kill()
    await Promise.all(this.workers.map((member) => member.exited))
    await rm(this.folder, { recursive: true, force: true })
    if (!this.#options.mayCrash) deserted.forEach(complain)
  }

  #assertLoyal(): void {
    if (!this.#options.mayCrash) this.workers.filter((member) => member.deserted).forEach(complain)
  }
}

function complain(member: Member): never {
  throw new Error(
    `Worker process ${member.processId} ended by itself (${member.end}):\n${member.log.slice(-4000)}`,
  )
}

export async function startFleet(options: FleetOptions): Promise<Fleet> {
  const fleet = new Fleet(options, await mkdtemp(join(options.parent, 'fleet-')))
  try {
    await Promise.all(Array.from({ length: options.workers }, () => fleet.spawn()))
    return fleet
  } catch (error) {
    await fleet.stop().catch(() => undefined)
    throw error
  }
}
