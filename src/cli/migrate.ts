/** `butler migrate`: the tables. */
import type { Command } from 'commander'
import { migrate, migrationStatus } from '../index.ts'
import { print, printJson, table } from './output.ts'
import { connectionsOf, type StoreFlags, withStoreFlags } from './settings.ts'

export function addMigrate(program: Command): void {
  const group = program.command('migrate').description('create and update the tables')
  withStoreFlags(group.command('up'))
    .description('apply what is pending; safe to run from many processes at once')
    .action(up)
  withStoreFlags(group.command('status'))
    .description('list the migrations and when they were applied')
    .option('--json', 'one object per line')
    .action(status)
}

async function up(flags: StoreFlags): Promise<void> {
  const { applied } = await migrate(connectionsOf(flags).mysql)
  print(applied.length > 0 ? `applied ${applied.join(', ')}` : 'nothing to apply: the tables are up to date')
}

async function status(flags: StoreFlags & { json?: true }): Promise<void> {
  const migrations = await migrationStatus(connectionsOf(flags).mysql)
  if (flags.json) return migrations.forEach((migration) => printJson(migration))
  table(migrations.map(({ name, appliedAt }) => [name, appliedAt?.toISOString() ?? 'pending'])).forEach(
    (line) => print(line),
  )
}
