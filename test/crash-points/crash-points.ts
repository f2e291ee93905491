// `npm run crash-points -- [--only LIFE:KIND:N:WHEN,…] [--lives a,b] [--kinds redis,mysql,loops] [--every K] [--lanes N]`: kills the worker at
// every reply it gets from either store in a session's life, just before and just after, and checks what is left.
// `loops` are the replies to heartbeats, roll calls, sweeps and connections; how many come differs from run to run.
// Ends with 1 if a point fails, and says how to run that point alone.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { startMysql, startRedis } from '../../src/cli/servers.ts'
import { isMissed, lifeNames, type Outcome, parsePoint, type Point, runCampaign } from './campaign.ts'
import { type Kind, KINDS } from './tally.ts'

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    lives: { type: 'string', default: lifeNames().join(',') },
    kinds: { type: 'string', default: KINDS.join(',') },
    every: { type: 'string', default: '1' },
    lanes: { type: 'string', default: '3' },
  },
})

function orExit<T>(read: () => T): T {
  try {
    return read()
  } catch (error) {
    console.error((error as Error).message)
    process.exit(2)
  }
}

function number(name: 'every' | 'lanes'): number {
  const value = Number(values[name])
  if (Number.isInteger(value) && value > 0) return value
  throw new Error(`--${name} ${values[name]}: use a whole number from 1 on.`)
}

function assertKnown(what: string, named: readonly string[], known: readonly string[]): void {
  const unknown = named.filter((name) => !known.includes(name))
  if (unknown.length > 0) throw new Error(`Unknown ${what} ${unknown.join(', ')}: use ${known.join(', ')}.`)
}

const [every, lanes] = orExit(() => [number('every'), number('lanes')])
const only = orExit(() => values.only?.split(',').map(parsePoint))
const lives = values.lives.split(',')
const kinds = values.kinds.split(',') as Kind[]
orExit(() => assertKnown('lives', lives, lifeNames()))
orExit(() => assertKnown('kinds', kinds, KINDS))

const live = process.stdout.isTTY
const began = performance.now()
const seconds = () => Math.round((performance.now() - began) / 1000)
const done: Outcome[] = []
const left = new Map<string, number>()
let total = 0

const folder = await mkdtemp(join(tmpdir(), 'butler-crash-points-'))
const starting = [startRedis({ folder }), startMysql({ folder })] as const
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, leave)
try {
  const [{ url: redisUrl }, { url: mysqlUrl }] = await Promise.all(starting)
  await runCampaign({
    redisUrl,
    mysqlUrl,
    parent: folder,
    lanes,
    every,
    lives,
    kinds,
    ...(only ? { only } : {}),
    onLife: ({ name, about }, { redis, mysql, loops }) =>
      console.log(
        `${name.padEnd(12)}${`replies: ${redis} of Redis, ${mysql} of MySQL, ${loops} to loops`.padEnd(52)} ${about}`,
      ),
    onPoints,
    onOutcome,
  })
  process.exitCode = summary()
} finally {
  await cleanUp()
}

/** Whatever fails because its server goes is of no interest any more. */
function leave(): void {
  process.on('uncaughtException', () => undefined)
  void cleanUp().finally(() => process.exit(130))
}

async function cleanUp(): Promise<void> {
  const servers = await Promise.allSettled(starting)
  await Promise.all(
    servers.map(async (server) => (server.status === 'fulfilled' ? server.value.stop() : undefined)),
  )
  await rm(folder, { recursive: true, force: true, maxRetries: 5 })
}

function onPoints(points: readonly Point[]): void {
  total = points.length
  for (const { life } of points) left.set(life, (left.get(life) ?? 0) + 1)
}

function onOutcome(outcome: Outcome): void {
  done.push(outcome)
  const { name, life, point, problems, story, request } = outcome
  if (live) process.stdout.write('\r\u001b[K')
  if (problems.length > 0) {
    console.log(`FAILED ${name}${request ? `, the answer to: ${request}` : ''}`)
    for (const line of [...problems, ...story]) console.log(`  ${line}`)
    if (point) console.log(`  again: npm run crash-points -- --only ${name}`)
  }
  if (!point) return
  const rest = (left.get(life) ?? 1) - 1
  left.set(life, rest)
  const mine = done.filter((one) => one.point && one.life === life)
  if (rest === 0) console.log(`${life.padEnd(12)}${tally(mine)}, ${seconds()} s`)
  else if (live) process.stdout.write(`${seconds()} s: ${played().length} of ${total}, ${name}`)
}

function played(): Outcome[] {
  return done.filter(({ point }) => point !== undefined)
}

function tally(outcomes: readonly Outcome[]): string {
  const killed = outcomes.filter((outcome) => !isMissed(outcome))
  const passed = killed.filter(({ problems }) => problems.length === 0)
  return `${passed.length} of ${killed.length} points pass`
}

function summary(): 0 | 1 {
  const outcomes = played()
  const failed = done.filter(({ problems }) => problems.length > 0)
  const missed = outcomes.filter(isMissed)
  const times = outcomes
    .map(({ finalMs }) => finalMs)
    .filter((ms) => ms > 0)
    .toSorted((a, b) => a - b)
  const at = (part: number) =>
    Math.round(times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? 0)
  console.log(`
from the kill to the end of everything: half within ${at(0.5)} ms, 95 % within ${at(0.95)} ms, longest ${at(1)} ms`)
  if (missed.length > 0)
    console.log(
      `${missed.length} replies did not come again, so nobody was killed: ${missed.map(({ name }) => name).join(', ')}`,
    )
  console.log(`${tally(outcomes)}, ${seconds()} s`)
  if (missed.length === outcomes.length) console.log('Nobody was killed, so nothing was tested.')
  return failed.length > 0 || missed.length === outcomes.length ? 1 : 0
}
