// Decides after a story whether the invariants held, from the database and from what handlers and producers noted down.
// Every message must be final by then; call it last.
//
// I1 accepted = final exactly once, completed = its handler returned and its reply is there · I2 order by commits ·
// I3 epochs, dense entries, no foreign row inside a turn, none behind its end · I4 run again only for a reason, finished
// steps not repeated, one handler call per attempt · I5 nothing starts below a tombstone · I6 one message per key · tool
// calls paired within their attempt.
import { type Entry, type Facts, readFacts, type Session } from './checker-facts.ts'
import type { Line } from './history.ts'

/** An enqueue that returned success. */
export interface AcceptedNote {
  readonly sessionId: string
  readonly seq: number
  readonly id: string
  readonly key?: string | undefined
  /** When the call began and when it returned (`monotonicNs()`); both or neither. */
  readonly from?: number
  readonly to?: number
}

/** A stop that returned. */
export interface StopNote {
  readonly sessionId: string
  readonly through: number
  /** The session's last entry number, read after the stop had returned. */
  readonly head: number
}

export interface Evidence {
  readonly mysqlUrl: string
  readonly history?: readonly Line[]
  readonly accepted?: readonly AcceptedNote[]
  readonly stops?: readonly StopNote[]
  /** No message may have been started twice: there was no reason to. */
  readonly noReruns?: boolean
  /** Messages whose rows somebody deleted: `session seq`. */
  readonly missing?: readonly string[]
}

const FINAL = ['completed', 'stopped', 'failed', 'withdrawn', 'missing']
/** How a message may end that does not run. */
const PASSED_OVER = ['stopped', 'failed', 'withdrawn', 'missing']
const RERUN = ['retrying', 'lost', 'handed_over']

/** What is wrong, in words; empty when nothing is. */
export async function check(evidence: Evidence): Promise<string[]> {
  const facts = await readFacts(evidence.mysqlUrl)
  const { history = [], accepted = [], stops = [], missing = [] } = evidence
  return [
    ...facts.sessions.flatMap((session) => {
      const entries = facts.entries.get(session.id) ?? []
      return [
        ...numbers(session),
        ...finals(session, entries, { ...facts, missing }),
        ...runs(session, entries, history),
        ...order(session, entries),
        ...ownership(session, entries),
        ...reruns(session, entries, evidence.noReruns ?? false),
        ...toolCalls(session, entries),
      ]
    }),
    ...acceptance(accepted, facts),
    ...tombstones(stops, facts),
    ...handlers(history, facts),
    ...strays(facts),
  ]
}

/** No row of a message whose number was never given out. */
function strays({ messages, sessions }: Facts): string[] {
  const known = new Map(sessions.map(({ id, inbox }) => [id, inbox]))
  return [...messages.keys()].flatMap((place) => {
    const [session = '', seq] = place.split(' ')
    const inbox = known.get(session)
    return inbox !== undefined && Number(seq) > inbox
      ? [`${session}: I1: there is a message ${seq}, and ${inbox} was the last number given out`]
      : []
  })
}

function numbers(s: Session): string[] {
  return broken(s.id, [
    [
      s.done !== s.inbox,
      `I1: ${s.inbox - s.done} of ${s.inbox} messages have no final state (done_seq ${s.done})`,
    ],
    [s.running !== null, `I1: message ${s.running} still runs`],
    [s.stop > s.inbox, `I5: stop_seq ${s.stop} is beyond inbox_seq ${s.inbox}`],
    [
      s.inbox === s.done && Number(s.counted) !== 0,
      'I1: something is still counted of a message that is final',
    ],
    [(s.waits === 1) !== s.inbox > s.done, `I8: waiting_since does not say whether there is work`],
  ])
}

function finals(
  s: Session,
  entries: readonly Entry[],
  { messages, missing }: Facts & { missing: readonly string[] },
): string[] {
  const bad: string[] = []
  for (let seq = s.purged + 1; seq <= s.done; seq++) {
    const ends = entries.filter((one) => one.seq === seq && one.type === 'turn_ended' && isFinal(one))
    const outcome = ends[0]?.outcome
    const message = messages.get(`${s.id} ${seq}`)
    const expected = outcome === 'completed' ? null : outcome
    if (ends.length !== 1) bad.push(`I1: message ${seq} has ${ends.length} final states`)
    if (!message && outcome !== 'missing') bad.push(`I1: message ${seq} has no row but ended as ${outcome}`)
    if (outcome === 'missing' && !missing.includes(`${s.id} ${seq}`))
      bad.push(`I1: message ${seq} ended as missing, and nobody had deleted it`)
    if (message && outcome !== 'missing' && message.status !== expected)
      bad.push(`I1: message ${seq} ended as ${outcome} but its status is ${message.status}`)
    const copies = entries.filter((one) => one.seq === seq && one.type === 'message').length
    if (copies !== 1 && outcome !== 'missing')
      bad.push(`I10: message ${seq} is ${copies} times in the transcript`)
  }
  return broken(
    s.id,
    bad.map((text) => [true, text]),
  )
}

/** A completed attempt's handler returned, with a reply, and no other attempt's reply counts. */
function runs(s: Session, entries: readonly Entry[], history: readonly Line[]): string[] {
  const own = history.filter(({ session }) => session === s.id)
  const returned = new Set(
    own.flatMap(({ what, seq, attempt }) => (what === 'end' ? [`${seq}.${attempt}`] : [])),
  )
  return broken(
    s.id,
    entries
      .filter(({ type }) => type === 'turn_ended')
      .flatMap((end): [boolean, string][] => {
        const replies = entries.filter((one) => one.type === 'reply' && name(one) === name(end)).length
        const isCompleted = end.outcome === 'completed'
        return [
          [
            isCompleted && own.length > 0 && !returned.has(name(end)),
            `I1: turn ${name(end)} is completed, but its handler never returned`,
          ],
          [
            history.length > 0 && replies !== (isCompleted ? 1 : 0),
            `I1: turn ${name(end)} ended as ${end.outcome} with ${replies} replies`,
          ],
        ]
      }),
  )
}

function order(s: Session, entries: readonly Entry[]): string[] {
  const bad: string[] = []
  let open: Entry | undefined
  let final = s.purged
  for (const [index, one] of entries.entries()) {
    if (one.type === 'turn_started') {
      if (open) bad.push(`I2: turn ${name(one)} started (entry ${one.entry}) within turn ${name(open)}`)
      if (one.seq !== final + 1)
        bad.push(`I2: turn ${name(one)} started when ${final} was the last final message`)
      open = one
    } else if (one.type === 'turn_ended') {
      if (open && !isSameRun(open, one))
        bad.push(`I2: turn ${name(one)}, epoch ${one.epoch}, ended within turn ${name(open)}`)
      if (!open && (one.seq !== final + 1 || !PASSED_OVER.includes(one.outcome ?? '')))
        bad.push(`I2: turn ${name(one)} ended as ${one.outcome} (entry ${one.entry}), but did not run`)
      open = undefined
      if (isFinal(one)) final = one.seq
    } else if (open && !isSameRun(open, one)) {
      bad.push(`I3: entry ${one.entry} of ${name(one)}, epoch ${one.epoch}, lies within turn ${name(open)}`)
    } else if (!open && !isPassedOver(one, entries[index + 1])) {
      bad.push(`I3: entry ${one.entry} (${one.type}) of ${name(one)} lies outside of any turn`)
    }
  }
  if (open) bad.push(`I1: turn ${name(open)} never ended`)
  return broken(
    s.id,
    bad.map((text) => [true, text]),
  )
}

function ownership(s: Session, entries: readonly Entry[]): string[] {
  return broken(s.id, [
    ...entries.map((one, index): [boolean, string] => [
      one.entry !== s.purgedEntries + index + 1,
      `I3: entry ${one.entry} stands at place ${s.purgedEntries + index + 1}`,
    ]),
    ...entries.map((one, index): [boolean, string] => [
      one.epoch < (entries[index - 1]?.epoch ?? 0),
      `I3: epoch falls from ${entries[index - 1]?.epoch} to ${one.epoch} at entry ${one.entry}`,
    ]),
    [
      s.head !== (entries.at(-1)?.entry ?? s.purgedEntries),
      `I3: entry_seq is ${s.head}, the last entry is not`,
    ],
    [entries.some((one) => one.epoch > s.epoch), `I3: an entry's epoch is beyond the session's`],
  ])
}

function reruns(s: Session, entries: readonly Entry[], none: boolean): string[] {
  const starts = entries.filter((one) => one.type === 'turn_started')
  return broken(
    s.id,
    starts.flatMap((start): [boolean, string][] => {
      const before = entries.filter((one) => one.entry < start.entry && one.seq === start.seq)
      const earlier = before.filter((one) => one.type === 'turn_started').length
      const why = before.filter((one) => one.type === 'turn_ended').at(-1)?.outcome
      return [
        [
          start.attempt !== earlier + 1,
          `I4: attempt ${start.attempt} of message ${start.seq} is its start ${earlier + 1}`,
        ],
        [earlier > 0 && !RERUN.includes(why ?? ''), `I4: message ${start.seq} was run again after ${why}`],
        [none && earlier > 0, `I4: message ${start.seq} was run again after ${why}, without need`],
      ]
    }),
  )
}

function toolCalls(s: Session, entries: readonly Entry[]): string[] {
  const open = new Set<string>()
  const bad: string[] = []
  for (const one of entries) {
    const call = `${one.call} of ${name(one)}`
    if (one.type === 'tool_call') open.add(call)
    if (one.type === 'tool_result' && !open.delete(call)) bad.push(`a result without a call: ${call}`)
    if (one.type === 'turn_ended')
      for (const left of open) bad.push(`an open tool call after its turn: ${left}`)
    if (one.type === 'turn_ended') open.clear()
  }
  return broken(
    s.id,
    bad.map((text) => [true, text]),
  )
}

function acceptance(accepted: readonly AcceptedNote[], { messages, sessions }: Facts): string[] {
  const byKey = new Map<string, AcceptedNote>()
  const known = new Map(sessions.map((session) => [session.id, session]))
  return accepted.flatMap((one) => {
    const session = known.get(one.sessionId)
    const row = messages.get(`${one.sessionId} ${one.seq}`)
    const twin = one.key === undefined ? undefined : byKey.get(`${one.sessionId} ${one.key}`)
    if (one.key !== undefined) byKey.set(`${one.sessionId} ${one.key}`, one)
    const overtaken = accepted.find(
      ({ sessionId, seq, to = Infinity }) =>
        sessionId === one.sessionId && to < (one.from ?? -Infinity) && seq > one.seq && twin === undefined,
    )
    return broken(one.sessionId, [
      [!session || one.seq > session.done, `I1: accepted message ${one.seq} is not final`],
      [
        row !== undefined && row.id !== one.id,
        `I1: message ${one.seq} is ${row?.id}, not the accepted ${one.id}`,
      ],
      [
        twin !== undefined && twin.seq !== one.seq,
        `I6: key ${one.key} is message ${twin?.seq} and ${one.seq}`,
      ],
      [overtaken !== undefined, `I2: message ${one.seq} was sent after ${overtaken?.seq} had been accepted`],
    ])
  })
}

function tombstones(stops: readonly StopNote[], { entries }: Facts): string[] {
  return stops.flatMap(({ sessionId, through, head }) =>
    (entries.get(sessionId) ?? [])
      .filter((one) => one.type === 'turn_started' && one.seq <= through && one.entry > head)
      .map(
        (one) => `${sessionId}: I5: turn ${name(one)} started after a stop through ${through} had returned`,
      ),
  )
}

/** What handlers noted: one call per attempt, and no step that an earlier attempt had finished. */
function handlers(history: readonly Line[], { entries }: Facts): string[] {
  const calls = new Set<string>()
  const effects = new Set<string>()
  return history.flatMap(({ what, session = '', seq = 0, attempt = 0, step }) => {
    if (what === 'start') {
      const call = `${session} ${seq}.${attempt}`
      const again = calls.has(call)
      calls.add(call)
      const started = entries
        .get(session)
        ?.some((one) => one.type === 'turn_started' && one.seq === seq && one.attempt === attempt)
      return broken(session, [
        [again, `I4: the handler was called twice for ${seq}.${attempt}`],
        [!started, `I2: the handler was called for ${seq}.${attempt}, whose start is not in the transcript`],
      ])
    }
    if (what !== 'effect' || step === undefined) return []
    const effect = `${session} ${seq}.${attempt} ${step}`
    const again = effects.has(effect)
    effects.add(effect)
    const stored = entries.get(session)?.find((one) => one.seq === seq && one.step === step)
    const repeated = stored !== undefined && attempt > stored.attempt
    return broken(session, [
      [again, `I4: ${step} of ${seq}.${attempt} took effect twice`],
      [repeated, `I4: attempt ${attempt} of ${seq} repeated ${step}, stored by ${stored?.attempt}`],
    ])
  })
}

/** What a message that does not run leaves behind comes in one commit: itself or an error, and its end. */
const isPassedOver = (one: Entry, next: Entry | undefined) =>
  ['message', 'error'].includes(one.type) && next?.type === 'turn_ended' && isSameRun(one, next)

const isSameRun = (a: Entry, b: Entry) => a.seq === b.seq && a.attempt === b.attempt && a.epoch === b.epoch

const isFinal = ({ outcome = '' }: Entry) => FINAL.includes(outcome)
const name = ({ seq, attempt }: Entry) => `${seq}.${attempt}`

const broken = (session: string, rules: readonly (readonly [boolean, string])[]): string[] =>
  rules.filter(([isBroken]) => isBroken).map(([, text]) => `${session}: ${text}`)
