import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createClient, migrate, type Client } from '../../src/index.ts'
import { eventually } from '../support/eventually.ts'
import { freshDatabase, freshPrefix, services } from '../support/services.ts'
import { build, butler, jsonLines, Program, PROGRAM } from './program.ts'

const { redisUrl } = services()
const prefix = freshPrefix()
const TIMEOUT = 90_000
let database: Awaited<ReturnType<typeof freshDatabase>>
let env: Record<string, string>
let client: Client
let worker: Program

const run = (...args: string[]) => butler(args, env)

beforeAll(async () => {
  await build()
  database = await freshDatabase()
  env = { BUTLER_REDIS_URL: redisUrl, BUTLER_MYSQL_URL: database.url, BUTLER_PREFIX: prefix }
  await migrate(database.url)
  client = createClient({ redis: redisUrl, mysql: database.url, prefix })
  worker = new Program(['work', 'test/cli/handlers.ts'], env)
  await worker.says('worker.started')
}, TIMEOUT)

afterAll(async () => {
  worker.child.kill('SIGTERM')
  expect((await worker.ended).code).toBe(0)
  await client.close()
  await database.drop()
}, TIMEOUT)

describe('migrate', () => {
  it('applies what is pending once, and status says so line by line', { timeout: TIMEOUT }, async () => {
    const empty = await freshDatabase()
    const flags = ['--mysql', empty.url]
    const before = await run('migrate', 'status', ...flags, '--json')
    expect(new Set(jsonLines(before.stdout).map(({ appliedAt }) => appliedAt))).toEqual(new Set([null]))
    const first = await run('migrate', 'up', ...flags)
    expect(first).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('applied 0001_sessions') as string,
    })
    const second = await run('migrate', 'up', ...flags)
    expect(second).toMatchObject({ code: 0, stdout: expect.stringContaining('nothing to apply') as string })
    const after = await run('migrate', 'status', ...flags, '--json')
    for (const { appliedAt } of jsonLines(after.stdout)) expect(appliedAt).toEqual(expect.any(String))
    await empty.drop()
  })
})

describe('send', () => {
  it('follows its message to the end and prints its entries', { timeout: TIMEOUT }, async () => {
    const { code, stdout, stderr } = await run('send', 'follow-1', 'hello', '--follow')
    expect(stderr).toBe('')
    expect(stdout).toMatch(/^follow-1 seq=1 id=m-/)
    expect(stdout).toContain('reply "heard \\"hello\\""')
    expect(stdout).toContain('turn_ended {"outcome":"completed"}')
    expect(code).toBe(0)
  })

  it(
    'I6 · takes the text from standard input, and is repeatable with a key',
    { timeout: TIMEOUT },
    async () => {
      const first = await butler(['send', 'keyed', '-', '--key', 'k1'], env, { input: 'from a pipe\n' })
      expect(first).toMatchObject({ code: 0, stderr: '' })
      const again = await run('send', 'keyed', 'from a pipe', '--key', 'k1')
      expect(again.stdout).toBe(first.stdout.replace('\n', ' duplicate\n'))
      const other = await run('send', 'keyed', 'something else', '--key', 'k1')
      expect(other).toMatchObject({ code: 5, stdout: '' })
      expect(other.stderr).toMatch(/^IDEMPOTENCY_CONFLICT: /)
    },
  )

  it('exits 1 when the followed message does not complete', { timeout: TIMEOUT }, async () => {
    const sending = new Program(
      ['send', 'stopped-1', '--json', '{"a":1}', '--kind', 'obedient', '--follow'],
      env,
    )
    await sending.says('turn_started')
    await client.stop('stopped-1')
    const { code, stderr } = await sending.ended
    expect(stderr).toContain('ended as stopped')
    expect(code).toBe(1)
  })
})

describe('sessions', () => {
  it('shows, lists and tails as JSON, one object per line', { timeout: TIMEOUT }, async () => {
    for (const word of ['one', 'two']) await client.enqueue('read-1', word)
    await eventually(async () => expect(await client.inspect('read-1')).toMatchObject({ doneSeq: 2 }))
    const show = await run('sessions', 'show', 'read-1', '--json')
    expect(jsonLines(show.stdout)).toMatchObject([{ id: 'read-1', state: 'idle', doneSeq: 2 }])
    const ls = await run('sessions', 'ls', '--json', '--after', 'read-0', '--limit', '1', '--state', 'idle')
    expect(jsonLines(ls.stdout)).toMatchObject([{ id: 'read-1', inboxSeq: 2 }])
    const why = await run('explain', 'read-1', '--json')
    expect(jsonLines(why.stdout)).toMatchObject([{ verdict: { code: 'idle' }, session: { doneSeq: 2 } }])
    const fleet = await run('fleet', 'ls', '--json')
    const [process, ...others] = jsonLines(fleet.stdout)
    expect(others).toEqual([])
    expect(process).toMatchObject({ pid: worker.child.pid, draining: false })
    const moved = await run('sessions', 'cursor', 'read-1', 'phone', '--read', '3', '--ack', '2', '--json')
    expect(jsonLines(moved.stdout)).toMatchObject([{ reader: 'phone', read: '3', acknowledged: '2' }])
    const at = await run('sessions', 'cursor', 'read-1', 'phone')
    expect(at.stdout).toMatch(/^reader +phone\nread +3\nacknowledged +2\nupdatedAt +\d{4}-/)
    const tail = await run('sessions', 'tail', 'read-1', '--json', '--no-follow', '--after', '2')
    const { entries } = await client.transcript('read-1', { after: 2 })
    expect(jsonLines(tail.stdout)).toEqual(entries)
  })

  it(
    'I7 · tail follows until it is interrupted, each entry once and in order',
    { timeout: TIMEOUT },
    async () => {
      await client.enqueue('tail-1', 'first')
      const tail = new Program(['sessions', 'tail', 'tail-1', '--json'], env)
      await tail.says('turn_ended')
      await client.enqueue('tail-1', 'second')
      await tail.says('"heard \\"second\\""')
      await eventually(() => expect(jsonLines(tail.stdout)).toHaveLength(8))
      expect(jsonLines(tail.stdout).map(({ entry }) => entry)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
      tail.child.kill('SIGINT')
      expect((await tail.ended).code).toBe(130)
    },
  )

  it('stops one turn and waits until it is quiet, or says that it is not', { timeout: TIMEOUT }, async () => {
    const begin = async (session: string, kind: string) => {
      for (const payload of ['a', 'b']) await client.enqueue(session, { kind, payload })
      await eventually(async () => expect(await client.inspect(session)).toMatchObject({ state: 'running' }))
    }
    await begin('stop-1', 'obedient')
    const one = await run('sessions', 'stop', 'stop-1', '--turn', 'running', '--wait', '20')
    expect(one).toMatchObject({ code: 0, stdout: 'stop-1 stopped through=1: message 1 was aborted\n' })
    await eventually(async () => expect(await client.inspect('stop-1')).toMatchObject({ runningSeq: 2 }))
    const all = await run('sessions', 'stop', 'stop-1', '--wait', '20', '--json')
    expect(jsonLines(all.stdout)).toMatchObject([
      { through: 2, running: 2, quiet: true, outcomes: [{ seq: 2, outcome: 'aborted' }] },
    ])
    await begin('stop-2', 'deaf')
    const late = await run('sessions', 'stop', 'stop-2', '--wait', '0.2')
    expect(late).toMatchObject({ code: 1, stderr: 'It is not quiet after 0.2 s.\n' })
    expect(late.stdout).toBe(
      'stop-2 stopped through=2: message 1 is being stopped, 1 waiting will not start\n',
    )
  })

  it('takes back, stops, retries and deletes', { timeout: TIMEOUT }, async () => {
    // Nobody here has a handler for this kind, so these wait.
    for (const payload of ['a', 'b', 'c']) await client.enqueue('queue-1', { kind: 'unheard', payload })
    const why = await run('explain', 'queue-1')
    expect(why).toMatchObject({ code: 0, stderr: '' })
    expect(why.stdout).toMatch(/^queue-1 no-capable-process\n.*kind unheard.*\n→ A worker that can/)
    expect(why.stdout).toMatch(/^queue +1 unheard version 1, \d+ ms old\n +2 unheard/m)
    const queue = await run('sessions', 'queue', 'queue-1', '--json', '--after', '1')
    expect(jsonLines(queue.stdout)).toMatchObject([
      { seq: 2, payload: 'b' },
      { seq: 3, payload: 'c' },
    ])
    expect(await run('sessions', 'withdraw', 'queue-1', '3')).toMatchObject({ code: 0, stderr: '' })
    const stop = await run('sessions', 'stop', 'queue-1', '--through', '1')
    expect(stop).toMatchObject({
      code: 0,
      stdout: 'queue-1 stopped through=1: no turn was running, 1 waiting will not start\n',
    })
    expect(await run('sessions', 'stop', 'queue-1', '--turn', '2')).toMatchObject({ code: 5, stdout: '' })
    await eventually(async () => expect(await client.inspect('queue-1')).toMatchObject({ doneSeq: 1 }))
    const retry = await run('sessions', 'retry', 'queue-1', '1')
    expect(retry).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^queue-1 seq=4 id=m-\S+ position=2\n/) as string,
    })
    expect(await run('sessions', 'retry', 'queue-1', '2')).toMatchObject({ code: 5, stdout: '' })
    expect(await run('sessions', 'delete', 'queue-1')).toMatchObject({ code: 2, stdout: '' })
    expect(await run('sessions', 'delete', 'queue-1', '--yes')).toMatchObject({ code: 0 })
    expect(await run('sessions', 'show', 'queue-1')).toMatchObject({ code: 4 })
  })

  it('ends quietly when the reader of its output goes away', { timeout: TIMEOUT }, async () => {
    for (let n = 0; n < 30; n++) await client.enqueue('long-1', 'x'.repeat(10_000))
    await eventually(async () => expect(await client.inspect('long-1')).toMatchObject({ doneSeq: 30 }))
    const command = '"$0" "$1" sessions tail long-1 --json | head -n 1'
    const shell = spawn('/bin/sh', ['-c', command, process.execPath, PROGRAM], {
      env: { PATH: process.env.PATH, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const [stdout, stderr] = await Promise.all([text(shell.stdout), text(shell.stderr), once(shell, 'close')])
    expect(jsonLines(stdout)).toHaveLength(1)
    expect(stderr).toBe('')
  })
})

describe('keys', () => {
  it('revokes by the secret that somebody found, and never prints it', { timeout: TIMEOUT }, async () => {
    const made = await run('keys', 'create', '--name', 'found', '--scope', 'watch', '--json')
    const [key] = jsonLines(made.stdout)
    const { id, secret } = key as { id: string; secret: string }
    expect(await run('keys', 'revoke', secret)).toMatchObject({
      code: 0,
      stdout: `${id} revoked\n`,
      stderr: '',
    })
    const list = await run('keys', 'ls', '--json')
    expect(jsonLines(list.stdout)).toMatchObject([{ id, revokedAt: expect.any(String) as string }])
    const unknown = await run('keys', 'revoke', `${secret.slice(0, -1)}!`)
    expect(unknown).toMatchObject({ code: 4, stdout: '' })
    expect(unknown.stderr).not.toContain(secret.slice(-20, -1))
  })
})

describe('prune', () => {
  it('removes what is named and old enough, and says how much', { timeout: TIMEOUT }, async () => {
    await client.enqueue('old-1', 'hello')
    await eventually(async () => expect(await client.inspect('old-1')).toMatchObject({ doneSeq: 1 }))
    const young = await run(
      'prune',
      '--messages-older',
      '30d',
      '--entries-older',
      '90d',
      '--deleted-older',
      '1d',
      '--json',
    )
    expect(jsonLines(young.stdout)).toEqual([{ messages: 0, entries: 0 }])
    const old = await run('prune', '--entries-older', '1ms')
    expect(old).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^removed 0 messages and \d+ entries/) as string,
    })
    expect((await client.transcript('old-1')).entries).toEqual([])
  })
})

describe('a command that cannot be carried out', () => {
  const nowhere = ['--mysql', 'mysql://root@127.0.0.1:1/none']
  it.each([
    { code: 2, says: 'unknown command', args: ['bogus'] },
    { code: 2, says: '--limit', args: ['sessions', 'ls', '--limit', 'many'] },
    { code: 2, says: 'INVALID_ARGUMENT', args: ['sessions', 'ls', '--limit', '100000'] },
    { code: 2, says: 'INVALID_SESSION_ID', args: ['send', 'not an id', 'hello'] },
    { code: 2, says: 'either a text or --json', args: ['send', 'some-id'] },
    { code: 2, says: 'Say what to remove', args: ['prune'] },
    {
      code: 2,
      says: 'INVALID_OPTIONS',
      args: ['sessions', 'ls', '--mysql', 'postgres://root:secret@localhost/db'],
    },
    { code: 3, says: 'MYSQL_UNAVAILABLE', args: ['sessions', 'ls', ...nowhere] },
    { code: 3, says: 'MYSQL_UNAVAILABLE', args: ['migrate', 'up', ...nowhere] },
    { code: 4, says: 'SESSION_NOT_FOUND', args: ['sessions', 'stop', 'nobody'] },
    { code: 4, says: 'MESSAGE_NOT_FOUND', args: ['sessions', 'retry', 'nobody', '1'] },
  ])(
    'exits $code and says $says, without a stack: $args',
    { timeout: TIMEOUT },
    async ({ args, code, says }) => {
      const ended = await run(...args)
      expect(ended.stderr).toContain(says)
      expect(ended.stderr).not.toMatch(/^\s+at /m)
      expect(ended.stderr).not.toContain('secret')
      expect(ended).toMatchObject({ code, stdout: '' })
    },
  )

  it('exits 1 on a database without tables and says what to run', { timeout: TIMEOUT }, async () => {
    const empty = await freshDatabase()
    const ended = await run('sessions', 'ls', '--mysql', empty.url)
    expect(ended).toMatchObject({ code: 1, stdout: '' })
    expect(ended.stderr).toMatch(/MIGRATION_PENDING: .*migrate up/)
    await empty.drop()
  })
})
