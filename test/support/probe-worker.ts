// A worker process of a story, started by fleet.ts: `node --import tsx probe-worker.ts '<ProbeOptions as JSON>'`.
// SIGTERM stops it in order, as an application should; a second one ends it at once. It never outlives the test: its
// standard input closes when the test's process ends.
import { join } from 'node:path'
import { CATALOGUE, type EventName } from '../../src/base/events.ts'
import { createLogger, createWorker, type TunablesInput } from '../../src/index.ts'
import { scribe } from './history.ts'
import { probeHandler } from './probe-handler.ts'

export interface ProbeOptions {
  readonly redisUrl: string
  readonly mysqlUrl: string
  readonly tunables: TunablesInput
  /** Holds the history file and the gates. */
  readonly folder: string
  /** Message kinds that it has a handler for. Default: any. */
  readonly kinds?: readonly string[]
}

/** Said as often as an outage fails a command; the log has them. */
const REPETITIVE: readonly EventName[] = ['redis.trouble', 'mysql.trouble', 'channel.junk']

const { redisUrl, mysqlUrl, tunables, folder, kinds } = JSON.parse(process.argv[2] ?? '{}') as ProbeOptions
let note: ReturnType<typeof scribe> = () => {}
const handler = probeHandler({ folder, note: (line) => note(line) })
const worker = createWorker({
  redis: redisUrl,
  mysql: mysqlUrl,
  logger: createLogger({ level: 'info' }),
  ...tunables,
  ...(kinds ? { handlers: Object.fromEntries(kinds.map((kind) => [kind, handler])) } : { handler }),
})
note = scribe(join(folder, 'history'), worker.processId)
for (const name of Object.keys(CATALOGUE) as EventName[]) {
  if (REPETITIVE.includes(name)) continue
  worker.on(name, (fields) => note({ what: 'event', name, fields: printable(fields) }))
}

let terminations = 0
process.on('SIGTERM', () => {
  terminations += 1
  if (terminations > 1) process.exit(1)
  note({ what: 'leaving' })
  void worker.stop().then(() => {
    note({ what: 'left' })
    process.exit(0)
  })
})
process.stdin.on('end', () => process.exit(2)).resume()

await worker.start()
note({ what: 'ready' })

function printable(fields: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, value instanceof Error ? value.message : value]),
  )
}
