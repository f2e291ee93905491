// How the tests run. `vitest run` is the fast suite; `vitest run --mode slow` is test/stories-slow and short forms of
// test/torture, test/crash-points, test/stop-races and test/model, which CI runs as programs. Both share one private Redis and one private MySQL-family server, started by test/support/global-setup.ts.
import { configDefaults, defineConfig } from 'vitest/config'

const SLOW = [
  'test/stories-slow/*.test.ts',
  'test/torture/{rest,torture}.test.ts',
  'test/crash-points/crash-points.test.ts',
  'test/model/model.test.ts',
  'test/stop-races/stop-races.test.ts',
]

export default defineConfig(({ mode }) => {
  const slow = mode === 'slow'
  return {
    test: {
      include: slow
        ? [...SLOW, 'test/session/watch.test.ts', 'test/http/{resume,streaming}.test.ts']
        : ['test/**/*.test.ts'],
      exclude: slow ? configDefaults.exclude : [...configDefaults.exclude, ...SLOW],
      globalSetup: ['test/support/global-setup.ts'],
      setupFiles: ['test/support/leak-check.ts'],
      pool: 'forks',
      // Most wait for something most of the time, and the more files at once, the likelier a wait is too short.
      maxWorkers: 4,
      // Files share a process, which saves a third of the run: none of them changes what another one imports.
      isolate: false,
      // As arguments of the test processes rather than NODE_OPTIONS, which every process a test starts would inherit.
      execArgv: ['--unhandled-rejections=strict'],
      testTimeout: slow ? 300_000 : 30_000,
      hookTimeout: 120_000,
      // On a shared machine a process may stand still for seconds. A test that only passes the second time is reported.
      retry: process.env.CI ? 1 : 0,
      reporters: process.env.CI ? ['default', './test/support/closing-line.ts'] : ['default'],
    },
  }
})
