/** `butler explain`: why a session does not move, and what would make it. */
import type { Command } from 'commander'
import type { EntryView, Explanation } from '../index.ts'
import { withClient } from './clients.ts'
import { placeOf, processCells } from './fleet.ts'
import { paint, print, printJson, table } from './output.ts'
import { type StoreFlags, withStoreFlags } from './settings.ts'

export function addExplain(program: Command): void {
  withStoreFlags(program.command('explain'))
    .description('why a session does not move, and what would make it')
    .argument('<session>')
    .option('--json', 'one object')
    .action(explain)
}

async function explain(session: string, flags: StoreFlags & { json?: true }): Promise<void> {
  const explanation = await withClient(flags, (client) => client.explain(session))
  if (flags.json) return printJson(explanation)
  const { code, why, unblocks } = explanation.verdict
  print(`${session} ${paint(code === 'idle' || code === 'running' ? 'green' : 'yellow', code)}`)
  print(why)
  print(`${paint('dim', '→')} ${unblocks}`)
  print('')
  table(rowsOf(explanation)).forEach((line) => print(line))
}

/** A fact a line; what there are several of has its name on the first. */
function rowsOf({
  session,
  owner,
  lock,
  queue,
  turn,
  attempts,
  transitions,
  processes,
}: Explanation): string[][] {
  return [
    ['state', `${session.state}, ${session.doneSeq}/${session.inboxSeq} done, epoch ${session.epoch}`],
    ['owner', owner ? ownerWords(owner) : 'nobody'],
    ['lock', lock ? lockWords(lock) : 'unknown: Redis does not answer'],
    ...(turn ? turnRows(turn) : []),
    ...(attempts ? [['attempts', attemptWords(attempts)]] : []),
    ['waiting', String(queue.waiting)],
    ...named(
      'queue',
      queue.first.map(
        ({ seq, kind, version, ageMs }) => `${seq} ${kind} version ${version}, ${ageMs} ms old`,
      ),
    ),
    ...named(
      'history',
      transitions.map(
        ({ at, seq, attempt, outcome }) => `${at} ${seq}, attempt ${attempt}: ${outcome ?? 'started'}`,
      ),
    ),
    ...named('can run it', processes === null ? ['unknown'] : table(processes.map(processCells))),
  ]
}

const named = (name: string, lines: readonly string[]): string[][] =>
  lines.map((line, index) => [index === 0 ? name : '', line])

const words = (...list: (string | false)[]): string => list.filter((word) => word !== false).join(', ')

function ownerWords({ process, alive, draining, host, pid }: NonNullable<Explanation['owner']>): string {
  const life = alive === null ? 'alive or not: unknown' : alive ? 'alive' : 'no sign of life'
  return words(`${process}`, life, draining === true && 'draining', host !== null && placeOf({ host, pid }))
}

function lockWords({ kind, process, ofOwner, leftMs }: NonNullable<Explanation['lock']>): string {
  if (kind === 'none' || kind === 'unreadable') return kind
  const whose = process === null ? 'no token of a process' : `of ${process}`
  return words(
    `${kind} ${whose}`,
    !ofOwner && 'not the owner’s',
    leftMs === null ? 'without an end' : `${leftMs} ms left`,
  )
}

function turnRows({
  seq,
  attempt,
  since,
  ageMs,
  lastEntry,
  lastStep,
}: NonNullable<Explanation['turn']>): string[][] {
  const entryWords = ({ entry, type, stepKey, ageMs: age }: EntryView) =>
    words(`${entry} ${stepKey === null ? type : `${type} ${stepKey}`}`, `${age} ms ago`)
  return [
    ['turn', words(`message ${seq}`, `attempt ${attempt}`, since !== null && `since ${since} (${ageMs} ms)`)],
    ...named('last entry', lastEntry ? [entryWords(lastEntry)] : []),
    ...named('last step', lastStep ? [entryWords(lastStep)] : []),
  ]
}

function attemptWords(of: NonNullable<Explanation['attempts']>): string {
  const { seq, starts, failures, crashes, handovers, found, stopped, suspect, retryAt } = of
  return words(
    `message ${seq}`,
    `${starts} starts`,
    `${failures} failures`,
    `${crashes} crashes`,
    `${handovers} hand-overs`,
    !found && 'its row is missing',
    stopped && 'stopped',
    suspect && 'a suspect',
    retryAt !== null && `not before ${retryAt}`,
  )
}
