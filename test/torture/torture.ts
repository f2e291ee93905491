// `npm run torture -- [--minutes N | --faults N] [--workers N] [--seed N] [--kinds a,b,c] [--ttl SECONDS] [--rate N] [--json FILE]`:
// breaks everything there is to break, again and again, while producers send, and checks the invariants after each round.
// Ends with 1 if one did not hold, and says with which seed to see it again.
import { writeFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { type Report, runCampaign } from './campaign.ts'
import { KINDS } from './lanes.ts'
import type { Round } from './round.ts'

const { values } = parseArgs({
  options: {
    minutes: { type: 'string' },
    faults: { type: 'string' },
    workers: { type: 'string', default: '3' },
    seed: { type: 'string', default: String(Math.floor(Math.random() * 1e6)) },
    kinds: { type: 'string', default: KINDS.join(',') },
    ttl: { type: 'string', default: '3' },
    rate: { type: 'string', default: '20' },
    json: { type: 'string' },
  },
})

function number(name: Exclude<keyof typeof values, 'kinds' | 'json'>, least: number): number | undefined {
  const text = values[name]
  if (text === undefined) return undefined
  const value = Number(text)
  if (value >= least) return value
  return fail(`--${name} ${text}: use a number from ${least} on.`)
}

function fail(text: string): never {
  console.error(text)
  process.exit(2)
}

const kinds = values.kinds.split(',')
const unknown = kinds.filter((kind) => !KINDS.includes(kind))
if (unknown.length > 0) fail(`Unknown kinds ${unknown.join(', ')}: use ${KINDS.join(', ')}.`)
const [seed = 0, workers = 3, ttl = 3] = [number('seed', 0), number('workers', 1), number('ttl', 1)]
const rate = number('rate', 0.1) ?? 20
const faultsMax = number('faults', 1) ?? Infinity
const minutes = number('minutes', 0) ?? (faultsMax === Infinity ? 10 : 600)

const live = process.stdout.isTTY
const began = performance.now()
const seconds = () => `${Math.round((performance.now() - began) / 1000)} s`
let rounds = 0
const some = kinds.length < KINDS.length ? ` --kinds ${values.kinds}` : ''
const again = (of: number) =>
  `npm run torture -- --seed ${of} --faults 100 --ttl ${ttl} --workers ${workers} --rate ${rate}${some}`

function tell(round: Round): void {
  rounds += 1
  if (live) process.stdout.write('\r\u001b[K')
  const { messages, turns, settledMs, problems, tales } = round
  const verdict = problems.length === 0 ? 'all held' : `${problems.length} VIOLATIONS`
  console.log(
    `${seconds()}: round ${rounds}, seed ${round.seed}: ${messages} messages, ${turns} turns, ` +
      `final ${settledMs} ms after the last fault, ${verdict}`,
  )
  for (const tale of tales) console.log(tale)
  if (problems.length > 0) console.log(`again: ${again(round.seed)}`)
}

console.log(`seed ${seed}: ${kinds.length} kinds of faults, ${workers} workers, lock TTL ${ttl} s`)
const report = await runCampaign({
  seed,
  workers,
  kinds,
  faultsMax,
  perSecond: rate,
  ttlMs: ttl * 1000,
  roundMs: ttl * 20_000,
  forMs: minutes * 60_000,
  onFault: (count) => {
    if (live) process.stdout.write(`\r\u001b[K${seconds()}: round ${rounds + 1}, ${count} faults`)
    else if (count % 100 === 0) console.log(`${seconds()}: ${count} faults`)
  },
  onRound: tell,
})
print(report)
if (values.json !== undefined) await writeFile(values.json, `${JSON.stringify(report, null, 2)}\n`)
process.exit(report.violations.length > 0 ? 1 : 0)

function print({ calls, faults, takeoverMs, handOverMs, settledMs, violations, ...rest }: Report): void {
  const total = Object.values(faults).reduce((sum, count) => sum + count, 0)
  const list = (counts: Readonly<Record<string, number>>) =>
    Object.entries(counts)
      .map(([name, count]) => `${name} ${count}`)
      .join(', ')
  const times = ({ count, p50, p95, max }: Report['takeoverMs']) =>
    `${count}, half within ${p50} ms, 95 % within ${p95} ms, longest ${max} ms`
  console.log(`
${rest.rounds} rounds in ${rest.seconds} s: ${rest.messages} messages, ${rest.turns} turns, ${total} faults of ${Object.keys(faults).length} kinds
faults      ${list(faults)}
calls       ${list(calls)}
takeovers   ${times(takeoverMs)} after the kill
hand-overs  ${times(handOverMs)}
all final   ${times(settledMs)} after the last fault
violations  ${violations.length}`)
  for (const { seed: of, problem } of violations) console.log(`  seed ${of}: ${problem}`)
}
