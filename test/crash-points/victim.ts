// The process under test, started by victims.ts before it is needed: everything is loaded, and it serves as soon as it
// is told where. SIGTERM drains it. It never outlives the run: its channel closes when that ends.
import { createLogger } from '../../src/index.ts'
import { startProbe, type ProbeOptions } from '../support/probe.ts'

process.on('disconnect', () => process.exit(2))
process.once('message', (options: ProbeOptions) => void serve(options))
process.send?.('loaded')

async function serve(options: ProbeOptions): Promise<void> {
  const { worker } = await startProbe(options, createLogger({ level: 'warn' }))
  process.on('SIGTERM', () => void worker.stop().then(() => process.exit(0)))
  process.send?.(worker.processId)
}
