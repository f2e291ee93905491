// The two rules of rest are seen to fail on real servers: a session that stands still, and one that is not left alone.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createClient } from '../../src/index.ts'
import { idle, settled } from './rest.ts'
import { Servers } from './servers.ts'
import { bundle } from '../support/bundle.ts'
import { PROGRAMS, Stage } from './stage.ts'

const tunables = { lockTtlMs: 3000 }
let folder: string
let servers: Servers
let stage: Stage

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'butler-torture-'))
  const code = join(folder, 'code')
  await bundle(code, PROGRAMS)
  servers = await Servers.start(folder)
  const options = { servers, folder, code, tunables, seed: 1, workers: 1, producers: 0, perSecond: 1 }
  stage = await Stage.open({ ...options, sessions: ['chat'], watched: 0, through: 'library' })
  const client = createClient({
    redis: servers.redisUrl,
    mysql: stage.mysqlUrl,
    prefix: stage.prefix,
    logger: false,
  })
  await client.enqueue('chat', { payload: { do: 'echo' } })
  await client.close()
})
afterAll(async () => {
  await stage?.close()
  await servers?.stop()
  await rm(folder, { recursive: true, force: true })
})

test('a session that stands still breaks I8; without work nothing does', async () => {
  expect((await settled(stage, 15_000)).problems).toEqual([])
  const connection = await servers.sqlConnection(stage.database)
  await connection.query('begin')
  await connection.query('update butler_sessions set inbox_seq = 2, waiting_since = now(3)')
  await connection.query('commit')
  await connection.query('begin')
  // The worker can do nothing while somebody else holds the row.
  await connection.query('select * from butler_sessions for update')
  const { problems } = await settled(stage, 1000)
  expect(problems.join()).toContain('chat: I8: with nothing broken it stood still')
  await connection.query('update butler_sessions set inbox_seq = 1, done_seq = 1, waiting_since = null')
  await connection.query('commit')
  connection.destroy()
})

test('commands for a session, and a connection too many, break I9', async () => {
  const limits = { quietMs: 500, poolSize: 10, patienceMs: 15_000 }
  expect(await idle(stage, limits)).toEqual([])
  const [post] = stage.posts
  const extra = new Redis(post!.lines.redis.url)
  await extra.ping()
  const look = setInterval(() => void extra.get(stage.key('chat', 'lock')), 50)
  const problems = await idle(stage, { ...limits, patienceMs: 1500 })
  clearInterval(look)
  extra.disconnect()
  expect(problems.join()).toContain('connections to Redis')
  expect(problems.join()).toContain('commands in 1000 ms')
})

test('a statement for a session breaks I9', async () => {
  const client = createClient({
    redis: servers.redisUrl,
    mysql: stage.mysqlUrl,
    prefix: stage.prefix,
    logger: false,
  })
  const look = setInterval(() => void client.transcript('chat', { limit: 1 }).catch(() => undefined), 50)
  const problems = await idle(stage, { quietMs: 500, poolSize: 10, patienceMs: 1500 })
  clearInterval(look)
  await client.close()
  expect(problems.join()).toMatch(/statements in \d+ ms for sessions/)
})

test('a command now and then breaks I9, and so does what is left in a session’s keys', async () => {
  const limits = { quietMs: 3000, poolSize: 10, patienceMs: 1500 }
  const keys = { lock: stage.key('chat', 'lock'), processing: stage.key('chat', 'processing') }
  await servers.ask('LPUSH', keys.processing, '1:m-left')
  await servers.ask('SET', keys.lock, 'Abcdef012345.aaaaaaaaaaaaaaaa', 'PX', 60_000)
  const left = (await idle(stage, limits)).join()
  expect(left).toContain(`${keys.processing} holds 1:m-left`)
  expect(left).toContain(`${keys.lock} is Abcdef012345`)
  await servers.ask('DEL', keys.processing, keys.lock)
  const seldom = setInterval(() => void servers.ask('GET', keys.lock).catch(() => undefined), 1700)
  const problems = await idle(stage, limits)
  clearInterval(seldom)
  expect(problems.join()).toContain('for sessions')
})
