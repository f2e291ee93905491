/**
 * `npm run model -- [--quick] [--faults 1|2] [--rule NAME] [--json]`: searches every interleaving of the protocol in
 * small worlds, then once more with each of its rules taken out, which must be missed. Exit code 1 on a violation, a
 * rule that nothing misses, or a search that could not end.
 */
import { parseArgs } from 'node:util'
import { DOUBLE, MISSED_IN, QUICK, SINGLE, SLOW, titleOf } from './configurations.ts'
import { Protocol, RULES, type RuleName } from './rules.ts'
import { type Result, search } from './search.ts'

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    faults: { type: 'string', default: '2' },
    rule: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
})
const isRule = (name: string): name is RuleName => Object.hasOwn(RULES, name)
const { rule } = values
if (rule !== undefined && !isRule(rule)) {
  console.error(`Unknown rule ${rule}: use ${Object.keys(RULES).join(', ')}.`)
  process.exit(2)
}
const configurations = values.quick ? QUICK : [...QUICK, ...SINGLE, ...(values.faults === '2' ? DOUBLE : [])]
let wrong = 0

function print(what: Record<string, unknown>, line: string): void {
  console.log(values.json ? JSON.stringify(what) : line)
}

function story({ found }: Result): string {
  return (found?.story ?? []).map((step, index) => `\n    ${String(index + 1).padStart(2)} ${step}`).join('')
}

for (const configuration of rule === undefined ? configurations : []) {
  const result = search(configuration, new Protocol())
  const { states, transitions, depth, seconds, sweeps, found, cut } = result
  if (found || cut) wrong += 1
  const title = titleOf(configuration)
  const outcome = cut
    ? 'NOT SEARCHED TO ITS END'
    : found
      ? `VIOLATION of ${found.invariant}: ${found.message}`
      : ''
  print(
    { configuration: title, ...result, violations: found ? 1 : 0 },
    `${title}: ${states} states, ${transitions} transitions, depth ${depth}, ${seconds.toFixed(1)} s of CPU, ` +
      (outcome ? outcome + story(result) : `0 violations, at most ${sweeps} sweeps to wait for`),
  )
}

for (const name of Object.keys(RULES).filter(isRule)) {
  if (rule !== undefined ? name !== rule : values.quick && SLOW.includes(name)) continue
  const configuration = MISSED_IN[name]
  const result = search(configuration, new Protocol(name))
  const { found, states, seconds } = result
  if (!found) wrong += 1
  const title = titleOf(configuration)
  print(
    { rule: name, configuration: title, ...result },
    `without ${name} (${RULES[name]}): ` +
      (found
        ? `${found.invariant} in ${title} after ${found.story.length} steps, ${seconds.toFixed(1)} s: ${found.message}`
        : `NOT MISSED in ${title}, ${states} states`) +
      (rule === undefined ? '' : story(result)),
  )
}
process.exitCode = wrong > 0 ? 1 : 0
