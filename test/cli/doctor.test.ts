import { createConnection } from 'mysql2/promise'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createWorker, diagnose, migrate } from '../../src/index.ts'
import { eventually } from '../support/eventually.ts'
import { freshDatabase, freshPrefix, ownRedis, services } from '../support/services.ts'
import { build, butler, jsonLines } from './program.ts'

const { redisUrl } = services()
const TIMEOUT = 90_000
const prefix = freshPrefix()
let database: Awaited<ReturnType<typeof freshDatabase>>
let env: Record<string, string>

beforeAll(async () => {
  await build()
  database = await freshDatabase()
  await migrate(database.url)
  env = { REDIS_URL: redisUrl, DATABASE_URL: database.url, BUTLER_PREFIX: prefix }
}, TIMEOUT)
afterAll(() => database.drop())

const checksOf = (stdout: string) =>
  new Map(jsonLines(stdout).map((line) => [line.check ?? line.setting, line]))

describe('doctor', () => {
  it('finds servers that fit, which settings won, and who is alive', { timeout: TIMEOUT }, async () => {
    const worker = createWorker({
      redis: redisUrl,
      mysql: database.url,
      prefix,
      logger: false,
      handler: () => {},
    })
    await worker.start()
    await eventually(async () => {
      const { ok, checks } = await diagnose({ redis: redisUrl, mysql: database.url, prefix })
      expect(ok).toBe(true)
      expect(checks.find(({ name }) => name === 'workers')).toMatchObject({ status: 'ok', fix: null })
    })
    const { code, stdout, stderr } = await butler(['doctor', '--json', '--prefix', prefix], env)
    await worker.stop()
    expect(stderr).toBe('')
    const lines = checksOf(stdout)
    expect(lines.get('redis')).toMatchObject({ from: 'REDIS_URL', value: redisUrl })
    expect(lines.get('mysql')).toMatchObject({ from: 'DATABASE_URL' })
    expect(lines.get('prefix')).toMatchObject({ from: '--prefix', value: prefix })
    for (const name of ['redis version', 'mysql version', 'mysql migrations', 'mysql max_allowed_packet']) {
      expect(lines.get(name)).toMatchObject({ status: 'ok', fix: null })
    }
    expect(code).toBe(0)
  })

  it(
    'exits 1 for a Redis that evicts and a database without tables, with a fix for each (RD-07)',
    { timeout: TIMEOUT },
    async () => {
      const forgetful = await ownRedis(['--maxmemory', '64mb', '--maxmemory-policy', 'allkeys-lru'])
      const empty = await freshDatabase()
      const args = ['doctor', '--redis', forgetful.url, '--mysql', empty.url]
      const [people, programs] = [await butler(args, env), await butler([...args, '--json'], env)]
      await Promise.all([forgetful.stop(), empty.drop()])
      expect(people.stdout).toMatch(/^fail {2}redis eviction +allkeys-lru/m)
      expect(people.stdout).toContain('→ CONFIG SET maxmemory-policy noeviction')
      expect(people.stdout).not.toContain('\u001b')
      const lines = checksOf(programs.stdout)
      expect(lines.get('mysql migrations')).toMatchObject({
        status: 'fail',
        fix: expect.stringContaining('migrate up') as string,
      })
      expect(lines.get('workers')).toMatchObject({ status: 'warn' })
      expect([people.code, programs.code]).toEqual([1, 1])
    },
  )

  it(
    'exits 3 when a server cannot be reached, and still looks at the other',
    { timeout: TIMEOUT },
    async () => {
      const { code, stdout } = await butler(
        ['doctor', '--json', '--redis', 'redis://:secret@127.0.0.1:1'],
        env,
      )
      const lines = checksOf(stdout)
      expect(lines.get('redis connection')).toMatchObject({
        status: 'fail',
        found: expect.stringContaining('ECONNREFUSED') as string,
      })
      expect(lines.get('mysql connection')).toMatchObject({ status: 'ok' })
      expect(stdout).not.toContain('secret')
      expect(code).toBe(3)
    },
  )
})

describe('diagnose', () => {
  it('notices a replica, whatever it holds', { timeout: TIMEOUT }, async () => {
    const replica = await ownRedis(['--replicaof', '127.0.0.1', '1'])
    const { ok, reachable, checks } = await diagnose({ redis: replica.url, mysql: database.url })
    await replica.stop()
    expect(checks.find(({ name }) => name === 'redis role')).toMatchObject({ status: 'fail', found: 'slave' })
    expect([ok, reachable]).toEqual([false, true])
  })

  it('notices tables that are not as the migrations made them', { timeout: TIMEOUT }, async () => {
    const altered = await freshDatabase()
    await migrate(altered.url)
    const connection = await createConnection({ uri: altered.url })
    await connection.query(
      'ALTER TABLE butler_messages MODIFY kind VARCHAR(64) COLLATE utf8mb4_general_ci NOT NULL',
    )
    await connection.end()
    const { ok, checks } = await diagnose({ redis: redisUrl, mysql: altered.url })
    await altered.drop()
    const found = expect.stringContaining('butler_messages.kind (utf8mb4_general_ci)') as string
    expect(checks.find(({ name }) => name === 'mysql tables')).toMatchObject({ status: 'fail', found })
    expect(ok).toBe(false)
  })

  it('refuses a prefix that cannot be one', async () => {
    await expect(diagnose({ redis: redisUrl, mysql: database.url, prefix: 'a b' })).rejects.toThrow('prefix')
  })
})
