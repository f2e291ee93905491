/** `butler doctor`: which settings won, and whether the two servers are fit for the job. */
import type { Command } from 'commander'
import { type Check, diagnose } from '../index.ts'
import { EXIT, ExitError } from './exits.ts'
import { paint, print, printJson, table } from './output.ts'
import { readSettings, type Settings, type StoreFlags, withoutPassword, withStoreFlags } from './settings.ts'

export function addDoctor(program: Command): void {
  withStoreFlags(program.command('doctor'))
    .description('check both servers; each finding with its fix')
    .option('--json', 'one object per line: the settings, then the checks')
    .action(doctor)
}

async function doctor(flags: StoreFlags & { json?: true }): Promise<void> {
  const settings = readSettings(flags)
  const { redis, mysql, prefix } = settings
  const diagnosis = await diagnose({ redis: redis.value, mysql: mysql.value, prefix: prefix.value })
  const settingRows = rowsOf(settings)
  if (flags.json) {
    for (const [name, value, from] of settingRows) printJson({ setting: name, value, from })
    for (const { name, status, found, fix } of diagnosis.checks)
      printJson({ check: name, status, found, fix })
  } else {
    for (const line of table(settingRows.map(([name, value, from]) => [name, value, `(${from})`])))
      print(line)
    print('')
    diagnosis.checks.forEach(printCheck)
  }
  if (!diagnosis.reachable) throw new ExitError(EXIT.unreachable)
  if (!diagnosis.ok) throw new ExitError(EXIT.failed)
}

const rowsOf = (settings: Settings): [name: string, value: string, from: string][] =>
  (['redis', 'mysql', 'prefix'] as const).map((name) => {
    const { value, from } = settings[name]
    return [name, withoutPassword(value), from]
  })

const COLOURS = { ok: 'green', warn: 'yellow', fail: 'red' } as const

function printCheck({ name, status, found, fix }: Check): void {
  print(`${paint(COLOURS[status], status.padEnd(4))}  ${name.padEnd(26)}  ${found}`)
  if (fix !== null) print(`      ${paint('dim', `→ ${fix}`)}`)
}
