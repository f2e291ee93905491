// The closing line ends a CI run with `N passed, N failed`, so that a script (or a person) need only read the last line.
// Whatever makes vitest exit non-zero counts as failed, not only tests: a file that does not load, a failing hook, an
// error outside any test. Otherwise the line could say "0 failed" under a red run.
import { writeSync } from 'node:fs'
import type { SerializedError } from 'vitest'
import type { Reporter, TestModule } from 'vitest/node'

export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[]): void {
    let passed = 0
    let failed = errors.length
    for (const module of modules) {
      failed += module.errors().length
      for (const suite of module.children.allSuites()) failed += suite.errors().length
      for (const test of module.children.allTests()) {
        if (test.result().state === 'passed') passed += 1
        if (test.result().state === 'failed') failed += 1
      }
    }
    // At exit, because the other reporters and the global teardown still have something to print, and because a red
    // exit may have a reason that is in no test, such as a server that did not start.
    process.once('exit', (code) => {
      if (code !== 0 && failed === 0) failed = 1
      writeSync(1, `${passed} passed, ${failed} failed\n`)
    })
  }
}
