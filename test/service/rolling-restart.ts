// `npm run rolling-restart [-- --sessions 50 --messages 20]`: see restart.ts. Ends with 1 when something was not as promised,
// with 2 for a wrong option.
import { wholeOptions } from '../support/whole-options.ts'
import { rollingRestart } from './restart.ts'

const { sessions, messages, watchers, pace } = wholeOptions({
  sessions: { default: 50, least: 1 },
  messages: { default: 20, least: 1 },
  /** Of each session. */
  watchers: { default: 1, least: 0 },
  /** Milliseconds between two messages of a session, on average. */
  pace: { default: 600, least: 0 },
})
const { problems, ...report } = await rollingRestart({
  sessions,
  messages,
  watchersPerSession: watchers,
  paceMs: pace,
  say: (line) => console.log(line),
})
for (const [name, value] of Object.entries(report)) console.log(name.padEnd(16), String(value))
console.log('problems'.padEnd(16), problems.length)
for (const problem of problems.slice(0, 20)) console.log(`  ${problem}`)
process.exitCode = problems.length === 0 ? 0 : 1
