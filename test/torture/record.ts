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
  readonly costs: Fault['costs']
  readonly gentle: boolean
  readonly store: string | undefined
  /** Whom it met; a process may have been replaced meanwhile. */
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
  const spans: Span[] = []
  for (const { what, name = '', ns, fields = {} } of history) {
    const [id = '', process] = [text(fields['id']), text(fields['process'])]
    if (what === 'fault') {
      const crash = name === 'crash'
      const span: Span = {
        name,
        costs: crash ? 'target' : (fields['costs'] as Span['costs']),
        gentle: fields['gentle'] === true,
        store: text(fields['store']),
        processes: new Set(),
        from: ns,
        to: crash ? ns : Infinity,
      }
      if (!crash) open.set(id, span)
      spans.push(span)
      if (process !== undefined) span.processes.add(process)
    } else if (what === 'healed') {
      const span = open.get(id)
      if (span) span.to = ns
      if (process !== undefined) span?.processes.add(process)
    } else if (what === 'event' && name === 'worker.stalled') {
      const lagNs = Number(fields['lagMs']) * 1e6
      const processes = new Set(process === undefined ? [] : [process])
      spans.push({
        name: 'stall',
        costs: 'target',
        gentle: false,
        store: undefined,
        processes,
        from: ns - lagNs,
        to: ns,
      })
    }
  }
  return spans
}

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
