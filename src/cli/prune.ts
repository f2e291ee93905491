/** `butler prune`: remove what is old, in small bites. */
import type { Command } from 'commander'
import { duration } from './arguments.ts'
import { withClient } from './clients.ts'
import { ExitError, UsageError } from './exits.ts'
import { print, printJson } from './output.ts'
import { type StoreFlags, withStoreFlags } from './settings.ts'
import { exitCodeFor, onSignal } from './signals.ts'

interface PruneFlags extends StoreFlags {
  messagesOlder?: number
  entriesOlder?: number
  deletedOlder?: number
  json?: true
}

export function addPrune(program: Command): void {
  withStoreFlags(program.command('prune'))
    .description('remove old rows; what is not named is kept')
    .option(
      '--messages-older <age>',
      'finished messages, such as 30d; their idempotency keys go too',
      duration,
    )
    .option('--entries-older <age>', 'transcript entries of finished messages', duration)
    .option('--deleted-older <age>', 'rows of deleted sessions', duration)
    .option('--json', 'one object')
    .action(prune)
}

async function prune(flags: PruneFlags): Promise<void> {
  const { messagesOlder: messagesMs, entriesOlder: entriesMs, deletedOlder: deletedMs } = flags
  if (messagesMs === undefined && entriesMs === undefined && deletedMs === undefined) {
    throw new UsageError(
      'Say what to remove: --messages-older, --entries-older or --deleted-older, such as 30d.',
    )
  }
  const interrupt = new AbortController()
  onSignal((signal) => interrupt.abort(exitCodeFor(signal)))
  const ages = { messagesMs, entriesMs, deletedMs }
  const pruned = await withClient(flags, (client) => client.prune(ages, { signal: interrupt.signal }))
  if (flags.json) printJson(pruned)
  else print(`removed ${pruned.messages} messages and ${pruned.entries} entries`)
  if (interrupt.signal.aborted) throw new ExitError(interrupt.signal.reason as number)
}
