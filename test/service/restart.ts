// A rolling restart under load: producers send and watchers watch through HTTP while one server after the other is told to
// leave and is replaced. Nothing is lost, doubled or reordered, and each watcher sees each entry once, in order.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Entry } from '../../src/index.ts'
import { until } from '../support/eventually.ts'
import type { Order } from './handler.ts'
import { type Served, Serving } from './serving.ts'
import { follow } from './stream.ts'

export interface RestartOptions {
  readonly sessions: number
  readonly messages: number
  readonly watchersPerSession: number
  /** Pause of a producer between two messages. */
  readonly paceMs: number
  readonly say: (line: string) => void
}

export interface RestartReport {
  readonly accepted: number
  readonly repeated: number
  readonly handedOver: number
  /** From a turn's end as handed over to its next start, by the database's clock; the longest. */
  readonly handOverGapMs: number
  readonly breaks: number
  readonly entriesSeen: number
  readonly drainMs: readonly number[]
  readonly problems: string[]
}

interface Sending {
  readonly seqs: number[]
  repeated: number
}

export async function rollingRestart(options: RestartOptions): Promise<RestartReport> {
  const { sessions, messages, watchersPerSession, paceMs, say } = options
  const serving = await Serving.begin()
  const over = new AbortController()
  try {
    const { key } = serving
    const servers: Served[] = [await serving.start(), await serving.start(), await serving.start()]
    const urls = () => servers.map(({ url }) => url)
    const ids = Array.from({ length: sessions }, (_, index) => `tenant:${index}`)
    const sendings = ids.map((): Sending => ({ seqs: [], repeated: 0 }))
    const problems: string[] = []

    const send = async (session: string, number: number, sending: Sending) => {
      // Some turns take longer than the grace, so that they are handed over.
      const order: Order = { mark: `m${number}`, ms: number % 5 === 0 ? 2500 : 20 }
      for (let attempt = 0; ; attempt++) {
        const url = urls()[Math.floor(Math.random() * servers.length)]!
        try {
          const response = await fetch(`${url}/v1/sessions/${session}/messages`, {
            method: 'POST',
            headers: {
              authorization: `Bearer ${key}`,
              'content-type': 'application/json',
              'idempotency-key': order.mark,
            },
            body: JSON.stringify({ payload: order }),
          })
          const body = (await response.json()) as { seq: number; code?: string }
          if (response.status === 202) return void sending.seqs.push(body.seq)
          if (response.status !== 503)
            return void problems.push(`${session}: ${response.status} ${body.code}`)
        } catch {
          // A connection that broke: the same message again, elsewhere.
        }
        sending.repeated += 1
        if (attempt > 300) return void problems.push(`${session}: ${order.mark} was never accepted`)
        await sleep(50)
      }
    }
    const produce = async (session: string, sending: Sending) => {
      for (let number = 1; number <= messages; number++) {
        await send(session, number, sending)
        await sleep(paceMs * (0.5 + Math.random()))
      }
    }

    let breaks = 0
    const seen = ids.map(() => Array.from({ length: watchersPerSession }, () => [] as number[]))
    const watchers = ids.flatMap((session, index) =>
      seen[index]!.map(async (entries) => {
        const where = { session, key, signal: over.signal }
        for await (const { event, value } of follow(urls, where, () => (breaks += 1)))
          if (event === 'entry') entries.push((value as { entry: Entry }).entry.entry)
      }),
    )
    const producing = Promise.all(ids.map((session, index) => produce(session, sendings[index]!)))
    const drainMs: number[] = []
    for (const index of servers.keys()) {
      await sleep(1500)
      const { served, ms, end } = await serving.replace(servers[index]!)
      servers[index] = served
      drainMs.push(ms)
      say(`server ${index + 1} was replaced: it left after ${ms} ms with ${end}`)
      if (end !== 0) problems.push(`server ${index + 1} ended with ${end}`)
    }
    await producing
    const transcripts = await Promise.all(ids.map((session) => settled(urls()[0]!, key, session, messages)))
    const heads = transcripts.map((entries) => entries.length)
    const isThere = () => seen.every((all, index) => all.every((entries) => entries.length >= heads[index]!))
    // Whoever is behind even then is named below.
    await until(isThere, { ms: 30_000 }).catch(() => undefined)
    over.abort()
    await Promise.all(watchers)

    let [handedOver, handOverGapMs] = [0, 0]
    for (const [index, session] of ids.entries()) {
      const entries = transcripts[index]!
      problems.push(...judge(session, entries, sendings[index]!.seqs, messages))
      for (const numbers of seen[index]!) {
        const wrong = numbers.findIndex((number, at) => number !== at + 1)
        if (wrong !== -1 || numbers.length !== entries.length)
          problems.push(
            `${session}: a watcher saw ${numbers.length} of ${entries.length} entries, wrong at ${wrong}`,
          )
      }
      const gaps = gapsOf(entries)
      handedOver += gaps.handedOver
      handOverGapMs = Math.max(handOverGapMs, gaps.handOverGapMs)
    }
    return {
      accepted: sendings.reduce((sum, { seqs }) => sum + seqs.length, 0),
      repeated: sendings.reduce((sum, { repeated }) => sum + repeated, 0),
      handedOver,
      handOverGapMs,
      breaks,
      entriesSeen: seen.flat().reduce((sum, numbers) => sum + numbers.length, 0),
      drainMs,
      problems,
    }
  } finally {
    over.abort()
    await serving.close()
  }
}

/** The whole transcript once every message has its end. */
async function settled(url: string, key: string, session: string, messages: number): Promise<Entry[]> {
  const headers = { authorization: `Bearer ${key}` }
  const get = async (path: string) =>
    (await fetch(`${url}/v1/sessions/${session}${path}`, { headers })).json() as Promise<
      Record<string, unknown>
    >
  // What has no end even then is named by the judge.
  await until(async () => (await get(''))['doneSeq'] === messages, { ms: 60_000 }).catch(() => undefined)
  const all: Entry[] = []
  for (let after = 0; ; after = all.length) {
    const { entries } = (await get(`/entries?after=${after}&limit=1000`)) as unknown as { entries: Entry[] }
    all.push(...entries)
    if (entries.length < 1000) return all
  }
}

/** What must be true of a transcript, whatever was done to the servers. */
export function judge(
  session: string,
  entries: readonly Entry[],
  seqs: readonly number[],
  messages: number,
): string[] {
  const problems: string[] = []
  const expect = (what: string, is: unknown, should: unknown) => {
    if (JSON.stringify(is) !== JSON.stringify(should))
      problems.push(`${session}: ${what}: ${JSON.stringify(is)}, not ${JSON.stringify(should)}`)
  }
  const numbers = Array.from({ length: messages }, (_, index) => index + 1)
  const marks = numbers.map((number) => `m${number}`)
  const outcome = ({ payload }: Entry) => (payload as { outcome: string }).outcome
  expect('numbers given', seqs, numbers)
  expect(
    'entries',
    entries.map(({ entry }) => entry),
    entries.map((_, index) => index + 1),
  )
  const sent = entries.filter(({ type }) => type === 'message')
  expect(
    'messages',
    sent.map(({ payload }) => (payload as unknown as { payload: Order }).payload.mark),
    marks,
  )
  expect(
    'replies',
    entries.filter(({ type }) => type === 'reply').map(({ payload }) => payload),
    marks,
  )
  const completed = entries.filter((one) => one.type === 'turn_ended' && outcome(one) === 'completed')
  expect(
    'completed',
    completed.map(({ seq }) => seq),
    numbers,
  )
  const starts = entries.filter(({ type }) => type === 'turn_started')
  expect(
    'order of starts',
    starts.map(({ seq }) => seq),
    starts.map(({ seq }) => seq).toSorted((a, b) => a - b),
  )
  for (const end of entries.filter(({ type }) => type === 'turn_ended'))
    if (!['completed', 'handed_over'].includes(outcome(end)))
      problems.push(`${session}: turn ${end.seq} ended as ${outcome(end)}`)
  return problems
}

function gapsOf(entries: readonly Entry[]) {
  let [handedOver, handOverGapMs] = [0, 0]
  let end: Entry | undefined
  for (const entry of entries) {
    if (entry.type === 'turn_ended') end = entry
    if (entry.type !== 'turn_started' || end?.seq !== entry.seq) continue
    handedOver += 1
    handOverGapMs = Math.max(handOverGapMs, Date.parse(entry.createdAt) - Date.parse(end.createdAt))
  }
  return { handedOver, handOverGapMs }
}
