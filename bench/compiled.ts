/**
 * The processes under measurement run compiled, as they do for users: the loader that runs TypeScript directly adds work
 * to every closure, a tenth of a worker's time per message.
 */
import { execFile } from 'node:child_process'
import { cp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
/** Within the project, so that packages are found from there. */
const OUT = join(ROOT, 'node_modules', '.cache', 'butler-bench')

/** Compiles the project; answers where the program of a measured process is. */
export async function compileProcess(): Promise<string> {
  await rm(OUT, { recursive: true, force: true })
  const tsc = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc')
  const options = ['-p', join(ROOT, 'bench'), '--noEmit', 'false', '--declaration', 'false', '--outDir', OUT]
  await promisify(execFile)(process.execPath, [tsc, ...options])
  await cp(join(ROOT, 'migrations'), join(OUT, 'migrations'), { recursive: true })
  return join(OUT, 'bench', 'process.js')
}
