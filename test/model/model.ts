/**
 * `npm run model -- [--quick] [--faults 1|2] [--rule NAME] [--json]`: searches every interleaving of the protocol in
 * small worlds, two at a time, then once more with each of its rules taken out, which must be missed. Exit code 1 on a
 * violation, a rule that nothing misses, or a search that could not end.
 */
import { fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { DOUBLE, LEFT_OUT, MISSED_IN, QUICK, SINGLE, SLOW, titleOf } from './configurations.ts'
import { Protocol, RULES, type RuleName } from './rules.ts'
import { type Configuration, type Result, search } from './search.ts'

interface Job {
  readonly configuration: Configuration
  readonly without?: RuleName | undefined
}

/** Each has a core to itself. */
const AT_ONCE = 2

const isRule = (name: string): name is RuleName => Object.hasOwn(RULES, name)

if (process.send) {
  process.on('message', ({ configuration, without }: Job) => {
    process.send?.(search(configuration, new Protocol(without)))
  })
} else await main()

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      faults: { type: 'string', default: '2' },
      rule: { type: 'string' },
      json: { type: 'boolean', default: false },
    },
  })
  const { quick, faults, rule, json } = values
  if (rule !== undefined && !isRule(rule)) {
    console.error(`Unknown rule ${rule}: use ${Object.keys(RULES).join(', ')}.`)
    process.exit(2)
  }
  const worlds = quick ? QUICK : [...QUICK, ...SINGLE, ...(faults === '2' ? DOUBLE : [])]
  const rules = Object.keys(RULES)
    .filter(isRule)
    .filter((name) => (rule === undefined ? !quick || !SLOW.includes(name) : name === rule))
  const jobs: Job[] = [
    ...(rule === undefined ? worlds : []).map((configuration) => ({ configuration })),
    ...rules.map((without) => ({ configuration: MISSED_IN[without], without })),
  ]
  const results = await Promise.all(
    Array.from({ length: AT_ONCE }, () =>
      work(jobs, (job, result) => {
        const line = job.without === undefined ? worldLine(job, result) : ruleLine(job, job.without, result)
        const told = result.found && (job.without === undefined || rule !== undefined) ? story(result) : ''
        console.log(
          json ? JSON.stringify({ ...job, title: titleOf(job.configuration), ...result }) : line + told,
        )
        return result.cut || (result.found === undefined) !== (job.without === undefined)
      }),
    ),
  )
  if (!json && !quick && faults === '2' && rule === undefined) console.log(LEFT_OUT.join('\n'))
  process.exitCode = results.includes(true) ? 1 : 0
}

/** Takes one job after the other; true when one of them went wrong. */
async function work(jobs: Job[], report: (job: Job, result: Result) => boolean): Promise<boolean> {
  const worker = fork(fileURLToPath(import.meta.url))
  let wrong = false
  for (let job = jobs.shift(); job; job = jobs.shift()) {
    const answer = new Promise<Result>((resolve, reject) => {
      worker.once('message', resolve)
      worker.once('exit', (code) => reject(new Error(`the search ended with ${code}`)))
    })
    worker.send(job)
    wrong = report(job, await answer) || wrong
    worker.removeAllListeners()
  }
  worker.disconnect()
  return wrong
}

function worldLine({ configuration }: Job, { found, cut, sweeps, slow, ...size }: Result): string {
  const { states, transitions, depth, seconds } = size
  const outcome = cut
    ? 'NOT SEARCHED TO ITS END'
    : found
      ? `VIOLATION of ${found.invariant}: ${found.message}`
      : `0 violations, every fair run ends${slow ? ' if the loops come after the steps' : ''}, after at most ${sweeps} sweeps`
  return (
    `${titleOf(configuration)}: ${states} states, ${transitions} transitions, depth ${depth}, ` +
    `${seconds.toFixed(1)} s of CPU, ${outcome}`
  )
}

function ruleLine({ configuration }: Job, name: RuleName, { found, states, seconds }: Result): string {
  const title = titleOf(configuration)
  const what = found
    ? `${found.invariant} in ${title} after ${found.story.length} steps, ${seconds.toFixed(1)} s: ${found.message}`
    : `NOT MISSED in ${title}, ${states} states`
  return `without ${name} (${RULES[name]}): ${what}`
}

function story({ found }: Result): string {
  return (found?.story ?? []).map((step, index) => `\n    ${String(index + 1).padStart(2)} ${step}`).join('')
}
