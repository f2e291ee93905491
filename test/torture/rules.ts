// What the campaign checks beyond test/support/checker.ts, from calls, faults and rows together. A rule says of each case
// that it looks at whether it was broken and whether a fault excused it: how much it judged is part of the report.
import { check } from '../support/checker.ts'
import { readFacts } from '../support/checker-facts.ts'
import type { Line } from '../support/history.ts'
import { codes, deadlines, origins, withdrawals } from './call-rules.ts'
import { ends, leftovers } from './process-rules.ts'
import { callsOf, faultsOf, text, turnsOf } from './record.ts'
import { heard, stopped } from './stop-rules.ts'
import { completions, endings, handOvers, losses, writes } from './turn-rules.ts'
import { lateness, restarts } from './wait-rules.ts'
import { watched } from './watch-rules.ts'
import type { Rule, Times, World } from './world.ts'

export const RULES: readonly Rule[] = [
  origins,
  codes,
  deadlines,
  withdrawals,
  endings,
  completions,
  writes,
  losses,
  handOvers,
  stopped,
  heard,
  lateness,
  restarts,
  ends,
  leftovers,
  watched,
]

/** By rule: how many cases there were, and in how many of them nothing excused anything. */
export type Judged = Readonly<Record<string, { readonly judged: number; readonly of: number }>>

export async function judge(evidence: {
  mysqlUrl: string
  history: readonly Line[]
  times: Times
  wallMs: World['wallMs']
}): Promise<{ problems: string[]; judged: Judged; world: World }> {
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
  const { problems, judged } = applyRules(world)
  return { problems: [...basic, ...problems], judged, world }
}

export function applyRules(world: World): { problems: string[]; judged: Judged } {
  const results = RULES.map((rule) => ({ name: rule.name, cases: rule(world) }))
  return {
    problems: results.flatMap(({ cases }) => cases.flatMap(({ problem = [] }) => problem)),
    judged: Object.fromEntries(
      results.map(({ name, cases }) => {
        const judged = cases.filter(({ excused = false }) => !excused).length
        return [name, { judged, of: cases.length }]
      }),
    ),
  }
}

/** Of several rounds together. */
export function addUp(rounds: readonly Judged[]): Judged {
  const total: Record<string, { judged: number; of: number }> = {}
  for (const round of rounds)
    for (const [name, { judged, of }] of Object.entries(round)) {
      const sum = (total[name] ??= { judged: 0, of: 0 })
      sum.judged += judged
      sum.of += of
    }
  return total
}
