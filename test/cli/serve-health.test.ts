// `butler serve` answers probes and Prometheus: what /readyz and /metrics say is what its worker says of itself.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { freshDatabase, freshPrefix, services } from '../support/services.ts'
import { migrate } from '../../src/index.ts'
import { build, endPrograms, Program } from './program.ts'

let database: Awaited<ReturnType<typeof freshDatabase>>

beforeAll(async () => {
  await build()
  database = await freshDatabase()
  await migrate(database.url)
}, 120_000)
afterAll(() => database.drop())
endPrograms()

test.each([
  ['with a worker', ['test/cli/handlers.ts'], 'worker'],
  ['without one', ['--no-work'], 'client'],
])('serve %s is ready, is measured, and ends in order', { timeout: 90_000 }, async (_what, how, part) => {
  const env = {
    BUTLER_MYSQL_URL: database.url,
    BUTLER_REDIS_URL: services().redisUrl,
    BUTLER_PREFIX: freshPrefix(),
  }
  const serve = new Program(['serve', ...how, '--no-auth', '--port', '0', '--grace', '1'], env)
  await serve.says('http.listening')
  const url = /http:\/\/127\.0\.0\.1:\d+/.exec(serve.stderr)?.[0] ?? 'none'
  const get = async (path: string) => {
    const response = await fetch(url + path)
    return { status: response.status, text: await response.text() }
  }
  await eventually(async () =>
    expect(await get('/readyz')).toEqual({ status: 200, text: '{"ready":true,"problems":[]}' }),
  )
  const { text } = await get('/metrics')
  expect(text).toContain(`butler_ready{part="${part}"} 1`)
  expect(text).toContain('butler_turns_started_total 0')
  expect((await get('/healthz')).status).toBe(200)
  serve.child.kill('SIGTERM')
  expect((await serve.ended).code).toBe(0)
})
