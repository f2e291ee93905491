/**
 * Private servers: a Redis and a MySQL or MariaDB of our own, for `butler dev`, the demo and the tests.
 *
 * Such a server listens on 127.0.0.1 only, keeps everything in the caller's folder, does not hear the terminal's Ctrl-C,
 * and ends with this process however this process ends. Nothing is cached elsewhere, and apart from a sign of life and
 * the empty database nothing is said to either server here.
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs'
import { cp, mkdir, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { Alarm } from '../base/timing.ts'
import { type Kind, needBinary, needInstaller } from './binaries.ts'
import { freePort, isFree, mysqlAnswers, redisAnswers, until } from './probes.ts'

export { findBinary, type Kind } from './binaries.ts'

export interface Server {
  readonly kind: Kind
  readonly url: string
  /** Of a private server while it runs. */
  readonly pid?: number | undefined
  readonly port: number
  readonly binary?: string
  /** Ends it if we started it, otherwise does nothing. Harmless when repeated. */
  stop(): Promise<void>
  /** For private servers only, like `restart`: somebody else's server is neither killed nor emptied. */
  kill(signal: NodeJS.Signals): void
  /** Same port, same data unless `empty`; ends it first if it still runs. */
  restart(options?: { empty?: boolean }): Promise<void>
}

interface StartOptions {
  /** Holds the data and the log of at most one server of each kind. */
  folder: string
  port?: number
  /** Appended to ours, so they win. */
  args?: string[]
  binary?: string
}

export async function startRedis(options: StartOptions): Promise<Server> {
  const { folder, port = await freePort(), args = [], binary = needBinary('redis') } = options
  const data = join(folder, 'redis')
  const listen = ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', data]
  const forgetful = ['--save', '', '--appendonly', 'no', '--maxmemory-policy', 'noeviction']
  return new PrivateServer({
    kind: 'redis',
    url: `redis://127.0.0.1:${port}`,
    port,
    binary,
    data,
    args: [...listen, ...forgetful, ...args],
    prepare: async () => void (await mkdir(data, { recursive: true })),
    answers: () => redisAnswers(port),
  }).start()
}

/** `seedFolder` is an initialised data folder to copy, which saves seconds; it is made first if it does not exist. */
export async function startMysql(
  options: StartOptions & { database?: string; seedFolder?: string },
): Promise<Server> {
  const { folder, port = await freePort(), args = [], database = 'butler', seedFolder } = options
  const { binary = needBinary('mysql') } = options
  const isMaria = (await run(binary, ['--version'])).stdout.includes('MariaDB')
  // Both families refuse to run as root unless told to.
  const common = ['--no-defaults', ...(process.getuid?.() === 0 ? ['--user=root'] : [])]
  const data = join(folder, 'mysql')
  // Its own: a starting server deletes left-over files in its temporary folder, also those of a server that runs.
  const temporary = join(folder, 'mysql-tmp')
  const env = { ...process.env, TMPDIR: temporary }
  const initialise = (target: string): Promise<unknown> =>
    isMaria
      ? run(
          needInstaller(binary),
          [...common, `--datadir=${target}`, '--auth-root-authentication-method=normal'],
          { env },
        )
      : run(binary, [...common, '--initialize-insecure', `--datadir=${target}`], { env })
  // MySQL's packages expect folders and a second port that only a system-wide server has.
  const extras = isMaria ? [] : ['--mysqlx=OFF', '--secure-file-priv=NULL']
  const listen = [`--port=${port}`, '--bind-address=127.0.0.1', ...extras]
  // Relative to the data folder: the length of a socket's path is limited, that of a temporary folder's is not.
  const files = [
    `--datadir=${data}`,
    `--tmpdir=${temporary}`,
    '--socket=m.sock',
    '--pid-file=m.pid',
    '--skip-log-bin',
  ]
  const durable = [
    '--innodb-flush-log-at-trx-commit=1',
    '--character-set-server=utf8mb4',
    '--max-connections=500',
  ]
  const url = `mysql://root@127.0.0.1:${port}/${database}`
  return new PrivateServer({
    kind: 'mysql',
    url,
    port,
    binary,
    data,
    args: [...common, ...listen, ...files, ...durable, ...args],
    prepare: async () => {
      await mkdir(temporary, { recursive: true })
      if (seedFolder) await create(seedFolder, initialise)
      await create(data, seedFolder ? (target) => cp(seedFolder, target, { recursive: true }) : initialise)
      // MySQL takes a killed server's lock file for a live server's as soon as the pid in it is in use again.
      for (const left of ['m.sock', 'm.sock.lock']) await rm(join(data, left), { force: true })
    },
    answers: () => mysqlAnswers(url),
  }).start()
}

interface Plan {
  kind: Kind
  url: string
  port: number
  binary: string
  data: string
  args: string[]
  prepare: () => Promise<void>
  answers: () => Promise<boolean>
}

/** A server process of ours: starts it, waits until it answers, ends it. */
class PrivateServer implements Server {
  readonly kind: Kind
  readonly url: string
  readonly port: number
  readonly binary: string
  readonly #plan: Plan
  #child: ChildProcess | undefined

  constructor(plan: Plan) {
    this.#plan = plan
    this.kind = plan.kind
    this.url = plan.url
    this.port = plan.port
    this.binary = plan.binary
  }

  get pid(): number | undefined {
    return this.#child?.pid
  }

  async start(): Promise<this> {
    const { args, data, prepare, answers } = this.#plan
    await prepare()
    // Otherwise whoever has the port would answer in our server's place.
    if (!(await isFree(this.port))) throw new Error(`Port ${this.port} for ${this.kind} is in use.`)
    const logFile = `${data}.log`
    const log = openSync(logFile, 'w')
    // Detached: a process group of its own, which the terminal's Ctrl-C does not reach.
    const child = spawn(this.binary, args, { detached: true, stdio: ['ignore', log, log] })
    closeSync(log)
    this.#child = child
    const forget = () => {
      if (this.#child === child) this.#child = undefined
    }
    child.once('exit', forget).once('error', forget).unref()
    endWithUs(child)
    const answered = await until(answers, 60_000, () => this.#child === undefined)
    if (answered && this.#child) return this
    await this.#end()
    const end = readFileSync(logFile, 'utf8').slice(-2_000)
    throw new Error(`${this.binary} did not start. ${logFile} ends with:\n${end}`)
  }

  stop(): Promise<void> {
    return this.#end()
  }

  async #end(): Promise<void> {
    const child = this.#child
    if (!child) return
    child.ref()
    const exit = once(child, 'exit')
    child.kill('SIGTERM')
    child.kill('SIGCONT') // a frozen process hears SIGTERM only once it goes on
    const tooLong = new Alarm()
    tooLong.set(20_000, () => child.kill('SIGKILL'))
    await exit
    tooLong.clear()
  }

  kill(signal: NodeJS.Signals): void {
    this.#child?.kill(signal)
  }

  async restart({ empty = false }: { empty?: boolean } = {}): Promise<void> {
    await this.#end()
    if (empty) await rm(this.#plan.data, { recursive: true, force: true })
    await this.start()
  }
}

/** A pipe closes whenever its process ends, by SIGKILL too; a shell that waits for that then ends the server. */
function endWithUs(child: ChildProcess): void {
  if (child.pid === undefined) return
  const script = `read -r _; kill -TERM ${child.pid}; kill -CONT ${child.pid}`
  const guard = spawn('/bin/sh', ['-c', script], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] })
  guard.once('error', () => child.kill('SIGTERM'))
  child.once('exit', () => guard.kill('SIGKILL')) // before the pid can mean somebody else
  guard.unref()
  ;(guard.stdin as unknown as { unref(): void }).unref()
}

export const run = promisify(execFile)

/** Fills a new folder aside and renames it, so that an interrupted attempt never passes for a complete one. */
async function create(folder: string, fill: (target: string) => Promise<unknown>): Promise<void> {
  if (existsSync(folder)) return
  const aside = `${folder}.${process.pid}`
  await mkdir(dirname(folder), { recursive: true })
  await fill(aside)
  await rename(aside, folder).catch(async (error: unknown) => {
    await rm(aside, { recursive: true, force: true })
    if (!existsSync(folder)) throw error // otherwise another process was faster, which is as good
  })
}
