#!/usr/bin/env node
/**
 * The command line. Only this: which commands there are, and how a command that fails ends the process. Each command has
 * its own file.
 */
import { readFileSync } from 'node:fs'
import { Command } from 'commander'
import { addDev } from './dev.ts'
import { addDoctor } from './doctor.ts'
import { describeFailure, exitCodeOf } from './exits.ts'
import { addExplain } from './explain.ts'
import { addFleet } from './fleet.ts'
import { addKeys } from './keys.ts'
import { addMigrate } from './migrate.ts'
import { addOpenapi } from './openapi.ts'
import { leaveOnBrokenPipe, say } from './output.ts'
import { addPrune } from './prune.ts'
import { addReplay } from './replay.ts'
import { addSend } from './send.ts'
import { addSessions } from './sessions.ts'
import { addServe } from './serve.ts'
import { addWork } from './work.ts'

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string
}

const program = new Command('butler')
  .description('One butler per conversation: distributed session actors on Redis and MySQL.')
  .version(version)
  .showHelpAfterError('(--help tells more)')
  .exitOverride()

const COMMANDS = [
  addDev,
  addMigrate,
  addWork,
  addServe,
  addSend,
  addSessions,
  addExplain,
  addFleet,
  addKeys,
  addOpenapi,
  addPrune,
  addReplay,
  addDoctor,
]
for (const add of COMMANDS) add(program)

leaveOnBrokenPipe()
try {
  await program.parseAsync()
} catch (error) {
  const told = describeFailure(error, /--log-level[= ]debug\b/.test(process.argv.join(' ')))
  if (told !== undefined) say(told)
  process.exitCode = exitCodeOf(error)
}
