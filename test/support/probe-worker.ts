// A worker process of a story, bundled and started for fleet.ts: `node probe-worker.js '<ProbeOptions as JSON>'`.
// SIGTERM stops it in order, as an application should; a second one ends it at once. It never outlives the test: its
// standard input closes when the test's process ends.
import { createLogger } from '../../src/index.ts'
import { type ProbeOptions, startProbe } from './probe.ts'

const options = JSON.parse(process.argv[2] ?? '{}') as ProbeOptions
process.stdin.on('end', () => process.exit(2)).resume()
const { worker, note } = await startProbe(options, createLogger({ level: 'info' }))

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
