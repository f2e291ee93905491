/**
 * The process of `butler serve`. The first signal lets go of everything within the grace, a second one ends it at once.
 */
import { type Client, createClient, createWorker, type Logger, openKeyring, type Worker } from '../index.ts'
import { now, sleep } from '../base/timing.ts'
import { createHttpHandler, keyAccess, localAccess, openMetrics, SessionTokens } from '../http/index.ts'
import { type HttpServer, listen } from '../http/server.ts'
import { EXIT, UsageError } from './exits.ts'
import { loadHandlers } from './handler-module.ts'
import { connectionsOf, type StoreFlags } from './settings.ts'
import { onSignal } from './signals.ts'

export interface ServeFlags extends StoreFlags {
  host: string
  port: number
  work: boolean
  auth: boolean
  concurrency?: number
  kinds?: string[]
  corsOrigin?: string[]
  grace: number
}

/** Of the grace, for handing over what still runs. */
const HAND_OVER_MS = 5000
/** With no grace at all, everything still has to be told. */
const GRACE_MIN_MS = 1000

const LOOPBACK = /^(?:127(?:\.\d{1,3}){3}|::1|localhost)$/

export async function serve(file: string | undefined, flags: ServeFlags): Promise<void> {
  const { host } = flags
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
  const asked = new Promise<void>((resolve) => onSignal(() => resolve()))
  const worker = file === undefined || !flags.work ? undefined : await workerOf(file, flags)
  const client = createClient(connections)
  await answerUntil(asked, { client, worker, tokens, mysql: connections.mysql, logger }, flags)
}

/** What a server is made of. */
export interface ServerParts {
  readonly client: Client
  readonly worker: Worker | undefined
  readonly tokens?: SessionTokens | undefined
  /** Where the keys are. */
  readonly mysql: string
  readonly logger: Logger
}

export type ServerFlags = Pick<ServeFlags, 'host' | 'port' | 'auth' | 'corsOrigin' | 'grace'>

/** Answers, and runs turns, until it is asked to leave; then it leaves within the grace and ends the process. */
export async function answerUntil(
  asked: Promise<void>,
  { client, worker, tokens, mysql, logger }: ServerParts,
  flags: ServerFlags,
  onListening: (url: string) => void = () => undefined,
): Promise<never> {
  const { host, port, corsOrigin = [] } = flags
  const keyring = openKeyring(mysql)
  const metrics = openMetrics(worker ? [worker, client] : [client])
  const closeClients = () => Promise.all([client.close(), keyring.close(), metrics.close()])
  let server: HttpServer
  try {
    let isStarted = false
    const health = async () => (worker ? worker.health() : client.health())
    const handler = createHttpHandler({
      client,
      access: flags.auth ? keyAccess(keyring, tokens) : localAccess(tokens, corsOrigin),
      corsOrigins: corsOrigin,
      problems: async () => (isStarted ? (await health()).problems.map(({ code }) => code) : ['starting']),
      metrics: () => metrics.text(),
      logger,
    })
    // First, because it may fail, and a worker that has started would have taken sessions.
    server = await listen(handler, { host, port }).catch(explainAddress)
    await worker?.start().catch(async (error: unknown) => {
      await server.close(0)
      throw error
    })
    isStarted = true
  } catch (error) {
    await Promise.all([worker?.stop({ graceMs: 0 }), closeClients()])
    throw error
  }
  if (!flags.auth)
    logger.warn({ event: 'http.open', host }, 'no keys are asked for: everybody may do everything')
  logger.info({ event: 'http.listening', url: server.url }, `listening on ${server.url}`)
  onListening(server.url)
  const end = await Promise.race([asked, worker?.ended ?? asked])
  const graceMs = Math.max(flags.grace * 1000, GRACE_MIN_MS)
  const left = leave(server, worker, graceMs)
    .then(closeClients)
    .then(
      () => true,
      (error: unknown) => {
        logger.error({ event: 'http.error', error: String(error) })
      },
    )
  const isInTime = (await Promise.race([left, sleep(graceMs)])) === true
  if (isInTime) logger.info({ event: 'http.stopped' }, 'stopped')
  else
    logger.error({ event: 'http.cut_short' }, 'the grace is over: what is not handed over is found by others')
  return process.exit(isInTime && end !== 'overloaded' ? EXIT.ok : EXIT.failed)
}

/** Requests are answered for as long as turns run; what is left of the grace is for those that last longer still. */
async function leave(server: HttpServer, worker: Worker | undefined, graceMs: number): Promise<void> {
  const since = now()
  server.drain()
  await worker?.stop({ graceMs: Math.round(graceMs - Math.min(HAND_OVER_MS, graceMs / 2)) })
  // A little is kept for closing what is open.
  await server.close(Math.max(0, graceMs - GRACE_MIN_MS / 2 - (now() - since)))
}

async function workerOf(file: string, flags: ServeFlags): Promise<Worker> {
  const { concurrency, kinds } = flags
  return createWorker({ ...connectionsOf(flags, 'info'), ...(await loadHandlers(file, kinds)), concurrency })
}

function explainAddress(error: NodeJS.ErrnoException & { address?: string; port?: number }): never {
  const { code = '', address, port } = error
  const why = ADDRESS[code]
  const at = port === undefined ? 'there' : `on port ${port} of ${address}`
  throw why === undefined ? error : new UsageError(`Cannot listen ${at}: ${why}`)
}

const ADDRESS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'somebody else does. Choose another with --port, 0 for any that is free.',
  EADDRNOTAVAIL: 'this machine has no such address. Choose another with --host.',
  ENOTFOUND: 'there is no such host. Choose another with --host.',
  EACCES: 'it needs rights that this process has not. Choose one above 1023 with --port.',
}
