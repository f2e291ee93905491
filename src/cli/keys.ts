/** `butler keys`: who may use the HTTP API. */
import { type Command, Option } from 'commander'
import { type Keyring, openKeyring, type Scope } from '../index.ts'
import { duration } from './arguments.ts'
import { print, printJson, table } from './output.ts'
import { readSettings, type StoreFlags, withStoreFlags } from './settings.ts'

const SCOPES = ['produce', 'watch', 'stop', 'admin']

export function addKeys(program: Command): void {
  const group = program.command('keys').description('make, list and revoke keys of the HTTP API')
  const command = (name: string, does: string) =>
    withStoreFlags(group.command(name)).description(does).option('--json', 'one object per line')
  command('create', 'make a key; its secret is shown this once')
    .requiredOption('--name <name>', 'for people')
    .addOption(new Option('--scope <scope...>', 'what it is good for').choices(SCOPES).makeOptionMandatory())
    .option('--tenant <tenant...>', 'only sessions whose id begins with this and a colon (default: all)')
    .option('--expires-in <age>', 'such as 30d', duration)
    .action(create)
  command('ls', 'list keys, oldest first').action(ls)
  withStoreFlags(group.command('revoke'))
    .description('refuse a key from now on, everywhere within seconds')
    .argument('<key>', 'its id, or the whole secret as it was found')
    .action(revoke)
}

type Flags<More = object> = StoreFlags & { json?: true } & More

async function create(
  flags: Flags<{ name: string; scope: Scope[]; tenant?: string[]; expiresIn?: number }>,
): Promise<void> {
  const { name, scope, tenant, expiresIn } = flags
  const options = { name, scopes: scope, tenants: tenant, expiresInMs: expiresIn }
  const key = await withKeyring(flags, (keyring) => keyring.create(options))
  if (flags.json) return printJson(key)
  print(key.secret)
}

async function ls(flags: Flags): Promise<void> {
  const keys = await withKeyring(flags, (keyring) => keyring.list())
  if (flags.json) return keys.forEach((key) => printJson(key))
  const rows = keys.map(({ id, name, scopes, tenants, expiresAt, revokedAt, usedAt }) => [
    id,
    name,
    scopes.join(','),
    tenants === 'all' ? 'all tenants' : tenants.join(','),
    revokedAt === null ? (expiresAt === null ? 'valid' : `until ${expiresAt}`) : `revoked ${revokedAt}`,
    usedAt === null ? 'never used' : `used ${usedAt}`,
  ])
  table(rows).forEach((line) => print(line))
}

async function revoke(key: string, flags: Flags): Promise<void> {
  await withKeyring(flags, (keyring) => keyring.revoke(key))
  // A secret is never printed, but its id may be: bk_id_…
  print(`${key.split('_')[1] ?? key} revoked`)
}

async function withKeyring<T>(flags: StoreFlags, use: (keyring: Keyring) => Promise<T>): Promise<T> {
  const keyring = openKeyring(readSettings(flags).mysql.value)
  try {
    return await use(keyring)
  } finally {
    await keyring.close()
  }
}
