// The package as a stranger gets it: packed, installed into an empty project, and the first page's program run there.
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { freshDatabase, ownRedis } from './support/services.ts'

const TIMEOUT = 240_000
const exec = promisify(execFile)
let folder: string
let project: string

/** Never rejects: how a program ends is what is looked at. */
async function run(program: string, args: readonly string[], env: Record<string, string> = {}) {
  const { PATH, HOME } = process.env
  const options = { cwd: project, env: { PATH, HOME, ...env } }
  return exec(program, [...args], options).then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    (error: { code: number; stdout: string; stderr: string }) => ({
      code: error.code,
      stdout: error.stdout,
      stderr: error.stderr,
    }),
  )
}

const butler = (...args: string[]) => run(join(project, 'node_modules/.bin/session-butler'), args)

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'butler-pack-'))
  project = join(folder, 'project')
  await mkdir(project)
  await exec('npm', ['pack', '--pack-destination', folder])
  const tarball = (await readdir(folder)).find((name) => name.endsWith('.tgz')) ?? ''
  await writeFile(join(project, 'package.json'), '{ "private": true }\n')
  const install = (...flags: string[]) =>
    exec('npm', ['install', '--no-audit', '--no-fund', ...flags, join(folder, tarball)], { cwd: project })
  await install('--offline').catch(() => install())
}, TIMEOUT)
afterAll(() => rm(folder, { recursive: true }))

describe('the package', () => {
  it("runs the first page's fifteen lines in an empty project", { timeout: TIMEOUT }, async () => {
    const page = await readFile('README.md', 'utf8')
    const [, program = ''] = /^## Fifteen lines\n+```ts\n(.*?)^```/ms.exec(page) ?? []
    expect(program).toContain("from 'session-butler'")
    await writeFile(join(project, 'app.mjs'), program)
    // Of its own, because the program knows no prefix but the default.
    const [redis, database] = await Promise.all([ownRedis(), freshDatabase()])
    const env = { REDIS_URL: redis.url, MYSQL_URL: database.url }
    const { code, stdout, stderr } = await run(process.execPath, ['app.mjs'], env)
    const status = await run(join(project, 'node_modules/.bin/butler'), ['migrate', 'status', '--json'], env)
    await Promise.all([redis.stop(), database.drop()])
    expect(stderr).toBe('')
    expect(stdout).toMatch(/reply "It is 4 °C in Oslo\."\n\d+ turn_ended \{"outcome":"completed"\}\n$/)
    expect(code).toBe(0)
    // The other name of the command, and the migrations that came with the package.
    expect(status.stdout).toMatch(/^\{"name":"0001_sessions","appliedAt":"/)
  })

  it('needs tsx for a handler in TypeScript only, and says how to get it', { timeout: TIMEOUT }, async () => {
    const nowhere = ['--mysql', 'not a url']
    await writeFile(join(project, 'handler.js'), 'exports.handler = async () => {}\n')
    // Loaded, since it is the URL that is wrong.
    expect(await butler('work', 'handler.js', ...nowhere)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('INVALID_OPTIONS: The MySQL URL') as string,
    })
    await writeFile(
      join(project, 'handler.ts'),
      'export const handler = async (turn: object): Promise<void> => {}\n',
    )
    const typed = await butler('work', 'handler.ts', ...nowhere)
    const native = Boolean((process.features as { typescript?: unknown }).typescript)
    expect(typed.stderr).toContain(native ? 'INVALID_OPTIONS' : 'npm install --save-dev tsx')
    expect(typed.code).toBe(2)
  })

  it('contains what it needs and nothing else', async () => {
    const names = await readdir(join(project, 'node_modules/session-butler'))
    const expected = [
      'ARCHITECTURE.md',
      'LICENSE',
      'README.md',
      'dist',
      'docker-compose.yml',
      'migrations',
      'ops',
      'package.json',
    ]
    expect(names.sort()).toEqual(expected)
    expect(await readdir(join(project, 'node_modules'))).not.toContain('tsx')
  })
})
