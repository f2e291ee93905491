// What the campaign checks beyond test/support/checker.ts, from calls, faults and rows together. A rule that a fault may
// excuse asks which faults there were: with none of them about, nobody may lose a turn or wait.
//
// I1 what is there was sent, and once; what was refused is not there · I4 a turn is lost only for a reason, stopped only by
// a stop, failed only by its handler · I5 nothing starts after a stop has returned, and what runs hears of it · I8 nothing
// waits without a reason · I10 errors have codes, failures their error.
import { check } from '../support/checker.ts'
import { type Entry, type Facts, readFacts } from '../support/checker-facts.ts'
import type { Line } from '../support/history.ts'
import { type Call, callsOf, faultsOf, groupBy, type Span, text, type Turn, turnsOf } from './record.ts'

export interface Times {
  readonly ttlMs: number
  readonly sweepMs: number
  readonly lookMs: number
}

export interface World {
  readonly facts: Facts
  readonly history: readonly Line[]
  readonly calls: readonly Call[]
  readonly faults: readonly Span[]
  readonly turns: readonly Turn[]
  readonly times: Times
  /** The database's clock, in milliseconds, at that monotonic nanosecond. */
  readonly wallMs: (ns: number) => number
}

/** A busy machine stands still for so long now and then. */
const SLACK_MS = 3000
/** A frozen process's transaction holds its rows until MariaDB ends it. */
const ROW_LOCK_MS = 10_000
/** Two clocks are read one after the other. */
const CLOCK_MS = 20

export async function judge(evidence: {
  mysqlUrl: string
  history: readonly Line[]
  times: Times
  wallMs: World['wallMs']
}): Promise<{ problems: string[]; world: World }> {
  const { mysqlUrl, history, times, wallMs } = evidence
  const facts = await readFacts(mysqlUrl)
  const [calls, faults, turns] = [callsOf(history), faultsOf(history), turnsOf(facts)]
  const world: World = { facts, history, calls, faults, turns, times, wallMs }
  const accepted = calls.flatMap(({ name, session, outcome, seq, key, from, to, fields }) => {
    if (name !== 'enqueue' || outcome !== 'ok' || seq === undefined || to === undefined) return []
    const note = { sessionId: session, seq, id: text(fields['id']) ?? '', key }
    // A repeat may come long after the message it repeats, whose own call perhaps never had an answer.
    return [fields['duplicate'] === true ? note : { ...note, from, to }]
  })
  const stops = calls.flatMap(({ name, session, outcome, fields: { through, head } }) =>
    name === 'stop' && outcome === 'ok' && head !== undefined
      ? [{ sessionId: session, through: Number(through), head: Number(head) }]
      : [],
  )
  const basic = await check({ mysqlUrl, history, accepted, stops })
  return { problems: [...basic, ...RULES.flatMap((rule) => rule(world))], world }
}

export const answers = ({ calls, history }: World): string[] => [
  ...calls.flatMap(({ session, call, fields: { code } }) =>
    code === 'FOREIGN' || code === 'IDEMPOTENCY_CONFLICT'
      ? [`${session}: I10: call ${call} failed with ${code}`]
      : [],
  ),
  ...history.flatMap(({ what, session, seq, attempt, reason }) => {
    if (what === 'wrote') return [`${session}: I3: turn ${seq}.${attempt} wrote after its signal had fired`]
    return what === 'crashed' ? [`: I10: ${reason}`] : []
  }),
]

export function origins({ facts, calls }: World): string[] {
  const byMark = groupBy(calls, ({ session, mark }) => `${session} ${mark}`)
  const rows = groupBy(facts.messages, ([place, { payload }]) => {
    return `${place.split(' ')[0]} ${(payload as { mark?: string }).mark}`
  })
  const bad: string[] = []
  for (const [name, found] of rows) {
    const [session = '', mark] = name.split(' ')
    const made = byMark.get(name) ?? []
    const seqs = found.map(([place]) => place.split(' ')[1])
    if (found.length > 1) bad.push(`${session}: I6: ${mark} is ${found.length} messages: ${seqs.join(', ')}`)
    if (made.every(({ outcome }) => outcome === 'failed'))
      bad.push(`${session}: I1: message ${seqs[0]} is there although every call for ${mark} was refused`)
    const first = made.filter(({ outcome, fields }) => outcome === 'ok' && fields['duplicate'] === false)
    if (first.length > 1)
      bad.push(`${session}: I6: ${first.length} calls for ${mark} were told that they were the first`)
  }
  for (const { name, session, seq, mark, outcome, call } of calls) {
    if (name !== 'enqueue' || outcome !== 'ok') continue
    const row = facts.messages.get(`${session} ${seq}`)
    if ((row?.payload as { mark?: string } | undefined)?.mark !== mark)
      bad.push(`${session}: I1: call ${call} was told message ${seq}, which is not the one it sent`)
  }
  return bad
}

/** The throwing of an error is in these scripts; for the others only these codes are in order. */
const THROWING = ['fail']
const GIVEN_UP = ['COUNTED_OUT', 'TURN_TIMEOUT']

export function endings({ facts, calls }: World): string[] {
  const bySession = groupBy(calls, ({ session }) => session)
  return [...facts.entries].flatMap(([session, entries]) => {
    const own = bySession.get(session) ?? []
    const made = entries.filter(({ type }) => type === 'turn_ended' || type === 'error')
    return made.flatMap((one, index) => {
      const { seq, outcome } = one
      const script =
        (facts.messages.get(`${session} ${seq}`)?.payload as { do?: string } | undefined)?.do ?? ''
      const say = (what: string) => [`${session}: ${what}`]
      if (one.type === 'error') {
        const code = text(one.payload?.['code']) ?? ''
        const fine = THROWING.includes(script) || GIVEN_UP.includes(code)
        return fine ? [] : say(`I4: message ${seq} (${script}) failed with ${JSON.stringify(one.payload)}`)
      }
      if (outcome === 'missing') return say(`I1: message ${seq} ended as missing`)
      if (outcome === 'stopped' && !own.some((call) => mayStop(call, seq)))
        return say(`I4: message ${seq} was stopped although nobody had asked for it`)
      const taken = own.filter(
        ({ name, fields }) => name === 'withdraw' && Number(fields['seq'] ?? seq) === seq,
      )
      if (outcome === 'withdrawn' && taken.every((call) => call.outcome === 'failed'))
        return say(`I4: message ${seq} was withdrawn although nobody had asked for it`)
      const error = made[index - 1]
      if ((outcome === 'failed' || outcome === 'retrying') && !isErrorOf(error, one))
        return say(`I10: message ${seq} ended as ${outcome} without its error`)
      return []
    })
  })
}

const isErrorOf = (error: Entry | undefined, end: Entry) =>
  error?.type === 'error' && error.seq === end.seq && error.attempt === end.attempt

/** Whether the call may have raised the tombstone over `seq`. */
function mayStop({ name, outcome, seq: own, fields, whenBusy }: Call, seq: number): boolean {
  if (outcome === 'failed') return false
  if (name === 'stop') return outcome !== 'ok' || Number(fields['through']) >= seq
  return name === 'enqueue' && whenBusy === 'interrupt' && (outcome !== 'ok' || (own ?? 0) > seq)
}

export function stopped({ facts, calls, turns, history, faults, times, wallMs }: World): string[] {
  const bySession = groupBy(turns, ({ session }) => session)
  const lines = groupBy(history, ({ session }) => session)
  const boundMs = times.lookMs * 2 + SLACK_MS
  return calls.flatMap(({ name, session, outcome, whenBusy, seq = 0, to = Infinity, fields, call }) => {
    const through = name === 'stop' ? Number(fields['through']) : whenBusy === 'interrupt' ? seq - 1 : 0
    if (outcome !== 'ok' || fields['duplicate'] === true) return []
    const late = (bySession.get(session) ?? [])
      .filter((turn) => turn.seq <= through && turn.startedAt > wallMs(to) + CLOCK_MS)
      .map((turn) => `${session}: I5: turn ${turn.seq}.${turn.attempt} started after ${call} had stopped it`)
    const { running } = fields
    if (name !== 'stop' || typeof running !== 'number') return late
    const until = to + boundMs * 1e6
    const started = lines
      .get(session)
      ?.findLast((line) => line.what === 'start' && line.seq === running && line.ns < to)
    const heard = lines.get(session)?.some(({ what, seq: of, attempt, ns }) => {
      return HEARD.has(what) && of === running && attempt === started?.attempt && ns < until
    })
    const ended = facts.entries
      .get(session)
      ?.some((one) => one.type === 'turn_ended' && one.seq === running && one.at < wallMs(until))
    const excused = faults.some(
      ({ gentle, from, to: end }) => !gentle && from < until && end + times.ttlMs * 1e6 > to,
    )
    if (!started || heard || ended || excused) return late
    return [...late, `${session}: I5: message ${running} had not heard of stop ${call} after ${boundMs} ms`]
  })
}

const HEARD = new Set(['signal', 'end', 'abort', 'threw'])

export function losses({ turns, faults, times, wallMs }: World): string[] {
  const ttlNs = times.ttlMs * 1e6
  return turns.flatMap(({ session, seq, attempt, process, startedAt, endedAt, outcome, verdict }) => {
    if (outcome !== 'lost' && outcome !== 'handed_over') return []
    const about = faults.filter(
      ({ from, to }) => wallMs(from) <= endedAt + CLOCK_MS && wallMs(to + ttlNs) >= startedAt,
    )
    const is = (prefix: string) => about.some(({ name }) => name.startsWith(prefix))
    if (outcome === 'handed_over') {
      const drained = about.some(({ name, processes }) => name === 'worker-drain' && processes.has(process))
      return drained
        ? []
        : [`${session}: I4: turn ${seq}.${attempt} was handed over by ${process}, which did not drain`]
    }
    const excused =
      about.some(
        ({ costs, processes }) => costs === 'all' || (costs === 'target' && processes.has(process)),
      ) ||
      // Neither store confirmed it for a TTL.
      (is('redis-') && is('mysql-')) ||
      // The answer to its start was lost, and its process gave up.
      (verdict === 'orphan' && is('mysql-'))
    return excused
      ? []
      : [`${session}: I4: turn ${seq}.${attempt} was taken from ${process} (${verdict}) without a reason`]
  })
}

export function lateness({ facts, calls, turns, faults, times, wallMs }: World): string[] {
  const boundMs = times.sweepMs * 2 + SLACK_MS
  const recoveryMs = times.ttlMs + times.sweepMs * 2 + ROW_LOCK_MS
  const acceptedAt = new Map<string, number>(
    calls.flatMap(({ name, outcome, session, seq, to }) =>
      name === 'enqueue' && outcome === 'ok' && to !== undefined
        ? [[`${session} ${seq}`, wallMs(to)] as const]
        : [],
    ),
  )
  const ended = new Map<string, number>(
    turns.map(({ session, seq, endedAt }) => [`${session} ${seq}`, endedAt]),
  )
  return [...facts.messages.keys()].flatMap((place) => {
    const [session = '', number] = place.split(' ')
    const seq = Number(number)
    const accepted = acceptedAt.get(place)
    const before = seq === 1 ? 0 : ended.get(`${session} ${seq - 1}`)
    const begun = facts.entries.get(session)?.find((one) => one.seq === seq)?.at
    if (accepted === undefined || before === undefined || begun === undefined) return []
    const since = Math.max(accepted, before)
    const excused = faults.some(
      ({ gentle, from, to }) => !gentle && wallMs(from) <= begun && wallMs(to) + recoveryMs >= since,
    )
    if (excused || begun - since <= boundMs) return []
    return [`${session}: I8: message ${seq} waited ${Math.round(begun - since)} ms without a reason`]
  })
}

export const RULES: readonly ((world: World) => string[])[] = [
  answers,
  origins,
  endings,
  stopped,
  losses,
  lateness,
]
