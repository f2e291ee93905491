import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { lockFolder } from '../../src/cli/folder-lock.ts'
import { loadHandlers } from '../../src/cli/handler-module.ts'
import { createClient, migrate, type Client } from '../../src/index.ts'
import { eventually } from '../support/eventually.ts'
import { freshDatabase, freshPrefix, services } from '../support/services.ts'
import { build, butler, endPrograms, Program } from './program.ts'

const { redisUrl } = services()
const TIMEOUT = 90_000
let database: Awaited<ReturnType<typeof freshDatabase>>
let folder: string
let env: Record<string, string>
let client: Client

beforeAll(async () => {
  await build()
  folder = await mkdtemp(join(tmpdir(), 'butler-work-'))
  database = await freshDatabase()
  await migrate(database.url)
}, TIMEOUT)

afterAll(async () => {
  await database.drop()
  await rm(folder, { recursive: true })
})

// A prefix of its own, so that a worker of one test never hears of another's sessions.
beforeEach(() => {
  const prefix = freshPrefix()
  env = { BUTLER_REDIS_URL: redisUrl, BUTLER_MYSQL_URL: database.url, BUTLER_PREFIX: prefix }
  client = createClient({ redis: redisUrl, mysql: database.url, prefix })
  return () => client.close()
})
endPrograms()

async function startWorker(...flags: string[]): Promise<Program> {
  const worker = new Program(['work', 'test/cli/handlers.ts', ...flags], env)
  await worker.says('worker.started')
  return worker
}

/** Sends a message and waits until its turn runs; kinds that write a note have done so. */
async function begin(session: string, kind: string): Promise<void> {
  await client.enqueue(session, { kind, payload: null })
  const notes = kind === 'unhurried' || kind === 'deaf' ? 1 : 0
  await eventually(async () => {
    expect(await client.inspect(session)).toMatchObject({ runningSeq: 1 })
    const { entries } = await client.transcript(session)
    expect(entries.filter(({ type }) => type === 'note')).toHaveLength(notes)
  })
}

describe('work', () => {
  it.each(['SIGTERM', 'SIGHUP'] as const)(
    'I4 · a worker that is told to end by %s lets its turn finish and exits 0 (SD-06)',
    { timeout: TIMEOUT },
    async (signal) => {
      const session = `drained-${signal}`
      const worker = await startWorker()
      await begin(session, 'unhurried')
      worker.child.kill(signal)
      expect(await worker.ended).toMatchObject({ code: 0, stdout: '' })
      const { entries } = await client.transcript(session)
      expect(entries.at(-2)).toMatchObject({ type: 'reply', payload: 'finished' })
      expect(entries.at(-1)).toMatchObject({
        type: 'turn_ended',
        attempt: 1,
        payload: { outcome: 'completed' },
      })
    },
  )

  it.each([
    { signal: 'SIGTERM' as const, code: 143 },
    { signal: 'SIGINT' as const, code: 130 },
    { signal: 'SIGHUP' as const, code: 129 },
  ])('ends at once on a second $signal (SD-06)', { timeout: TIMEOUT }, async ({ signal, code }) => {
    const worker = await startWorker()
    await begin(`twice-${signal}`, 'deaf')
    worker.child.kill(signal)
    await worker.says('worker.draining')
    worker.child.kill(signal)
    expect((await worker.ended).code).toBe(code)
    // As after a crash: whoever is there next runs it again.
    const next = await startWorker()
    const turns = async () =>
      (await client.transcript(`twice-${signal}`)).entries.filter(({ type }) => type.startsWith('turn_'))
    await eventually(
      async () =>
        expect(await turns()).toMatchObject([
          { type: 'turn_started', attempt: 1 },
          { type: 'turn_ended', attempt: 1, payload: { outcome: 'lost' } },
          { type: 'turn_started', attempt: 2 },
        ]),
      { ms: 45_000 },
    )
    await client.delete(`twice-${signal}`)
    next.child.kill('SIGKILL')
    await next.ended
  })

  it('exits 1 when too many handlers ignore their signal', { timeout: TIMEOUT }, async () => {
    const worker = await startWorker()
    const sessions = Array.from({ length: 10 }, (_, n) => `deaf-${n}`)
    for (const session of sessions) await begin(session, 'deaf')
    for (const session of sessions) await client.stop(session)
    expect((await worker.ended).code).toBe(1)
    expect(worker.stderr).toContain('ignored their signal')
  })

  it(
    'takes only the kinds it is told to, as many at a time as it is told to',
    { timeout: TIMEOUT },
    async () => {
      const worker = await startWorker('--kinds', 'obedient', '--concurrency', '1')
      expect(worker.stderr).toContain('"concurrency":1')
      await client.enqueue('other-kind', 'hello')
      await begin('this-kind', 'obedient')
      expect(await client.inspect('other-kind')).toMatchObject({ doneSeq: 0, runningSeq: null })
      await client.stop('this-kind')
      await client.stop('other-kind')
      worker.child.kill('SIGTERM')
      expect((await worker.ended).code).toBe(0)
    },
  )

  it.each([
    { name: 'missing.js', text: undefined, says: 'There is no handler file' },
    { name: 'broken.mjs', text: 'export const handler = = 1', says: 'broken.mjs does not load: ' },
    {
      name: 'throws.mjs',
      text: "throw new Error('no key in the environment')",
      says: 'no key in the environment',
    },
    { name: 'empty.mjs', text: 'export const other = 1', says: 'exports no handler' },
    {
      name: 'kinds.mjs',
      text: 'export const handlers = { a() {} }',
      says: 'no handler for messages of kind b',
    },
  ])('does not take $name as handlers and says why', async ({ name, text, says }) => {
    const file = join(folder, name)
    if (text !== undefined) await writeFile(file, text)
    await expect(loadHandlers(file, ['a', 'b'])).rejects.toThrow(says)
  })

  it('exits 2 when its handlers do not load or are none', { timeout: TIMEOUT }, async () => {
    const file = join(folder, 'no-function.mjs')
    await writeFile(file, 'export default { handler: 7 }')
    for (const [name, says] of [
      [file, 'take functions'],
      [join(folder, 'nothing.js'), 'There is no handler file'],
    ] as const) {
      const ended = await butler(['work', name], env)
      expect(ended.stderr).toContain(says)
      expect(ended.code).toBe(2)
    }
  })

  it('does not start on a database without tables', { timeout: TIMEOUT }, async () => {
    const empty = await freshDatabase()
    const ended = await butler(['work', 'test/cli/handlers.ts', '--mysql', empty.url], env)
    expect(ended.stderr).toContain('MIGRATION_PENDING')
    expect(ended.code).toBe(1)
    await empty.drop()
  })
})

describe('dev', () => {
  it('creates its database, serves, and drains on Ctrl-C (SD-07)', { timeout: TIMEOUT }, async () => {
    const own = await freshDatabase()
    await own.drop()
    const dev = new Program(['dev', '--workers', '1', '--data', folder], {
      ...env,
      BUTLER_MYSQL_URL: own.url,
    })
    await dev.says('worker.started')
    expect(dev.stdout).toContain(`redis    ${redisUrl}`)
    expect(dev.stderr).toContain('mysql: from BUTLER_MYSQL_URL')
    const sending = ['send', 'dev-1', 'what is this', '--follow', '--mysql', own.url]
    const sent = await butler(sending, env)
    expect(sent.stdout).toContain('reply "Message 1 has 3 words: what is this"')
    dev.child.kill('SIGINT')
    expect((await dev.ended).code).toBe(0)
    expect(dev.stderr).toContain('worker.stopped')
    // Nobody's servers are ended.
    expect((await butler(['sessions', 'ls', '--mysql', own.url], env)).code).toBe(0)
    const { drop } = own
    await drop()
  })

  it('drains its workers also when it is killed (SD-11)', { timeout: TIMEOUT }, async () => {
    const dev = new Program(['dev', 'test/cli/handlers.ts', '--workers', '1', '--data', folder], env)
    await dev.says('worker.started')
    dev.child.kill('SIGKILL')
    await once(dev.child, 'exit')
    // The worker writes to the same stderr, so that it closes only when the worker has ended as well.
    const { stderr } = await dev.ended
    expect(stderr).toContain('worker.stopped')
  })

  it(
    'is refused in a folder where one runs, and not in one where one was killed',
    { timeout: TIMEOUT },
    async () => {
      const data = await mkdtemp(join(tmpdir(), 'butler-dev-'))
      const { BUTLER_REDIS_URL: _startsItsOwn, ...settings } = env
      const args = ['dev', 'test/cli/handlers.ts', '--workers', '1', '--data', data]
      const first = new Program(args, settings)
      await first.says('worker.started')
      const second = await butler(args, settings)
      expect(second).toMatchObject({ code: 5, stdout: '' })
      expect(second.stderr).toContain(`butler dev already runs here: process ${first.child.pid} uses ${data}`)
      first.child.kill('SIGKILL')
      await first.ended
      const third = new Program(args, settings)
      await third.says('worker.started')
      third.child.kill('SIGINT')
      expect((await third.ended).code).toBe(0)
      expect(await readdir(data)).not.toContain('dev.pid')
      await rm(data, { recursive: true })
    },
  )

  it('takes over the lock of a process whose pid is another one’s now, and gives back only its own', async () => {
    const data = await mkdtemp(join(tmpdir(), 'butler-dev-'))
    const file = join(data, 'dev.pid')
    const unlock = lockFolder(data)
    const text = await readFile(file, 'utf8')
    expect(text).toMatch(new RegExp(`^${process.pid} [0-9]*\n$`))
    expect(() => lockFolder(data)).toThrow(expect.objectContaining({ exitCode: 5 }))
    for (const left of ['', 'nonsense', `${process.pid} 1\n`, `${2 ** 30} 1\n`]) {
      await writeFile(file, left)
      unlock()
      expect(await readFile(file, 'utf8')).toBe(left)
      lockFolder(data)
      expect(await readFile(file, 'utf8')).toBe(text)
    }
    unlock()
    expect(await readdir(data)).toEqual([])
    await rm(data, { recursive: true })
  })
})
