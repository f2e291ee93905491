// A copy of the project in which one thing is broken at a time, and servers of its own for its tests.
import { spawn } from 'node:child_process'
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ensureDatabase, startMysql, startRedis } from '../../src/cli/servers.ts'
import { type Bug, plant } from './bug.ts'

const PROJECT = fileURLToPath(new URL('../..', import.meta.url))
const PARTS = [
  'src',
  'test',
  'migrations',
  'package.json',
  'tsconfig.json',
  'vitest.config.ts',
  'docker-compose.yml',
]

/** What one test file said. */
export interface Run {
  readonly passed: boolean
  /** Titles of the tests that failed. */
  readonly failed: readonly string[]
  readonly output: string
}

export class Workshop {
  readonly #folder: string
  readonly #env: NodeJS.ProcessEnv
  readonly #close: () => Promise<void>

  private constructor(folder: string, env: NodeJS.ProcessEnv, close: () => Promise<void>) {
    this.#folder = folder
    this.#env = env
    this.#close = close
  }

  static async open(): Promise<Workshop> {
    const folder = await mkdtemp(join(tmpdir(), 'butler-bugs-'))
    const servers = await mkdir(join(folder, 'servers'), { recursive: true })
    const [redis, mysql] = await Promise.all([
      startRedis({ folder: servers ?? folder }),
      startMysql({ folder: servers ?? folder }),
    ])
    await ensureDatabase(mysql.url)
    const copy = join(folder, 'project')
    for (const part of PARTS) await cp(join(PROJECT, part), join(copy, part), { recursive: true })
    await symlink(join(PROJECT, 'node_modules'), join(copy, 'node_modules'))
    const env = { ...process.env, CI: '', REDIS_URL: redis.url, MYSQL_URL: mysql.url }
    return new Workshop(copy, env, async () => {
      await Promise.all([redis.stop(), mysql.stop()])
      await rm(folder, { recursive: true, force: true, maxRetries: 10 })
    })
  }

  /** Breaks the copy for as long as `work` takes. */
  async withBug<T>(bug: Bug, work: () => Promise<T>): Promise<T> {
    const file = join(this.#folder, 'src', bug.file)
    const healthy = await readFile(file, 'utf8')
    await writeFile(file, plant(bug, healthy))
    try {
      return await work()
    } finally {
      await writeFile(file, healthy)
    }
  }

  /** Runs one test file, which ends with its first failure. */
  async test(file: string): Promise<Run> {
    const report = join(this.#folder, 'report.json')
    await rm(report, { force: true })
    const vitest = join(PROJECT, 'node_modules', 'vitest', 'vitest.mjs')
    const args = [vitest, 'run', '--bail', '1', '--reporter', 'json', '--outputFile', report, `test/${file}`]
    const child = spawn(process.execPath, args, {
      cwd: this.#folder,
      env: this.#env,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => (output = (output + text).slice(-4000)))
    const code = await new Promise<number | null>((resolve) => child.once('close', resolve))
    const text = await readFile(report, 'utf8').catch(() => '{}')
    const { testResults = [] } = JSON.parse(text) as {
      testResults?: { message: string; assertionResults: { title: string; status: string }[] }[]
    }
    const failed = testResults.flatMap(({ message, assertionResults }) => {
      const titles = assertionResults.filter(({ status }) => status === 'failed').map(({ title }) => title)
      // A hook that fails, or a file that the fault keeps from loading, has no test to name.
      return titles.length > 0 || message === '' ? titles : [message.split('\n')[0] ?? '']
    })
    return { passed: code === 0, failed, output }
  }

  close(): Promise<void> {
    return this.#close()
  }
}
