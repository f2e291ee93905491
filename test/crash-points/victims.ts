// Processes to be killed: compiled into one file, because each of the many is started for one point, and started ahead,
// so that the next is loaded while the present one runs.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { bundle, bundled } from '../support/bundle.ts'
import type { ProbeOptions } from '../support/probe.ts'

const VICTIM = 'test/crash-points/victim.ts'
const LOG_MAX = 4000

export class Victim {
  readonly exited: Promise<string>
  readonly loaded: Promise<unknown>
  /** As the system knows it; set when it serves. */
  processId: string | undefined
  /** How it ended: code or signal. */
  end: string | undefined
  /** The end of its standard error. */
  log = ''
  readonly #child: ChildProcess

  constructor(program: string) {
    const child = spawn(process.execPath, ['--unhandled-rejections=strict', program], {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    })
    this.#child = child
    child.on('error', (error) => (this.log += String(error)))
    child.stderr
      ?.setEncoding('utf8')
      .on('data', (text: string) => (this.log = (this.log + text).slice(-LOG_MAX)))
    this.loaded = once(child, 'message').catch(() => undefined)
    this.exited = once(child, 'exit').then(([code, signal]) => (this.end = String(signal ?? code)))
  }

  /** Resolves when it serves, or when it ended before. */
  async serve(options: ProbeOptions): Promise<void> {
    await Promise.race([this.loaded, this.exited])
    if (this.end !== undefined) return
    const serving = once(this.#child, 'message').then(([processId]) => (this.processId = String(processId)))
    this.#child.send(options)
    await Promise.race([serving, this.exited])
  }

  kill(): void {
    this.#child.kill('SIGKILL')
  }

  terminate(): void {
    this.#child.kill('SIGTERM')
  }
}

export class Victims {
  readonly #folder: string
  readonly #program: string
  readonly #ready: Victim[] = []

  private constructor(folder: string, ahead: number) {
    this.#folder = folder
    this.#program = bundled(folder, VICTIM)
    while (this.#ready.length < ahead) this.#ready.push(new Victim(this.#program))
  }

  /** `ahead`: how many wait to be used. */
  static async prepare(parent: string, ahead: number): Promise<Victims> {
    const folder = await mkdtemp(join(parent, 'victim-'))
    await bundle(folder, [VICTIM])
    return new Victims(folder, ahead)
  }

  /** One that nobody has used, and another one is started in its place. */
  take(): Victim {
    this.#ready.push(new Victim(this.#program))
    return this.#ready.shift()!
  }

  async close(): Promise<void> {
    for (const victim of this.#ready) victim.kill()
    await Promise.all(this.#ready.map((victim) => victim.exited))
    await rm(this.#folder, { recursive: true, force: true })
  }
}
