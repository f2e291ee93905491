// What the campaign saw from outside, put together from the lines of its history: calls of producers with their outcome,
// faults with their begin and end, and turns with theirs, from the transcript.
import type { Entry, Facts } from '../support/checker-facts.ts'
import type { Line } from '../support/history.ts'
import type { Fault } from './fault.ts'

export interface Call {
  readonly call: string
  readonly name: string
  readonly session: string
  readonly mark: string | undefined
  readonly key: string | undefined
  readonly whenBusy: string | undefined
  readonly from: number
  /** `pending`: its process was killed before it had an answer. */
  outcome: 'ok' | 'failed' | 'unknown' | 'pending'
  to?: number
  seq?: number
  /** What it answered, or the code of its error. */
  fields: Readonly<Record<string, unknown>>
}

/** A fault from begin to end, in nanoseconds. */
export interface Span {
  readonly name: string
  costs: Fault['costs']
  readonly gentle: boolean
  readonly silences: boolean
  readonly store: string | undefined
  /** The only one whose keys it met. */
  readonly session: string | undefined
  /** Whom it met; on a line, its process may have been replaced meanwhile. */
  readonly processes: Set<string>
  readonly from: number
  to: number
}

export interface Turn {
  readonly session: string
  readonly seq: number
  readonly attempt: number
  readonly process: string
  readonly entry: number
  readonly startedAt: number
  readonly endedAt: number
  readonly outcome: string
  readonly verdict: string | undefined
}

export function callsOf(history: readonly Line[]): Call[] {
  const calls = new Map<string, Call>()
  for (const { what, name = '', session = '', seq, ns, fields = {} } of history) {
    const call = text(fields['call']) ?? ''
    if (what === 'invoked') {
      const [mark, key, whenBusy] = [text(fields['mark']), text(fields['key']), text(fields['whenBusy'])]
      calls.set(call, { call, name, session, mark, key, whenBusy, from: ns, outcome: 'pending', fields })
    } else if (what === 'ok' || what === 'failed' || what === 'unknown') {
      const made = calls.get(call)
      Object.assign(made ?? {}, {
        outcome: what,
        to: ns,
        fields: { ...made?.fields, ...fields },
        ...(seq === undefined ? {} : { seq }),
      })
    }
  }
  return [...calls.values()]
}

export function faultsOf(history: readonly Line[]): Span[] {
  const open = new Map<string, Span>()
  const spans = new Set<Span>()
  const add = (name: string, fields: Readonly<Record<string, unknown>>, from: number, to: number) => {
    const process = text(fields['process'])
    const span: Span = {
      name,
      costs: (fields['costs'] as Span['costs'] | undefined) ?? 'target',
      gentle: fields['gentle'] === true,
      silences: fields['silences'] === true,
      store: text(fields['store']),
      session: text(fields['session']),
      processes: new Set(process === undefined ? [] : [process]),
      from,
      to,
    }
    spans.add(span)
    return span
  }
  for (const { what, name = '', ns, reason, fields = {} } of history) {
    const [id = '', process] = [text(fields['id']), text(fields['process'])]
    const span = open.get(id)
    if (what === 'fault') open.set(id, add(name, fields, ns, Infinity))
    else if (what === 'healed' && span) {
      span.to = ns
      if (process !== undefined && name.startsWith('line-')) span.processes.add(process)
    } else if (what === 'void' && span) {
      // What failed half way may have made somebody wait, but it cost nothing.
      if (reason === undefined) spans.delete(span)
      else Object.assign(span, { to: ns, costs: 'none', silences: false })
    } else if (what === 'ended' && !leftInOrder(name, fields)) add('crash', fields, ns, ns)
    else if (what === 'event' && name === 'worker.stalled')
      add('stall', fields, ns - Number(fields['lagMs']) * 1e6, ns)
  }
  return [...spans]
}

/** A worker that was asked to leave has left. */
export const leftInOrder = (end: string, fields: Readonly<Record<string, unknown>>): boolean =>
  fields['asked'] === 'terminate' && end === '0'

export function turnsOf({ entries }: Facts): Turn[] {
  const turns: Turn[] = []
  for (const [session, list] of entries) {
    let open: Entry | undefined
    for (const one of list) {
      if (one.type === 'turn_started') open = one
      if (one.type !== 'turn_ended' || !open) continue
      turns.push({
        session,
        seq: open.seq,
        attempt: open.attempt,
        process: text(open.payload?.['process']) ?? '',
        entry: open.entry,
        startedAt: open.at,
        endedAt: one.at,
        outcome: one.outcome ?? '',
        verdict: text(one.payload?.['verdict']),
      })
      open = undefined
    }
  }
  return turns
}

/** Notes are read back from a file. */
export const text = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined)

export function groupBy<K, V>(list: Iterable<V>, keyOf: (one: V) => K): Map<K, V[]> {
  const groups = new Map<K, V[]>()
  for (const one of list) {
    const key = keyOf(one)
    const group = groups.get(key)
    if (group) group.push(one)
    else groups.set(key, [one])
  }
  return groups
}
