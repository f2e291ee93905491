/**
 * `butler dev`: everything on this machine with one command. Finds or starts the servers, prepares the database, runs a
 * few worker processes; Ctrl-C drains them and then ends what was started here, and nothing else.
 */
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Command } from 'commander'
import { migrate } from '../index.ts'
import { wholeNumber } from './arguments.ts'
import { EXIT, UsageError } from './exits.ts'
import { fromEnvironment } from './environment.ts'
import { lockFolder } from './folder-lock.ts'
import { loadHandlers } from './handler-module.ts'
import { print, say } from './output.ts'
import { ensureDatabase, findOrStart } from './servers.ts'
import { readSettings, type StoreFlags, withoutPassword, withStoreFlags } from './settings.ts'
import { onSignal } from './signals.ts'

interface DevFlags extends StoreFlags {
  install?: boolean
  data: string
  workers: number
}

const WORKERS_MAX = 32

export function addDev(program: Command): void {
  withStoreFlags(program.command('dev'))
    .description('find or start Redis and MySQL, migrate, and run a few workers')
    .argument('[handler]', 'file with your handler; without it a scripted demo answers')
    .option('--install', 'on Debian as root: install the servers when there are none')
    .option('--data <dir>', 'folder for the data of servers that are started here', '.butler')
    .option('--workers <n>', 'worker processes', wholeNumber, 2)
    .action(dev)
}

async function dev(file: string | undefined, flags: DevFlags): Promise<void> {
  if (flags.workers < 1 || flags.workers > WORKERS_MAX) {
    throw new UsageError(`--workers ${flags.workers}: use 1 to ${WORKERS_MAX}.`)
  }
  // Here too, so that a bad file is reported once and before any server is started.
  if (file !== undefined) await loadHandlers(file)
  const env = { ...process.env }
  if (flags.redis !== undefined) env.BUTLER_REDIS_URL = flags.redis
  if (flags.mysql !== undefined) env.BUTLER_MYSQL_URL = flags.mysql
  const folder = resolve(flags.data)
  // Two that share their servers would end them for each other; who brings servers along may run as many as he likes.
  const startsServers = !fromEnvironment('redis', env) || !fromEnvironment('mysql', env)
  const unlock = startsServers ? lockFolder(folder) : () => undefined
  process.once('exit', unlock)
  const interrupted = new Promise<void>((done) => onSignal(() => done()))
  const servers = await findOrStart({ folder, env, install: flags.install === true, log: say })
  const workers: ChildProcess[] = []
  try {
    await ensureDatabase(servers.mysql.url)
    const { applied } = await migrate(servers.mysql.url)
    if (applied.length > 0) say(`database: applied ${applied.join(', ')}`)
    env.BUTLER_REDIS_URL = servers.redis.url
    env.BUTLER_MYSQL_URL = servers.mysql.url
    env.BUTLER_PREFIX = readSettings(flags).prefix.value
    for (let n = 0; n < flags.workers; n++) workers.push(startWorker(file, flags, env))
    greet(file, flags.workers, env)
    await Promise.race([interrupted, allEnded(workers)])
  } finally {
    await drain(workers)
    await servers.stop()
  }
  const failed = workers.some(({ exitCode }) => exitCode !== null && exitCode !== 0)
  process.exit(failed ? EXIT.failed : EXIT.ok)
}

/** In a process group of its own, which the terminal's Ctrl-C does not reach; it drains when this process is gone. */
function startWorker(file: string | undefined, flags: DevFlags, env: NodeJS.ProcessEnv): ChildProcess {
  const program = process.argv[1] ?? ''
  const level = flags.logLevel ? ['--log-level', flags.logLevel] : []
  const worker = fork(program, ['work', file ?? demoHandler(), ...level], {
    env,
    detached: true,
    stdio: ['ignore', 2, 'inherit', 'ipc'],
  })
  worker.once('error', (error) => say(`A worker did not start: ${error.message}`))
  worker.once('exit', (code, signal) => {
    if (code !== 0) say(`Worker ${worker.pid} ended: ${signal ?? `exit code ${code}`}.`)
  })
  return worker
}

/** The same file as source and as built. */
const demoHandler = (): string =>
  fileURLToPath(
    new URL(import.meta.url.endsWith('.ts') ? './demo-handler.ts' : './demo-handler.js', import.meta.url),
  )

const hasEnded = ({ exitCode, signalCode, pid }: ChildProcess): boolean =>
  exitCode !== null || signalCode !== null || pid === undefined

async function allEnded(workers: readonly ChildProcess[]): Promise<void> {
  await Promise.all(workers.map(async (worker) => void (hasEnded(worker) || (await once(worker, 'exit')))))
}

async function drain(workers: readonly ChildProcess[]): Promise<void> {
  const running = workers.filter((worker) => !hasEnded(worker))
  if (running.length > 0) say(`draining ${running.length} workers; again to end them at once`)
  const ended = running.map((worker) => once(worker, 'exit'))
  for (const worker of running) worker.kill('SIGTERM')
  const endAll = () => running.forEach((worker) => worker.kill('SIGKILL'))
  process.once('exit', endAll)
  await Promise.all(ended)
  process.off('exit', endAll)
}

function greet(file: string | undefined, workers: number, env: NodeJS.ProcessEnv): void {
  const { redis, mysql, prefix } = readSettings({}, env)
  const variables = [`BUTLER_REDIS_URL='${redis.value}'`, `BUTLER_MYSQL_URL='${mysql.value}'`]
  if (prefix.value !== 'butler') variables.push(`BUTLER_PREFIX='${prefix.value}'`)
  print(`redis    ${withoutPassword(redis.value)}`)
  print(`mysql    ${withoutPassword(mysql.value)}`)
  print(`workers  ${workers}, serving ${file ?? 'a scripted demo'}`)
  print('In another terminal:')
  print(`  export ${variables.map(withoutPassword).join(' ')}`)
  print("  npx session-butler send chat-1 'Hello, who are you?' --follow")
  print('Ctrl-C ends this.')
}
