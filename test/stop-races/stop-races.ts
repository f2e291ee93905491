// `npm run stop-races -- [--races N] [--seed N] [--workers N] [--lanes N]`: stops sessions at random moments while messages
// are sent, claimed, run and sent again and while processes die and leave, and judges each race from outside. Ends with 1
// when something ran although it was stopped, was stopped although nobody had, or a receipt was wrong; with 2 for a wrong
// option. A seed gives the same calls, not the same moments.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ensureDatabase, startMysql, startRedis } from '../../src/cli/servers.ts'
import { bundle } from '../support/bundle.ts'
import { PROBE_WORKER } from '../support/fleet.ts'
import { wholeOptions } from '../support/whole-options.ts'
import { type Report, runCampaign } from './campaign.ts'
import { RULES } from './judge.ts'

const STORIES_MAX = 5
/** In so many races everything that can come of a stop does. */
const MANY = 1000
/** The share of races that may be left out because a call of theirs was not answered in time. */
const UNKNOWN_MAX = 0.01
const EXPECTED = ['never-started', 'aborted', 'fenced', 'already-done', 'stopping', 'idle']

const given = wholeOptions({
  races: { default: 10_000, least: 1 },
  seed: { default: Math.floor(Math.random() * 1e6), least: 0 },
  // One that is killed must leave somebody who notices.
  workers: { default: 3, least: 2 },
  lanes: { default: 300, least: 1 },
})
const folder = await mkdtemp(join(tmpdir(), 'butler-stop-races-'))
const code = join(folder, 'code')
const starting = [startRedis({ folder }), startMysql({ folder })] as const
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    // Whatever fails because its server goes is of no interest any more.
    process.on('uncaughtException', () => undefined)
    void cleanUp().finally(() => process.exit(130))
  })
try {
  const [[redis, mysql]] = await Promise.all([Promise.all(starting), bundle(code, [PROBE_WORKER])])
  await ensureDatabase(mysql.url)
  console.log(
    `seed ${given.seed}: ${given.races} races on ${given.workers} worker processes, ${given.lanes} at a time`,
  )
  const began = performance.now()
  let told = 0
  const report = await runCampaign({
    ...given,
    redisUrl: redis.url,
    mysqlUrl: mysql.url,
    parent: folder,
    code,
    onJudged: (judged) => {
      if (judged - told < given.races / 10) return
      told = judged
      console.log(`${Math.round((performance.now() - began) / 1000)} s: ${judged} races judged`)
    },
  })
  process.exitCode = print(report)
} finally {
  await cleanUp()
}

async function cleanUp(): Promise<void> {
  const servers = await Promise.allSettled(starting)
  await Promise.all(servers.map(async (one) => (one.status === 'fulfilled' ? one.value.stop() : undefined)))
  await rm(folder, { recursive: true, force: true, maxRetries: 5 })
}

function print(report: Report): 0 | 1 {
  const { races, messages, turns, stops, interrupts, refused, outcomes, violations } = report
  const of = (rule: string) => violations.filter((one) => one.rule === rule).length
  const missing = EXPECTED.filter((outcome) => !outcomes[outcome])
  const idle = races >= MANY ? missing.map((outcome) => `no stop was answered with ${outcome}`) : []
  const blind = report.unknown > races * UNKNOWN_MAX ? ['too many calls were not answered'] : []
  const silent = stops === 0 || report.kills + report.drains === 0 ? ['nothing was raced with'] : []
  const list = Object.entries(outcomes).map(([outcome, count]) => `${outcome} ${count}`)
  console.log(`
${races} races in as many sessions, in ${report.seconds} s: ${messages} messages, ${turns} turns
stops        ${stops} and ${interrupts} interrupts; ${refused} more were refused; ${report.unknown} races left out, a call of theirs was not answered
outcomes     ${list.join(', ')}
crashes      ${report.kills} processes killed, ${report.lost} turns lost
hand-overs   ${report.drains} processes sent away, ${report.handedOver} turns handed over
violations   ${Object.keys(RULES)
    .map((rule) => `${rule} ${of(rule)}`)
    .join(', ')}`)
  for (const { session, rule, problem, story } of violations.slice(0, STORIES_MAX))
    console.log([`\n${session}: ${rule}: ${problem}`, ...story].join('\n  '))
  const doubts = [...idle, ...blind, ...silent]
  for (const problem of doubts) console.log(`DOUBT: ${problem}`)
  if (violations.length > 0)
    console.log(`\nagain: npm run stop-races -- --seed ${given.seed} --races ${races}`)
  return violations.length + doubts.length > 0 ? 1 : 0
}
