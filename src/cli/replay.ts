/**
 * `butler replay`: sends recorded conversations through the fleet, follows them to the end and says what happened. The
 * workers run elsewhere; one that is killed on the way must not change the result.
 */
import type { Command } from 'commander'
import { now } from '../base/timing.ts'
import { type Audit, type Client, createClient, openAudit } from '../index.ts'
import { positiveNumber, wholeNumber } from './arguments.ts'
import { EXIT, ExitError, UsageError } from './exits.ts'
import { print, printJson, say } from './output.ts'
import { readRecording, type Recording } from './recording.ts'
import { ReplayFeed, type Sent } from './replay-feed.ts'
import { countProblems, problemLines, type ReplaySummary, spreadOf, summaryLines } from './replay-report.ts'
import { judge, readDoneMs } from './replay-verdict.ts'
import { ReplayWatch } from './replay-watch.ts'
import { connectionsOf, type StoreFlags, withStoreFlags } from './settings.ts'
import { exitCodeFor, onSignal } from './signals.ts'

interface ReplayFlags extends StoreFlags {
  speed?: number
  limit?: number
  check?: true
  prefixId?: string
  json?: true
}

export function addReplay(program: Command): void {
  withStoreFlags(program.command('replay'))
    .description('send recorded conversations, follow them to the end, verify them')
    .argument('<file>', 'lines of {"session", "at" (seconds), "text"}')
    .option('--speed <n>', 'n times as fast as recorded (default: as fast as possible)', positiveNumber)
    .option('--limit <n>', 'only the first n messages', wholeNumber)
    .option('--check', 'compare with the transcript: exit 1 if anything was lost, doubled or out of order')
    .option(
      '--prefix-id <id>',
      "begins the idempotency keys; default: the file's digest, so that a repetition continues",
    )
    .option('--json', 'the summary as one object')
    .action(replay)
}

async function replay(file: string, flags: ReplayFlags): Promise<void> {
  const recording = await readRecording(file, flags.limit)
  if (recording.messages.length === 0) throw new UsageError(`${file} has no messages.`)
  const connections = connectionsOf(flags)
  const interrupt = new AbortController()
  onSignal((signal) => interrupt.abort(exitCodeFor(signal)))
  const client = createClient(connections)
  const audit = openAudit(connections.mysql)
  try {
    const summary = await run(recording, flags, { client, audit, signal: interrupt.signal })
    if (flags.json) printJson(summary)
    else summaryLines(summary).forEach((line) => print(line))
    problemLines(summary.problems).forEach((line) => say(line))
    if (interrupt.signal.aborted) {
      say('Interrupted: repeat the command to go on where this one ended.')
      throw new ExitError(interrupt.signal.reason as number)
    }
    if (!summary.ok) throw new ExitError(EXIT.failed)
  } finally {
    interrupt.abort()
    await Promise.all([client.close(), audit.close()])
  }
}

async function run(
  { messages, digest }: Recording,
  flags: ReplayFlags,
  { client, audit, signal }: { client: Client; audit: Audit; signal: AbortSignal },
): Promise<ReplaySummary> {
  const start = now()
  const bySession = new Map<string, Sent[]>()
  const progress = new ProgressLine(messages.length)
  const watch: ReplayWatch = new ReplayWatch({
    client,
    onLook: () => progress.show(watch.sent, watch.done),
    onStall: () => {
      progress.clear()
      say('Nothing happened for 30 s. Are workers running? Start one: npx session-butler work ./handler.js')
    },
  })
  const feed = new ReplayFeed({
    client,
    keyPrefix: flags.prefixId ?? digest,
    speed: flags.speed,
    signal,
    onSent: (sent) => {
      watch.add(sent)
      const before = bySession.get(sent.session)
      if (before) before.push(sent)
      else bySession.set(sent.session, [sent])
    },
  })
  await watch.untilDone(feed.send(messages), signal)
  const seconds = Math.round(now() - start) / 1000
  progress.clear()
  const complete = !signal.aborted && watch.done === messages.length
  const checked = flags.check === true && complete
  const problems = checked ? await judge(client, bySession) : []
  return {
    ok: complete && problems.length === 0,
    checked,
    messages: messages.length,
    sessions: new Set(messages.map(({ session }) => session)).size,
    accepted: watch.sent,
    duplicates: feed.duplicates,
    done: watch.done,
    counts: countProblems(problems),
    seconds,
    messagesPerSecond: Math.round(watch.done / seconds),
    ackMs: spreadOf(feed.ackMs),
    doneMs: signal.aborted ? null : spreadOf(await readDoneMs(audit, bySession)),
    problems,
  }
}

/** One line that is written over itself, on a terminal only. */
class ProgressLine {
  readonly #total: number
  readonly #startedAt = now()

  constructor(total: number) {
    this.#total = total
  }

  show(sent: number, done: number): void {
    if (!process.stderr.isTTY) return
    const rate = Math.round((done * 1000) / Math.max(1, now() - this.#startedAt))
    process.stderr.write(`\r\u001b[Ksent ${sent}/${this.#total}  done ${done}/${this.#total}  ${rate}/s`)
  }

  clear(): void {
    if (process.stderr.isTTY) process.stderr.write('\r\u001b[K')
  }
}
