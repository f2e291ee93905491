/** `butler sessions`: look at sessions and do to them what a person may do. */
import { type Command, Option } from 'commander'
import type { StopReceipt, StopResult } from '../index.ts'
import { positiveNumber, seqOrRunning, wholeNumber } from './arguments.ts'
import { withClient } from './clients.ts'
import { EXIT, ExitError, UsageError } from './exits.ts'
import {
  entryLine,
  fieldLines,
  print,
  printJson,
  sessionCells,
  sessionLines,
  short,
  table,
} from './output.ts'
import { receipt } from './send.ts'
import { type StoreFlags, withStoreFlags } from './settings.ts'
import { exitCodeFor, onSignal } from './signals.ts'
import { follow } from './transcript-follower.ts'

type Flags<More = object> = StoreFlags & { json?: true } & More
type State = 'running' | 'waiting' | 'idle'

export function addSessions(program: Command): void {
  const group = program.command('sessions').description('look at sessions, stop and retry messages')
  const read = (name: string, does: string) =>
    withStoreFlags(group.command(name)).description(does).option('--json', 'one object per line')
  const act = (name: string, does: string) => withStoreFlags(group.command(name)).description(does)
  const page = (command: Command) => command.option('--limit <n>', '1 to 1000 (default 100)', wholeNumber)

  page(read('ls', 'list sessions by id'))
    .addOption(new Option('--state <state>', 'only these').choices(['running', 'waiting', 'idle']))
    .option('--after <id>', 'go on after this session')
    .action(ls)
  read('show', 'where a session stands').argument('<session>').action(show)
  page(read('queue', 'messages that wait, oldest first'))
    .argument('<session>')
    .option('--after <seq>', 'go on after this message', wholeNumber)
    .action(queue)
  read('tail', 'print the transcript and follow it')
    .argument('<session>')
    .option('--after <entry>', 'begin after this entry', wholeNumber)
    .option('--no-follow', 'end at the present end')
    .action(tail)
  read('cursor', 'how far a reader is; with --read or --ack it says so itself, and only moves on')
    .argument('<session>')
    .argument('<reader>')
    .option('--read <cursor>', 'everything up to here was seen')
    .option('--ack <cursor>', 'everything up to here was dealt with')
    .action(cursor)
  read('stop', 'stop what runs and what waits')
    .argument('<session>')
    .option('--through <seq>', 'only up to this message', wholeNumber)
    .option('--turn <seq|running>', 'only the turn of this message; what waits behind it stays', seqOrRunning)
    .option('--wait <seconds>', 'until it is quiet; exit 1 when it is not by then', positiveNumber)
    .action(stop)
  act('retry', 'send a failed or stopped message again')
    .argument('<session>')
    .argument('<seq>', 'number of the message', wholeNumber)
    .action(retry)
  act('withdraw', 'take back a message that has not started')
    .argument('<session>')
    .argument('<seq>', 'number of the message', wholeNumber)
    .action(withdraw)
  act('delete', 'delete a session with its transcript')
    .argument('<session>')
    .option('--yes', 'really')
    .action(erase)
}

async function ls(flags: Flags<{ state?: State; after?: string; limit?: number }>): Promise<void> {
  const { state, after, limit } = flags
  const page = {
    ...(state && { state }),
    ...(after !== undefined && { after }),
    ...(limit !== undefined && { limit }),
  }
  const sessions = await withClient(flags, (client) => client.sessions(page))
  if (flags.json) return sessions.forEach((session) => printJson(session))
  table(sessions.map(sessionCells)).forEach((line) => print(line))
}

async function show(session: string, flags: Flags): Promise<void> {
  const view = await withClient(flags, (client) => client.inspect(session))
  if (flags.json) return printJson(view)
  sessionLines(view).forEach((line) => print(line))
}

async function queue(session: string, flags: Flags<{ after?: number; limit?: number }>): Promise<void> {
  const { after, limit } = flags
  const page = { ...(after !== undefined && { after }), ...(limit !== undefined && { limit }) }
  const messages = await withClient(flags, (client) => client.queue(session, page))
  if (flags.json) return messages.forEach((message) => printJson(message))
  const rows = messages.map(({ seq, createdAt, kind, source, payload }) => {
    return [String(seq), createdAt, kind, source, short(payload)]
  })
  table(rows).forEach((line) => print(line))
}

async function tail(session: string, flags: Flags<{ after?: number; follow: boolean }>): Promise<void> {
  if (flags.follow) onSignal((signal) => process.exit(exitCodeFor(signal)))
  await withClient(flags, async (client) => {
    for await (const entry of follow(client, session, { after: flags.after, once: !flags.follow })) {
      if (flags.json) printJson(entry)
      else print(entryLine(entry))
    }
  })
}

async function cursor(
  session: string,
  reader: string,
  { read, ack, ...flags }: Flags<{ read?: string; ack?: string }>,
): Promise<void> {
  const move = { read, acknowledged: ack }
  const position = await withClient(flags, (client) =>
    read === undefined && ack === undefined
      ? client.cursor(session, reader)
      : client.moveCursor(session, reader, move),
  )
  if (flags.json) return printJson(position)
  fieldLines(position).forEach((line) => print(line))
}

async function stop(
  session: string,
  flags: Flags<{ through?: number; turn?: number | 'running'; wait?: number }>,
): Promise<void> {
  const { through, turn, wait } = flags
  const options = { through, turn, waitMs: wait && Math.ceil(wait * 1000) }
  const receipt = await withClient(flags, (client) => client.stop(session, options))
  if (flags.json) printJson(receipt)
  else print(`${session} stopped through=${receipt.through}: ${describe(receipt)}`)
  if (wait && !receipt.quiet) throw new ExitError(EXIT.failed, `It is not quiet after ${wait} s.`)
}

function describe({ outcomes }: StopReceipt): string {
  const seqsOf = (kind: StopResult) =>
    outcomes.filter(({ outcome }) => outcome === kind).map(({ seq }) => seq)
  const [waiting, done] = [seqsOf('never-started').length, seqsOf('already-done')]
  const words = [
    ...seqsOf('stopping').map((seq) => `message ${seq} is being stopped`),
    ...seqsOf('aborted').map((seq) => `message ${seq} was aborted`),
    ...seqsOf('fenced').map((seq) => `message ${seq} was cut off`),
  ]
  if (words.length === 0) words.push('no turn was running')
  if (waiting > 0) words.push(`${waiting} waiting will not start`)
  if (done.length > 0) words.push(`${done.length === 1 ? `message ${done[0]}` : done.length} already done`)
  return words.join(', ')
}

async function retry(session: string, seq: number, flags: Flags): Promise<void> {
  print(receipt(session, await withClient(flags, (client) => client.retry(session, seq))))
}

async function withdraw(session: string, seq: number, flags: Flags): Promise<void> {
  await withClient(flags, (client) => client.withdraw(session, seq))
  print(`${session} seq=${seq} withdrawn`)
}

async function erase(session: string, flags: Flags<{ yes?: true }>): Promise<void> {
  if (!flags.yes) throw new UsageError(`This deletes ${session} with its transcript: repeat it with --yes.`)
  await withClient(flags, (client) => client.delete(session))
  print(`${session} deleted`)
}
