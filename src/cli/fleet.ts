/** `butler fleet`: which processes there are. */
import type { Command } from 'commander'
import type { ProcessView } from '../index.ts'
import { withClient } from './clients.ts'
import { print, printJson, table } from './output.ts'
import { type StoreFlags, withStoreFlags } from './settings.ts'

export function addFleet(program: Command): void {
  const group = program.command('fleet').description('look at the processes that run turns')
  withStoreFlags(group.command('ls'))
    .description('list the processes that show a heartbeat')
    .option('--json', 'one object per line')
    .action(ls)
}

async function ls(flags: StoreFlags & { json?: true }): Promise<void> {
  const processes = await withClient(flags, (client) => client.fleet())
  if (flags.json) return processes.forEach((one) => printJson(one))
  table(processes.map(processCells)).forEach((line) => print(line))
}

export function processCells({
  process,
  host,
  pid,
  kinds,
  version,
  free,
  draining,
  ageMs,
}: ProcessView): string[] {
  return [
    process,
    placeOf({ host, pid }),
    draining ? 'draining' : `${free} free`,
    `version ${version}`,
    ageMs === null ? '-' : `seen ${ageMs} ms ago`,
    kinds.join(','),
  ]
}

/** Where a process runs, as far as it says so. */
export const placeOf = ({ host, pid }: Pick<ProcessView, 'host' | 'pid'>): string =>
  host === null ? '-' : `${host}/${pid}`
