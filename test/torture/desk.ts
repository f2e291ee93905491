// A client process of the campaign and where it works: the process changes, its lines stay.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { bundled } from '../support/bundle.ts'
import type { Line } from './line-faults.ts'

export interface Desk {
  readonly name: string
  readonly lines: readonly Line[]
  child: ChildProcess
  generation: number
}

export const PRODUCER = 'test/torture/producer.ts'
export const WATCHERS = 'test/torture/watchers.ts'

/** Resolves when it is ready (or gone). `onCrash` hears of an end that nobody caused, with the end of its log. */
export async function startClient(
  code: string,
  program: string,
  options: object,
  onCrash: (reason: string) => void,
): Promise<ChildProcess> {
  const args = ['--unhandled-rejections=strict', bundled(code, program), JSON.stringify(options)]
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'pipe'] })
  child.stdin.on('error', () => undefined)
  let log = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (log = (log + text).slice(-4000)))
  child.once('exit', (exit, signal) => {
    const wanted = exit === 0 || signal === 'SIGKILL'
    if (!wanted) onCrash(`${program} ended ${signal ?? exit}: ${log}`)
  })
  await Promise.race([once(child.stdout, 'data'), once(child, 'exit')])
  return child
}

export const hasEnded = ({ child }: Desk): boolean => child.exitCode !== null || child.signalCode !== null
