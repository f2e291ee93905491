// A wrong address of a store is told, and keeps no process alive: a script that closes what it made ends by itself.
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { migrate } from '../../src/index.ts'
import { freshDatabase, services } from '../support/services.ts'

const SCRIPT = fileURLToPath(new URL('wrong-url.ts', import.meta.url))
let redis: string
let mysql: string
let drop: () => Promise<void>
beforeAll(async () => {
  const database = await freshDatabase()
  drop = database.drop
  redis = services().redisUrl
  mysql = database.url
  await migrate(mysql)
})
afterAll(() => drop())

async function says(...stores: { redis: string; mysql: string }[]): Promise<string[]> {
  // Longer than this is for ever; it is then killed, and the call rejects.
  const limit = { timeout: 50_000, killSignal: 'SIGKILL' } as const
  const args = ['--import', 'tsx', SCRIPT, JSON.stringify(stores)]
  const { stdout, stderr } = await promisify(execFile)(process.execPath, args, limit)
  expect(stderr).toBe('')
  return stdout.trimEnd().split('\n')
}

test('a process whose URLs cannot be meant ends by itself', { timeout: 60_000 }, async () => {
  expect(
    await says({ redis: 'http://localhost', mysql }, { redis, mysql: 'postgres://localhost/app' }),
  ).toEqual(['INVALID_OPTIONS INVALID_OPTIONS', 'INVALID_OPTIONS INVALID_OPTIONS'])
})

test('a process whose URLs lead nowhere ends by itself', { timeout: 60_000 }, async () => {
  const nowhere = { redis: 'redis://127.0.0.1:1', mysql: 'mysql://root@127.0.0.1:1/app' }
  expect(await says({ redis: nowhere.redis, mysql }, { redis, mysql: nowhere.mysql }, nowhere)).toEqual([
    'closed',
    'MYSQL_UNAVAILABLE closed',
    'MYSQL_UNAVAILABLE closed',
  ])
})
