// `butler serve` as a process: how it starts and refuses to, how it is probed, and how it leaves.
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Server } from '../../src/cli/servers.ts'
import { createClient, migrate, openKeyring, type Client } from '../../src/index.ts'
import { build, butler, endPrograms, Program } from '../cli/program.ts'
import { eventually } from '../support/eventually.ts'
import { freeze, freshDatabase, freshPrefix, ownMysql, ownRedis, services } from '../support/services.ts'
import { head, raw } from './raw.ts'
import { entriesOf, Reader } from './sse.ts'

const HANDLERS = 'test/cli/handlers.ts'
const SECRET = 'a secret of forty bytes that nobody knows'
const TIMEOUT = 90_000

let database: Awaited<ReturnType<typeof freshDatabase>>
let key: string
let env: Record<string, string>
let client: Client

beforeAll(async () => {
  await build()
  database = await freshDatabase()
  key = await prepare(database.url)
}, TIMEOUT)
afterAll(() => database.drop())

beforeEach(() => {
  env = envOf(services().redisUrl, database.url)
  const { BUTLER_PREFIX: prefix } = env
  client = createClient({ redis: services().redisUrl, mysql: database.url, ...(prefix && { prefix }) })
  return () => client.close()
})
endPrograms()

const envOf = (redis: string, mysql: string) => ({
  BUTLER_REDIS_URL: redis,
  BUTLER_MYSQL_URL: mysql,
  BUTLER_PREFIX: freshPrefix(),
  BUTLER_TOKEN_SECRET: SECRET,
})

async function prepare(url: string): Promise<string> {
  await migrate(url)
  const keyring = openKeyring(url)
  const { secret } = await keyring.create({ name: 'test', scopes: ['produce', 'watch', 'stop', 'admin'] })
  await keyring.close()
  return secret
}

interface Serving {
  readonly program: Program
  readonly url: string
  readonly ask: (path: string, init?: RequestInit & { key?: string }) => Promise<Response>
  readonly send: (session: string, body: unknown) => Promise<Response>
  /** The status and what `/readyz` says, or what came instead. */
  readonly ready: () => Promise<string>
}

async function serve(args: readonly string[], more: Record<string, string> = {}): Promise<Serving> {
  const program = new Program(['serve', ...args, '--port', '0'], { ...env, ...more })
  await program.says('listening on')
  const url = /listening on (http:[^"]+)"/.exec(program.stderr)![1]!
  const ask: Serving['ask'] = (path, { key: other = key, headers, ...init } = {}) =>
    fetch(url + path, {
      ...init,
      headers: {
        connection: 'close',
        ...(other && { authorization: `Bearer ${other}` }),
        ...(headers as object),
      },
    })
  return {
    program,
    url,
    ask,
    send: (session, body) =>
      ask(`/v1/sessions/${session}/messages`, {
        method: 'POST',
        body: JSON.stringify(body),
        headers: { 'content-type': 'application/json' },
      }),
    ready: async () => {
      const response = await ask('/readyz', { key: '' })
      return `${response.status} ${((await response.json()) as { problems: string[] }).problems.join()}`
    },
  }
}

async function watch({ ask }: Serving, session: string, lastId?: string): Promise<Reader> {
  const response = await ask(`/v1/sessions/${session}/events`, {
    headers: lastId === undefined ? {} : { 'last-event-id': lastId },
  })
  expect(response.status).toBe(200)
  return new Reader(response.body!)
}

describe('starts', () => {
  test('answers, runs turns, and ends in order', { timeout: TIMEOUT }, async () => {
    const server = await serve([HANDLERS])
    const { program, ask, send } = server
    expect(await (await ask('/healthz', { key: '' })).json()).toEqual({ status: 'ok' })
    await eventually(async () => expect(await server.ready()).toBe('200 '))
    expect((await ask('/v1/sessions', { key: '' })).status).toBe(401)
    expect((await send('acme:1', { text: 'hello' })).status).toBe(202)
    const reader = await watch(server, 'acme:1')
    await reader.until(({ value }) => value.entry?.type === 'turn_ended')
    expect(entriesOf(reader)).toEqual(['1 turn_started', '2 message', '3 reply', '4 turn_ended'])
    const made = await ask('/v1/sessions/acme:1/tokens', {
      method: 'POST',
      body: '{"rights":["watch"],"ttlSeconds":60}',
      headers: { 'content-type': 'application/json' },
    })
    const { token } = (await made.json()) as { token: string }
    expect((await ask('/v1/sessions/acme:1', { key: token })).status).toBe(200)
    const printed = await butler(['openapi'], {})
    expect(JSON.parse(printed.stdout)).toEqual(await (await ask('/v1/openapi.json', { key: '' })).json())
    program.child.kill('SIGTERM')
    expect(await program.ended).toMatchObject({ code: 0, stdout: '' })
    await reader.toTheEnd()
    expect(reader.events.at(-1)).toMatchObject({ event: 'reconnect', id: '4' })
    expect(program.stderr).not.toContain(key)
  })

  test('only answers when it is told so', { timeout: TIMEOUT }, async () => {
    const server = await serve(['--no-work'])
    expect((await server.send('acme:wait', { text: 'hello' })).status).toBe(202)
    expect(await server.ready()).toBe('200 ')
    expect(await client.inspect('acme:wait')).toMatchObject({ state: 'waiting', starts: 0 })
    server.program.child.kill('SIGINT')
    expect((await server.program.ended).code).toBe(0)
  })

  test('without keys on a loopback address only, and says so', { timeout: TIMEOUT }, async () => {
    for (const host of ['0.0.0.0', '::', '192.168.0.1', 'example.com', '127.0.0.1.example.com']) {
      const refused = await butler(['serve', HANDLERS, '--no-auth', '--host', host], env)
      expect(refused).toMatchObject({ code: 2, stdout: '' })
      expect(refused.stderr).toContain('--no-auth')
    }
    const server = await serve(['--no-work', '--no-auth'])
    expect(server.program.stderr).toContain('everybody may do everything')
    expect((await server.ask('/v1/sessions', { key: '' })).status).toBe(200)
    const asPage = async (host: string, ...more: string[]) => {
      const lines = ['GET /v1/sessions HTTP/1.1', `host: ${host}`, 'connection: close', ...more]
      return (await (await raw(server.url, head(lines))).closed).slice(9, 12)
    }
    const { host } = new URL(server.url)
    expect(await asPage(host)).toBe('200')
    expect(await asPage('evil.example')).toBe('403')
    expect(await asPage(host, 'origin: https://evil.example')).toBe('403')
  })

  test('refuses what cannot be meant, and leaves nothing running', { timeout: TIMEOUT }, async () => {
    const taken = createServer().listen(0, '127.0.0.1')
    await once(taken, 'listening')
    const port = `${(taken.address() as AddressInfo).port}`
    const cases: [string[], string, Record<string, string>?][] = [
      [['serve'], 'Name the file with the handler'],
      [['serve', HANDLERS, '--port', port], 'Choose another with --port'],
      [['serve', HANDLERS, '--port', 'x'], 'whole number'],
      [['serve', HANDLERS, '--host', '203.0.113.1', '--port', '0'], 'Choose another with --host'],
      [['serve', HANDLERS, '--cors-origin', '*'], 'is no origin'],
      [['serve', HANDLERS, '--port', '0'], 'at least 32', { BUTLER_TOKEN_SECRET: 'short' }],
      [['serve', HANDLERS, '--port', '0'], 'at least 32', { BUTLER_TOKEN_SECRET: '' }],
    ]
    for (const [args, says, more] of cases) {
      const { code, stderr } = await butler(args, { ...env, ...more })
      expect([args, stderr.includes(says), code]).toEqual([args, true, 2])
      expect(stderr).not.toContain('worker.started')
      expect(stderr).not.toMatch(/\n\s+at /)
    }
    taken.close()
    const empty = await freshDatabase()
    const bare = await butler(['serve', HANDLERS, '--port', '0'], { ...env, BUTLER_MYSQL_URL: empty.url })
    expect(bare).toMatchObject({ code: 1 })
    expect(bare.stderr).toContain('MIGRATION_PENDING')
    await empty.drop()
  })
})

describe('leaves', () => {
  test(
    'I7 · with a word to everybody: probes, streams, open connections; another one goes on (SD-10)',
    { timeout: TIMEOUT },
    async () => {
      const [one, other] = await Promise.all([serve([HANDLERS]), serve(['--no-work'])])
      await one.send('acme:busy', { payload: null, kind: 'unhurried' })
      await client.enqueue('acme:obedient', { kind: 'obedient', payload: null })
      await eventually(async () =>
        expect(await client.inspect('acme:obedient')).toMatchObject({ runningSeq: 1 }),
      )
      const readers = await Promise.all(Array.from({ length: 20 }, () => watch(one, 'acme:busy')))
      await Promise.all(readers.map((reader) => reader.until(({ value }) => value.entry?.type === 'note')))
      const sockets = await Promise.all(
        Array.from({ length: 20 }, async () => {
          const socket = await raw(one.url, head(['GET /healthz HTTP/1.1', 'host: butler']))
          await eventually(() => expect(socket.heard()).toContain('"ok"'))
          return socket
        }),
      )
      one.program.child.kill('SIGTERM')
      // A turn that does not end keeps the process for now.
      await eventually(async () => expect(await one.ready()).toBe('503 draining'))
      expect((await one.ask('/healthz', { key: '' })).status).toBe(200)
      expect((await one.ask('/v1/sessions/acme:busy')).headers.get('connection')).toBe('close')
      expect((await one.ask('/v1/sessions/acme:busy/events')).status).toBe(503)
      await Promise.all(sockets.map(({ closed }) => closed))
      await Promise.all(readers.map((reader) => reader.toTheEnd()))
      expect(new Set(readers.map(({ events }) => events.at(-1)?.event))).toEqual(new Set(['reconnect']))
      const next = await Promise.all(readers.map(({ lastId }) => watch(other, 'acme:busy', lastId)))
      await Promise.all(next.map((reader) => reader.until(({ value }) => value.entry?.type === 'turn_ended')))
      for (const [at, reader] of readers.entries())
        expect([...entriesOf(reader), ...entriesOf(next[at]!)]).toEqual([
          '1 turn_started',
          '2 message',
          '3 note',
          '4 reply',
          '5 turn_ended',
        ])
      await Promise.all(next.map((reader) => reader.leave()))
      // The other turn is let go of, so that whoever comes next has it.
      await client.stop('acme:obedient')
      expect((await one.program.ended).code).toBe(0)
      expect(await other.ready()).toBe('200 ')
    },
  )

  test('hands its turns over within the grace', { timeout: TIMEOUT }, async () => {
    const { program } = await serve([HANDLERS, '--grace', '2'])
    await client.enqueue('acme:handed', { kind: 'obedient', payload: null })
    await eventually(async () => expect(await client.inspect('acme:handed')).toMatchObject({ runningSeq: 1 }))
    program.child.kill('SIGTERM')
    expect((await program.ended).code).toBe(0)
    expect(await client.inspect('acme:handed')).toMatchObject({ runningSeq: null, handovers: 1, owner: null })
    await client.delete('acme:handed')
  })

  test('at once on a second signal (SD-06)', { timeout: TIMEOUT }, async () => {
    const { program } = await serve([HANDLERS])
    await client.enqueue('acme:deaf', { kind: 'deaf', payload: null })
    await eventually(async () => expect(await client.inspect('acme:deaf')).toMatchObject({ runningSeq: 1 }))
    program.child.kill('SIGTERM')
    await program.says('worker.draining')
    program.child.kill('SIGTERM')
    expect((await program.ended).code).toBe(143)
    await client.delete('acme:deaf')
  })

  test.each([
    ['Redis', ['redis']],
    ['MySQL', ['mysql']],
    ['both', ['redis', 'mysql']],
  ] as const)(
    'within the grace although %s does not answer, idle and in mid-turn (SD-05)',
    { timeout: TIMEOUT },
    async (_what, stores) => {
      const servers: Record<'redis' | 'mysql', Server> = { redis: await ownRedis(), mysql: await ownMysql() }
      const fresh = await freshDatabase(servers.mysql.url)
      key = await prepare(fresh.url)
      env = envOf(servers.redis.url, fresh.url)
      const graceS = 4
      const [busy, idle] = await Promise.all([1, 2].map(() => serve([HANDLERS, '--grace', `${graceS}`])))
      await busy!.send('acme:1', { payload: null, kind: 'obedient' })
      const reader = await watch(idle!, 'acme:1')
      await reader.until(({ value }) => value.entry?.type === 'turn_started')
      for (const store of stores) await freeze(servers[store])
      const since = performance.now()
      for (const { program } of [busy!, idle!]) program.child.kill('SIGTERM')
      await reader.toTheEnd()
      expect(reader.events.at(-1)?.event).toBe('reconnect')
      const ends = await Promise.all([busy!.program.ended, idle!.program.ended])
      // The grace, and what a busy machine takes to let a process end.
      expect(performance.now() - since).toBeLessThan(graceS * 1000 + 8000)
      for (const { signal } of ends) expect(signal).toBeNull()
      for (const store of stores) servers[store].kill('SIGCONT')
      await Promise.all([servers.redis.stop(), servers.mysql.stop()])
      key = await openKey()
    },
  )
})

/** Of the database that the other tests share. */
async function openKey(): Promise<string> {
  const keyring = openKeyring(database.url)
  const { secret } = await keyring.create({ name: 'next', scopes: ['produce', 'watch', 'stop', 'admin'] })
  await keyring.close()
  return secret
}

test('is not ready while its database is away, and lives through it', { timeout: TIMEOUT }, async () => {
  const mysql = await ownMysql()
  const fresh = await freshDatabase(mysql.url)
  await migrate(fresh.url)
  env = envOf(services().redisUrl, fresh.url)
  const server = await serve(['--no-work'])
  expect(await server.ready()).toBe('200 ')
  await freeze(mysql)
  await eventually(async () => expect(await server.ready()).toBe('503 mysql'), { ms: 40_000 })
  expect((await server.ask('/healthz', { key: '' })).status).toBe(200)
  mysql.kill('SIGCONT')
  await eventually(async () => expect(await server.ready()).toBe('200 '), { ms: 40_000 })
  server.program.child.kill('SIGTERM')
  expect((await server.program.ended).code).toBe(0)
  await mysql.stop()
})
