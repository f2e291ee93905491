// The real command line as a process of its own, the way a shell runs it: what it prints, how it ends, what signals do.
// It is bundled once per run, since loading it file by file takes longer than most commands do; test/pack.test.ts runs it
// as it is published.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, rename, symlink } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { afterEach, inject } from 'vitest'
import { bundle, bundled } from '../support/bundle.ts'
import { until } from '../support/eventually.ts'

const MAIN = 'src/cli/main.ts'
/** Which `dev` loads by its place beside the program. */
const DEMO_HANDLER = 'src/cli/demo-handler.ts'

const folder = join(inject('runFolder'), 'program')
const built = join(folder, 'built')
export const PROGRAM = bundled(built, MAIN)

/** Builds the program, unless another file of this run has, or is at it. */
export async function build(): Promise<void> {
  const first = await mkdir(folder).then(
    () => true,
    () => false,
  )
  if (first) {
    const aside = join(folder, 'aside')
    await bundle(aside, [MAIN, DEMO_HANDLER])
    // For the loader of TypeScript.
    await symlink(resolve('node_modules'), join(aside, 'node_modules'))
    await rename(aside, built)
  }
  await until(() => existsSync(PROGRAM), { what: 'the built program', ms: 60_000 })
}

export interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

type Env = Record<string, string | undefined>

const running = new Set<ChildProcess>()

/** Call outside of tests: whatever a failed test left running is ended. */
export function endPrograms(): void {
  afterEach(async () => {
    const left = [...running].map(async (child) => {
      if (child.kill('SIGKILL')) await once(child, 'exit')
    })
    await Promise.all(left)
  })
}

export class Program {
  readonly child: ChildProcess
  readonly ended: Promise<Ended>
  stdout = ''
  stderr = ''

  /** `env` is all that the process gets to know, apart from where programs are. */
  constructor(args: readonly string[], env: Env, { input }: { input?: string } = {}) {
    const { PATH, HOME, TMPDIR } = process.env
    const child = spawn(process.execPath, [PROGRAM, ...args], {
      env: { PATH, HOME, TMPDIR, ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    this.child = child
    running.add(child)
    child.stdout.setEncoding('utf8').on('data', (text: string) => (this.stdout += text))
    child.stderr.setEncoding('utf8').on('data', (text: string) => (this.stderr += text))
    child.stdin.end(input)
    this.ended = once(child, 'close').then(([code, signal]) => {
      running.delete(child)
      const { stdout, stderr } = this
      return { code: code as number | null, signal: signal as NodeJS.Signals | null, stdout, stderr }
    })
  }

  /** Until the program has said this on either stream. */
  async says(text: string): Promise<void> {
    await until(
      () => {
        if (this.stdout.includes(text) || this.stderr.includes(text)) return true
        const { exitCode } = this.child
        if (exitCode !== null)
          throw new Error(`It ended with ${exitCode} before it said "${text}": ${this.stderr}`)
        return false
      },
      { what: `"${text}"`, ms: 30_000 },
    )
  }
}

export const butler = (args: readonly string[], env: Env, options?: { input?: string }): Promise<Ended> =>
  new Program(args, env, options).ended

/** What a command printed with --json. */
export const jsonLines = (stdout: string): Record<string, unknown>[] =>
  stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
