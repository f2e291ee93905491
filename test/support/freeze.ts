// Freezes a server or a process for certain.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import type { Server } from '../../src/cli/servers.ts'
import { until } from './eventually.ts'

/**
 * Freezes a server of our own until `kill('SIGCONT')`. A signal reaches the threads of a process one after the other, so
 * on a busy machine a server still answers after SIGSTOP was sent.
 */
export async function freeze(server: Server | undefined): Promise<void> {
  server?.kill('SIGSTOP')
  const threads = `/proc/${server?.pid}/task`
  if (!existsSync(threads)) return
  const stateOf = (thread: string) =>
    /.*\) (.)/s.exec(readFileSync(`${threads}/${thread}/stat`, 'latin1'))?.[1]
  await until(() => readdirSync(threads).every((thread) => stateOf(thread) === 'T'), { what: 'the freeze' })
}
