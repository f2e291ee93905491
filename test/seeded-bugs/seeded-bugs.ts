// `npm run seeded-bugs [-- --only WORDS] [--list]`: plants deliberate faults in a copy of the project, one at a time, and
// runs the tests that should notice, each file until its first failure. First the same tests run on the healthy copy, so
// that no fault is "caught" by a test that fails anyway. A full run writes TABLE.md; exit code 1 when a fault went
// unnoticed or no longer applies to the code.
import { writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { Stale } from './bug.ts'
import { bugs } from './bugs.ts'
import { type Finding, toMarkdown } from './table.ts'
import { Workshop } from './workshop.ts'

const { values } = parseArgs({
  options: { only: { type: 'string' }, list: { type: 'boolean', default: false } },
})
const chosen = bugs.filter(({ name, file }) => `${file}: ${name}`.includes(values.only ?? ''))
if (values.list || chosen.length === 0) {
  for (const { name, file } of chosen) console.log(`${file}: ${name}`)
  process.exit(chosen.length === 0 ? 2 : 0)
}

const workshop = await Workshop.open()
const findings: Finding[] = []
let stale = 0
try {
  const flaky = new Set<string>()
  for (const test of new Set(chosen.flatMap(({ noticedBy }) => noticedBy))) {
    let run = await workshop.test(test)
    // Once more: a busy machine is no fault either.
    if (!run.passed) run = await workshop.test(test)
    if (run.passed) continue
    flaky.add(test)
    console.log(`${test} fails without any fault and is left out: ${run.failed.join('; ') || run.output}`)
  }
  for (const [index, bug] of chosen.entries()) {
    const from = performance.now()
    const seconds = () => (performance.now() - from) / 1000
    try {
      const caughtBy = await workshop.withBug(bug, async () => {
        for (const test of bug.noticedBy.filter((name) => !flaky.has(name))) {
          const { passed, failed, output } = await workshop.test(test)
          if (!passed) return { test, title: failed[0] ?? output.split('\n').at(-2) ?? '' }
        }
        return undefined
      })
      findings.push({ bug: bug.name, file: bug.file, caughtBy, seconds: seconds() })
      const place = `${index + 1}/${chosen.length}`
      const verdict = caughtBy ? `caught by ${caughtBy.test} (${caughtBy.title})` : 'NOT CAUGHT'
      console.log(`${place} ${bug.file}: ${bug.name}: ${verdict} ${seconds().toFixed(0)} s`)
    } catch (error) {
      if (!(error instanceof Stale)) throw error
      stale += 1
      console.log(`${bug.file}: ${bug.name}: ${error.message}`)
    }
  }
} finally {
  await workshop.close()
}
const missed = findings.filter(({ caughtBy }) => !caughtBy).length
if (values.only === undefined)
  await writeFile(fileURLToPath(new URL('TABLE.md', import.meta.url)), toMarkdown(findings))
console.log(`${findings.length - missed} of ${chosen.length} faults caught`)
process.exitCode = missed + stale > 0 ? 1 : 0
