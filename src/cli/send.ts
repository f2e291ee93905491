/** `butler send`: one message, and on request the transcript of its turn. */
import { text as readAll } from 'node:stream/consumers'
import { type Command, Option } from 'commander'
import { type Accepted, type Client, type MessageSource, NotFoundError, type WhenBusy } from '../index.ts'
import { json } from './arguments.ts'
import { withClient } from './clients.ts'
import { EXIT, ExitError, UsageError } from './exits.ts'
import { entryLine, print } from './output.ts'
import { type StoreFlags, withStoreFlags } from './settings.ts'
import { finalOutcome, follow } from './transcript-follower.ts'

interface SendFlags extends StoreFlags {
  json?: { value: unknown }
  kind?: string
  source?: MessageSource
  key?: string
  whenBusy?: WhenBusy
  follow?: true
}

export function addSend(program: Command): void {
  withStoreFlags(program.command('send'))
    .description('send a message to a session; the session begins with its first one')
    .argument('<session>')
    .argument('[text]', 'the message; - reads it from standard input')
    .option('--json <payload>', 'a JSON payload instead of a text', json)
    .option('--kind <kind>', 'of message; chooses the handler (default message)')
    .addOption(new Option('--source <who>', 'who sends').choices(['user', 'agent', 'automation', 'system']))
    .option('--key <key>', 'idempotency key: repeating the command sends nothing twice')
    .addOption(
      new Option('--when-busy <how>', 'when a turn runs').choices(['enqueue', 'interrupt', 'reject']),
    )
    .option('--follow', "print the message's entries until it is done; exit 1 when it does not complete")
    .action(send)
}

async function send(session: string, text: string | undefined, flags: SendFlags): Promise<void> {
  if ((text === undefined) === (flags.json === undefined))
    throw new UsageError('Give either a text or --json.')
  const payload =
    text === '-' ? (await readAll(process.stdin)).replace(/\r?\n$/, '') : (text ?? flags.json?.value)
  const { kind, source, key: idempotencyKey, whenBusy } = flags
  await withClient(flags, async (client) => {
    const head = flags.follow ? await headOf(client, session) : 0
    const accepted = await client.enqueue(session, { kind, payload }, { source, idempotencyKey, whenBusy })
    print(receipt(session, accepted))
    // A repeated message may be done already; its entries lie anywhere.
    if (flags.follow) await followMessage(client, session, accepted.seq, accepted.duplicate ? 0 : head)
  })
}

export const receipt = (session: string, { seq, id, duplicate, position }: Accepted): string =>
  `${session} seq=${seq} id=${id}${position > 0 ? ` position=${position}` : ''}${duplicate ? ' duplicate' : ''}`

async function headOf(client: Client, session: string): Promise<number> {
  try {
    return (await client.inspect(session)).entrySeq
  } catch (error) {
    if (error instanceof NotFoundError) return 0
    throw error
  }
}

async function followMessage(client: Client, session: string, seq: number, after: number): Promise<void> {
  for await (const entry of follow(client, session, { after })) {
    if (entry.seq !== seq) continue
    print(entryLine(entry))
    const outcome = finalOutcome(entry)
    if (outcome === 'completed') return
    if (outcome !== undefined) throw new ExitError(EXIT.failed, `Message ${seq} ended as ${outcome}.`)
  }
}
