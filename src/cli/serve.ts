/**
 * `butler serve`: the HTTP API and, unless told otherwise, a worker, in one process. The first signal lets go of
 * everything within the grace, a second one ends it at once.
 */
import { type Command, Option } from 'commander'
import { createClient, createWorker, openKeyring, type Worker } from '../index.ts'
import { createHttpHandler, keyAccess, openAccess, SessionTokens } from '../http/index.ts'
import { listen } from '../http/server.ts'
import { wholeNumber } from './arguments.ts'
import { EXIT, UsageError } from './exits.ts'
import { loadHandlers } from './handler-module.ts'
import { connectionsOf, type StoreFlags, withStoreFlags } from './settings.ts'
import { onSignal } from './signals.ts'

interface ServeFlags extends StoreFlags {
  host: string
  port: number
  work: boolean
  auth: boolean
  concurrency?: number
  kinds?: string[]
  corsOrigin?: string[]
  grace: number
}

const LOOPBACK = /^(?:127(?:\.\d{1,3}){3}|::1|localhost)$/

export function addServe(program: Command): void {
  withStoreFlags(program.command('serve'))
    .description('answer HTTP requests, and run turns, until it is told to stop')
    .argument('[handler]', 'file (.js or .ts) with a default export, or an export named handler or handlers')
    .option('--host <address>', 'where to listen', '127.0.0.1')
    .addOption(
      new Option('--port <n>', '0: any that is free').env('BUTLER_PORT').default(7300).argParser(wholeNumber),
    )
    .option('--no-work', 'only answer; turns run in other processes')
    .option('--no-auth', 'let everybody do everything; on a loopback address only')
    .option('--cors-origin <origin...>', 'pages of these origins may call it')
    .option('--concurrency <n>', 'turns at the same time (default 100)', wholeNumber)
    .option('--kinds <kind...>', 'take only messages of these kinds')
    .option(
      '--grace <seconds>',
      'how long running turns and requests may go on after a signal',
      wholeNumber,
      25,
    )
    .action(serve)
}

async function serve(file: string | undefined, flags: ServeFlags): Promise<void> {
  const { host, port, corsOrigin = [] } = flags
  if (!flags.auth && !LOOPBACK.test(host))
    throw new UsageError(
      `--no-auth on ${host} would let everybody in: use it on 127.0.0.1 only, or make keys with keys create.`,
    )
  if (flags.work && file === undefined)
    throw new UsageError('Name the file with the handler, or say --no-work.')
  const connections = connectionsOf(flags, 'info')
  const { logger } = connections
  const secret = process.env['BUTLER_TOKEN_SECRET']
  const tokens = secret === undefined ? undefined : new SessionTokens(secret)
  const worker = file === undefined || !flags.work ? undefined : await workerOf(file, flags)
  const client = createClient(connections)
  const keyring = openKeyring(connections.mysql)
  const handler = createHttpHandler({
    client,
    access: flags.auth ? keyAccess(keyring, tokens) : openAccess(tokens),
    corsOrigins: corsOrigin,
    logger,
  })
  const close = () => Promise.all([client.close(), keyring.close()])
  let server
  try {
    await worker?.start()
    server = await listen(handler, { host, port })
  } catch (error) {
    await Promise.all([worker?.stop({ graceMs: 0 }), close()])
    throw error
  }
  if (!flags.auth)
    logger.warn({ event: 'http.open', host }, 'no keys are asked for: everybody may do everything')
  logger.info({ event: 'http.listening', url: server.url })
  const asked = new Promise<void>((resolve) => onSignal(() => resolve()))
  await Promise.race([asked, worker?.ended ?? asked])
  const graceMs = flags.grace * 1000
  handler.drain()
  await Promise.all([server.close(graceMs), worker?.stop({ graceMs })])
  await close()
  logger.info({ event: 'http.stopped' })
  process.exit((await endOf(worker)) === 'overloaded' ? EXIT.failed : EXIT.ok)
}

async function workerOf(file: string, flags: ServeFlags): Promise<Worker> {
  const { concurrency, kinds } = flags
  return createWorker({ ...connectionsOf(flags, 'info'), ...(await loadHandlers(file, kinds)), concurrency })
}

const endOf = (worker: Worker | undefined) => worker?.ended ?? Promise.resolve('stopped' as const)
