// `npm run rolling-restart [-- --sessions 50 --messages 20]`: see restart.ts. Ends with 1 when something was not as promised.
import { parseArgs } from 'node:util'
import { rollingRestart } from './restart.ts'

const { values } = parseArgs({
  options: {
    sessions: { type: 'string', default: '50' },
    messages: { type: 'string', default: '20' },
    watchers: { type: 'string', default: '1' },
    pace: { type: 'string', default: '600' },
  },
})
const { problems, ...report } = await rollingRestart({
  sessions: Number(values.sessions),
  messages: Number(values.messages),
  watchersPerSession: Number(values.watchers),
  paceMs: Number(values.pace),
  say: (line) => console.log(line),
})
for (const [name, value] of Object.entries(report)) console.log(name.padEnd(16), String(value))
console.log('problems'.padEnd(16), problems.length)
for (const problem of problems.slice(0, 20)) console.log(`  ${problem}`)
process.exitCode = problems.length === 0 ? 0 : 1
