// A worker with the handler of probe-handler.ts that notes down what it does: telemetry above `debug` as `event` lines, the handler's
// own lines, and `ready` when it serves.
import { join } from 'node:path'
import { CATALOGUE, type EventName } from '../../src/base/events.ts'
import { createWorker, type Logger, type TunablesInput, type Worker } from '../../src/index.ts'
import { type Note, scribe } from './history.ts'
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

/** Said as often as an outage fails a command. Left out, like what happens with every message (`debug`). */
const REPETITIVE: readonly EventName[] = ['redis.trouble', 'mysql.trouble', 'channel.junk']

export interface Probe {
  readonly worker: Worker
  readonly note: (note: Note) => void
}

export async function startProbe(options: ProbeOptions, logger: Logger | false): Promise<Probe> {
  const probe = makeProbe(options, logger)
  await probe.worker.start()
  probe.note({ what: 'ready' })
  return probe
}

/** For whoever starts it, and says that it is ready, by itself. */
export function makeProbe(
  { redisUrl, mysqlUrl, tunables, folder, kinds }: ProbeOptions,
  logger: Logger | false,
): Probe {
  let note: (note: Note) => void = () => {}
  const handler = probeHandler({ folder, note: (line) => note(line) })
  const worker = createWorker({
    redis: redisUrl,
    mysql: mysqlUrl,
    logger: logger as never,
    ...tunables,
    ...(kinds ? { handlers: Object.fromEntries(kinds.map((kind) => [kind, handler])) } : { handler }),
  })
  note = scribe(join(folder, 'history'), worker.processId)
  for (const name of Object.keys(CATALOGUE) as EventName[]) {
    if (REPETITIVE.includes(name) || CATALOGUE[name].level === 'debug') continue
    worker.on(name, (fields) => note({ what: 'event', name, fields: printable(fields) }))
  }
  return { worker, note }
}

function printable(fields: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, value instanceof Error ? value.message : value]),
  )
}
