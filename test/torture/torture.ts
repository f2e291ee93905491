// `npm run torture -- [--minutes N | --faults N] [--workers N] [--seed N] [--kinds a,b,c] [--ttl SECONDS] [--rate N]
// [--through library|http] [--json FILE]`:
// breaks everything there is to break, again and again, while producers send, and checks the invariants after each round.
// Ends with 1 if one did not hold, and says with which seed to see it again; with 130 when it is interrupted, with a report
// about the rounds until then; with 2 when it cannot begin.
import { open } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { type Report, runCampaign } from './campaign.ts'
import { KINDS } from './lanes.ts'
import type { Round } from './round.ts'
import { WAYS } from './way.ts'

function fail(error: unknown): never {
  console.error(error instanceof Error ? error.message : error)
  process.exit(2)
}

function given() {
  try {
    return parseArgs({
      options: {
        minutes: { type: 'string' },
        faults: { type: 'string' },
        workers: { type: 'string', default: '3' },
        seed: { type: 'string', default: String(Math.floor(Math.random() * 1e6)) },
        kinds: { type: 'string', default: KINDS.join(',') },
        ttl: { type: 'string', default: '3' },
        rate: { type: 'string', default: '20' },
        through: { type: 'string', default: 'library' },
        json: { type: 'string' },
      },
    }).values
  } catch (error) {
    return fail(error)
  }
}

const values = given()
const FRACTIONS = ['minutes', 'ttl', 'rate']

function number(
  name: Exclude<keyof typeof values, 'kinds' | 'through' | 'json'>,
  least: number,
): number | undefined {
  const text = values[name]
  if (text === undefined) return undefined
  const value = Number(text)
  const whole = !FRACTIONS.includes(name)
  if (text.trim() !== '' && value >= least && value < Infinity && (!whole || Number.isSafeInteger(value)))
    return value
  return fail(`--${name} ${text}: use a ${whole ? 'whole ' : ''}number from ${least} on.`)
}

const kinds = values.kinds.split(',')
const unknown = kinds.filter((kind) => !KINDS.includes(kind))
if (unknown.length > 0) fail(`Unknown kinds ${unknown.join(', ')}: use ${KINDS.join(', ')}.`)
const through = WAYS.find((way) => way === values.through)
if (!through) fail(`--through ${values.through}: use ${WAYS.join(' or ')}.`)
const [seed = 0, workers = 3, ttl = 3] = [number('seed', 0), number('workers', 1), number('ttl', 1)]
const rate = number('rate', 0.1) ?? 20
const faultsMax = number('faults', 1) ?? Infinity
const minutes = number('minutes', 0) ?? (faultsMax === Infinity ? 10 : 600)

const live = process.stdout.isTTY
const began = performance.now()
const seconds = () => `${Math.round((performance.now() - began) / 1000)} s`
let rounds = 0
const some = kinds.length < KINDS.length ? ` --kinds ${values.kinds}` : ''
const way = through === 'http' ? ' --through http' : ''
const again = ({ seed: of, faults }: Round) =>
  `npm run torture -- --seed ${of} --faults ${Math.max(1, faults)} --ttl ${ttl} --workers ${workers} --rate ${rate}${way}${some}`

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
  if (problems.length > 0) console.log(`again: ${again(round)}`)
}

console.log(
  `seed ${seed}: ${kinds.length} kinds of faults, ${workers} workers, lock TTL ${ttl} s, through ${through}`,
)
const json = values.json === undefined ? undefined : await open(values.json, 'w').catch(fail)
const interrupt = new AbortController()
// A later one ends the process at once. A terminal and the programs in between may each pass on the first.
let interruptedAt = Infinity
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.on(signal, () => {
    if (interrupt.signal.aborted && performance.now() - interruptedAt > 1000) process.exit(130)
    if (interrupt.signal.aborted) return
    interruptedAt = performance.now()
    interrupt.abort()
  })
const report = await runCampaign({
  signal: interrupt.signal,
  seed,
  workers,
  kinds,
  through,
  faultsMax,
  perSecond: rate,
  ttlMs: Math.round(ttl * 1000),
  roundMs: ttl * 20_000,
  forMs: minutes * 60_000,
  onFault: (count) => {
    if (live) process.stdout.write(`\r\u001b[K${seconds()}: round ${rounds + 1}, ${count} faults`)
    else if (count % 100 === 0) console.log(`${seconds()}: ${count} faults`)
  },
  onRound: tell,
})
print(report)
await json?.writeFile(`${JSON.stringify(report, null, 2)}\n`)
process.exit(interrupt.signal.aborted ? 130 : report.violations.length > 0 ? 1 : 0)

function print({
  calls,
  faults,
  takeoverMs,
  handOverMs,
  settledMs,
  watched,
  judged,
  violations,
  ...rest
}: Report): void {
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
watchers    ${watched.watchers} with ${watched.breaks} breaks saw ${watched.entries} entries and ${watched.deltas} deltas
judged      ${Object.entries(judged).map(share).join(', ')}
violations  ${violations.length}`)
  for (const { seed: of, problem } of violations) console.log(`  seed ${of}: ${problem}`)
}

/** How much of what a rule looked at no fault excused. */
function share([rule, { judged, of }]: [string, { judged: number; of: number }]): string {
  return `${rule} ${judged} of ${of}${judged === 0 && of > 0 ? ' (NOTHING)' : ''}`
}
