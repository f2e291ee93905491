// Made-up histories for the tests of the rules: calls, faults and transcripts of one session, in seconds.
import type { Entry, Message, Session } from '../support/checker-facts.ts'
import type { Line } from '../support/history.ts'
import { callsOf, faultsOf, turnsOf } from './record.ts'
import type { Rule, World } from './world.ts'

export const SECOND = 1e9
export const rig = { pid: 1, process: 'rig' }

/** A call that begins at second `at` and returns a tenth later. */
export function call(id: string, at: number, outcome: string, more: Partial<Line> = {}): Line[] {
  const { name = 'enqueue', fields, ...rest } = more
  const [invoked, result] = [{ ...fields }, { ...fields }]
  for (const answer of ['through', 'running', 'head', 'id', 'duplicate', 'code']) delete invoked[answer]
  const about = { ...rig, session: 'chat', name }
  return [
    { ...about, what: 'invoked', ns: at * SECOND, fields: { ...invoked, call: id } },
    { ...about, ...rest, what: outcome, ns: (at + 0.1) * SECOND, fields: { ...result, call: id } },
  ]
}

export const sent = (mark: string, at: number, seq: number, more: Record<string, unknown> = {}) =>
  call(mark, at, 'ok', { seq, fields: { mark, id: `m-${seq}`, duplicate: false, ...more } })

export function fault(name: string, from: number, to: number, fields: Record<string, unknown> = {}): Line[] {
  const about = { ...rig, name, fields: { id: name, costs: 'none', gentle: false, ...fields } }
  return [
    { ...about, what: 'fault', ns: from * SECOND },
    { ...about, what: 'healed', ns: to * SECOND },
  ]
}

const payloads: Record<string, Entry['payload']> = { turn_started: { process: 'P' } }

/** An entry at second `at`; its number is its place. */
export const entry = (
  seq: number,
  attempt: number,
  at: number,
  type: string,
  payload = payloads[type],
): Entry => ({
  session: 'chat',
  entry: 0,
  seq,
  epoch: 1,
  attempt,
  type,
  step: null,
  call: null,
  payload,
  text: JSON.stringify(payload ?? null),
  outcome: payload?.['outcome'] as string | undefined,
  at: at * 1000,
})

export const turn = (
  seq: number,
  attempt: number,
  from: number,
  to: number,
  end: Record<string, unknown>,
): Entry[] => [
  entry(seq, attempt, from, 'turn_started'),
  ...(end === COMPLETED ? [entry(seq, attempt, to, 'reply')] : []),
  entry(seq, attempt, to, 'turn_ended', end),
]

/** What a handler says of a turn at second `at`. */
export const line = (what: string, seq: number, attempt: number, at: number): Line => ({
  ...rig,
  process: 'P',
  session: 'chat',
  what,
  seq,
  attempt,
  ns: at * SECOND,
})

export const COMPLETED = { outcome: 'completed' }

export function world({
  history,
  entries,
  scripts,
}: {
  history: Line[]
  entries: Entry[]
  /** What each message does, by its mark, in the order of their numbers. */
  scripts: readonly (readonly [mark: string, script: string, times?: number])[]
}): World {
  const messages = new Map(
    scripts.map(([mark, script, times], index): [string, Message] => [
      `chat ${index + 1}`,
      { id: `m-${index + 1}`, status: null, payload: { do: script, mark, times }, at: 10_000 },
    ]),
  )
  const numbered = entries.map((one, index) => ({ ...one, entry: index + 1 }))
  const facts = { sessions: [] as Session[], entries: new Map([['chat', numbered]]), messages }
  return {
    facts,
    history,
    calls: callsOf(history),
    faults: faultsOf(history),
    turns: turnsOf(facts),
    times: { ttlMs: 3000, sweepMs: 500, lookMs: 500, enqueueMs: 4000, mysqlMs: 2500, turnTimeoutMs: 8000 },
    wallMs: (ns) => ns / 1e6,
  }
}

/** One message that is sent at second 10 and completed from 10.2 to 10.3. */
export const good = {
  history: [...sent('a', 10, 1), line('end', 1, 1, 10.3)],
  entries: turn(1, 1, 10.2, 10.3, COMPLETED),
  scripts: [['a', 'echo']] as const,
}

export const problemsOf = (rule: Rule) => (about: World) => rule(about).flatMap(({ problem = [] }) => problem)
