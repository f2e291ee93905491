// A server of the campaign through HTTP, started for fleet.ts as probe-worker.ts is: the process of `butler serve` with the
// handler of the stories, but with the times of the round, which the command line has no options for. It hears the same
// signals and leaves in the same way. It never outlives the rig: its standard input closes when that ends.
import { answerUntil } from '../../src/cli/server.ts'
import { onSignal } from '../../src/cli/signals.ts'
import { createClient, createLogger } from '../../src/index.ts'
import { makeProbe, type ProbeOptions } from '../support/probe.ts'

/** Seconds; turns may run for half of it. */
const GRACE = 4

const options = JSON.parse(process.argv[2] ?? '{}') as ProbeOptions
process.stdin.on('end', () => process.exit(2)).resume()
const { redisUrl: redis, mysqlUrl: mysql, tunables } = options
const logger = createLogger({ level: 'info' })
const { worker, note } = makeProbe(options, logger)
const asked = new Promise<void>((resolve) => onSignal(() => resolve()))
await answerUntil(
  asked,
  { worker, mysql, logger, client: createClient({ redis, mysql, logger, ...tunables }) },
  { host: '127.0.0.1', port: 0, auth: true, grace: GRACE },
  (url) => note({ what: 'ready', fields: { url } }),
)
