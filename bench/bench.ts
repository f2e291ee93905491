/**
 * `npm run bench -- [names…] [--json] [--rounds N] [--in-flight N] [--per-session N] [--profile FOLDER]`: runs the
 * workloads one after the other and prints a table each. With REDIS_URL and MYSQL_URL the servers there are measured
 * (their counters and CPU then include everybody else's), otherwise private ones, durable at every commit.
 */
import { loadavg } from 'node:os'
import { parseArgs } from 'node:util'
import { table } from './figures.ts'
import { Rig } from './rig.ts'
import {
  idle,
  latency,
  order,
  stop,
  stream,
  takeover,
  throughput,
  watch,
  type Workload,
} from './workloads.ts'

const WORKLOADS: Record<string, { title: string; run: Workload }> = {
  throughput: { title: 'W1 throughput: 1,000 sessions, no-op handler', run: throughput },
  latency: { title: 'W2 latency: 50 messages/s for 20 s over 500 idle sessions', run: latency },
  idle: { title: 'W4 idle: sessions that did one message each', run: idle },
  takeover: { title: 'W5 takeover: a worker leaves in the middle of a turn', run: takeover },
  order: { title: 'W8 order: 500 sessions × 6 back to back, handlers 0 to 50 ms, 2 workers', run: order },
  watch: { title: 'W9 watching: a turn streams 50 deltas/s for 10 s to another process', run: watch },
  stream: {
    title: 'W9 over HTTP: 50 deltas/s to one reader, 10/s to 1,000; the server holds 20 turns',
    run: stream,
  },
  stop: { title: 'W10 stop: 200 running turns, stopped one after the other by another process', run: stop },
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'boolean', default: false },
    rounds: { type: 'string', default: '5' },
    'in-flight': { type: 'string', default: '200' },
    'per-session': { type: 'string', default: '20' },
    profile: { type: 'string' },
  },
})
const names = positionals.length > 0 ? positionals : Object.keys(WORKLOADS)
const unknown = names.filter((name) => !WORKLOADS[name])
if (unknown.length > 0) {
  console.error(`Unknown workload ${unknown.join(', ')}: use ${Object.keys(WORKLOADS).join(', ')}.`)
  process.exit(2)
}
const settings = {
  rounds: Number(values.rounds),
  inFlight: Number(values['in-flight']),
  perSession: Number(values['per-session']),
}
const rig = await Rig.open(values.profile)
try {
  if (!values.json) console.log(rig.versions)
  for (const name of names) {
    const workload = WORKLOADS[name]
    if (!workload) continue
    const load = Number(loadavg()[0]?.toFixed(2))
    const rows = await workload.run(rig, settings)
    if (values.json)
      console.log(JSON.stringify({ workload: name, versions: rig.versions, load, settings, rows }))
    else console.log(`\n${workload.title} (load before: ${load})\n${table(rows)}`)
  }
} finally {
  await rig.close()
}
