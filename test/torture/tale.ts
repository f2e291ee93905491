// The smallest story of a violation: the entries, lines and calls of its session around the message that it names, and
// the faults of that time, in one order.
import type { World } from './world.ts'

const LINES_MAX = 120
/** Messages before and after the named one. */
const AROUND = 1

export function taleOf(problem: string, { facts, history, calls, faults, wallMs }: World): string {
  const session = problem.slice(0, problem.indexOf(':'))
  const named = /(?:message|turn) (\d+)/.exec(problem)?.[1]
  const isNear = (seq: number | undefined) =>
    named === undefined || seq === undefined || Math.abs(seq - Number(named)) <= AROUND
  const told: { at: number; text: string }[] = []
  for (const one of facts.entries.get(session) ?? []) {
    if (!isNear(one.seq)) continue
    const payload = one.payload === undefined ? '' : ` ${JSON.stringify(one.payload)}`
    const text = `entry ${one.entry}: ${one.seq}.${one.attempt} epoch ${one.epoch} ${one.type}${payload}`
    told.push({ at: one.at, text })
  }
  for (const { what, session: of, seq, attempt, process, name, reason, fields, ns } of history) {
    if (
      session === '' ||
      (of ?? fields?.['session']) !== session ||
      !isNear(seq ?? (fields?.['seq'] as number))
    )
      continue
    if (['invoked', 'ok', 'failed', 'unknown'].includes(what)) continue
    // Of watchers only who is meant: the others are given the same.
    if (['watches', 'saw', 'broke'].includes(what) && !problem.includes(`watcher ${name} `)) continue
    const more = [name, reason, fields && JSON.stringify(fields)]
      .filter((part) => part !== undefined)
      .join(' ')
    told.push({ at: wallMs(ns), text: `${process} ${what} ${seq ?? ''}.${attempt ?? ''} ${more}` })
  }
  for (const { call, name, session: of, seq, mark, from, to, outcome, fields } of calls) {
    if (of !== session || !isNear(seq)) continue
    // What was refused and names no message is seldom the reason.
    if (outcome === 'failed' && named !== undefined && !problem.includes(String(mark))) continue
    const text = `${call} ${name} ${outcome} ${JSON.stringify(fields)}, from ${Math.round(wallMs(from))}`
    told.push({ at: wallMs(to ?? from), text })
  }
  told.sort((a, b) => a.at - b.at)
  const [first, last] = [told[0]?.at ?? 0, told.at(-1)?.at ?? Infinity]
  for (const { name, store = '', processes, from, to } of faults) {
    if (wallMs(from) > last || wallMs(to) < first) continue
    const text = `fault ${name} ${store} ${[...processes].join(' ')} for ${Math.round((to - from) / 1e6)} ms`
    told.push({ at: wallMs(from), text })
  }
  told.sort((a, b) => a.at - b.at)
  const line = ({ at, text }: { at: number; text: string }) =>
    `  ${new Date(at).toISOString().slice(11, 23)}  ${text}`
  return [problem, ...told.slice(-LINES_MAX).map(line)].join('\n')
}
