/** `butler work`: one worker process around the user's handler. The first signal drains it, a second one ends it at once. */
import type { Command } from 'commander'
import { createWorker, type TunablesInput, type Worker } from '../index.ts'
import { wholeNumber } from './arguments.ts'
import { EXIT } from './exits.ts'
import { loadHandlers } from './handler-module.ts'
import { connectionsOf, type StoreFlags, withStoreFlags } from './settings.ts'
import { onSignal } from './signals.ts'

interface WorkFlags extends StoreFlags {
  concurrency?: number
  kinds?: string[]
}

export function addWork(program: Command): void {
  withStoreFlags(program.command('work'))
    .description('run turns in this process until it is told to stop')
    .argument('<handler>', 'file (.js or .ts) with a default export, or an export named handler or handlers')
    .option('--concurrency <n>', 'turns at the same time (default 100)', wholeNumber)
    .option('--kinds <kind...>', 'take only messages of these kinds')
    .action(work)
}

async function work(file: string, flags: WorkFlags): Promise<void> {
  const { concurrency, kinds } = flags
  const handlers = await loadHandlers(file, kinds)
  const options: TunablesInput = { concurrency }
  const worker = createWorker({ ...connectionsOf(flags, 'info'), ...handlers, ...options })
  stopOnRequest(worker)
  try {
    await worker.start()
  } catch (error) {
    await worker.stop()
    throw error
  }
  const end = await worker.ended
  // Settles when everything is let go of; handlers that never ended only end with the process.
  await worker.stop()
  process.exit(end === 'overloaded' ? EXIT.failed : EXIT.ok)
}

function stopOnRequest(worker: Worker): void {
  const stop = () => void worker.stop()
  onSignal(stop)
  // Started by `dev`, which is gone without having said so.
  if (process.connected) process.once('disconnect', stop)
}
