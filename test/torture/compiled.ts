// The tests and sources as JavaScript, made once for a campaign: from there a process starts three times as fast as from
// TypeScript, and a campaign starts hundreds.
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cp, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** Where the folder with the compiled `test` and `src` is. */
export async function compile(folder: string): Promise<string> {
  const target = join(folder, 'code')
  const emit = ['--noEmit', 'false', '--outDir', target, '--declaration', 'false']
  const maps = ['--sourceMap', 'false', '--inlineSources', 'false']
  const tsc = join(ROOT, 'node_modules/.bin/tsc')
  // A test that does not type-check is no reason not to run: what is needed is there all the same.
  const said = await promisify(execFile)(tsc, ['-p', join(ROOT, 'test'), ...emit, ...maps]).catch(
    (error: unknown) => error,
  )
  if (!existsSync(join(target, 'test/torture/producer.js')))
    throw new Error('Nothing was compiled.', { cause: said })
  for (const name of ['node_modules', 'migrations']) await symlink(join(ROOT, name), join(target, name))
  await cp(join(ROOT, 'package.json'), join(target, 'package.json'))
  return target
}
