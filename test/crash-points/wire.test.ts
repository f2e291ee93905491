// Whether the wire counts replies and not packets, against real servers.
import { Redis } from 'ioredis'
import { createConnection } from 'mysql2/promise'
import { afterEach, expect, test } from 'vitest'
import { services } from '../support/services.ts'
import { Tally } from './tally.ts'
import { Wire } from './wire.ts'

const BIG = 'x'.repeat(300_000)
const wires: Wire[] = []
afterEach(async () => void (await Promise.all(wires.splice(0).map((wire) => wire.close()))))

async function open(store: 'redis' | 'mysql') {
  const tally = new Tally()
  const wire = await Wire.open(store, services()[`${store}Url`], tally)
  wires.push(wire)
  return { tally, url: wire.url }
}

test('each command of a pipeline has one reply, however large or nested; so has a notice', async () => {
  const { tally, url } = await open('redis')
  const redis = new Redis(url, { enableReadyCheck: false })
  const subscriber = new Redis(url, { enableReadyCheck: false })
  await redis.ping()
  await subscriber.subscribe('crash-wire')
  const heard = new Promise((resolve) => subscriber.once('message', resolve))
  tally.reset(undefined)
  await redis
    .pipeline()
    .echo(`chat-1 ${BIG}`)
    .echo('')
    .eval("return {1, {'a', {}}, false, 'chat-1'}", 0)
    .get('crash-wire-missing')
    .exec()
  await redis.publish('crash-wire', 'chat-1')
  await heard
  redis.disconnect()
  subscriber.disconnect()
  // The echo, the publish and the notice name the session; so does the script.
  expect(tally.counts).toEqual({ redis: 4, mysql: 0, loops: 2 })
})

test('a request to MySQL has one reply, however many results, rows and packets; so has a refused one', async () => {
  const { tally, url } = await open('mysql')
  const nowhere = new URL(url)
  // A given server need not have the database of its URL.
  nowhere.pathname = '/'
  const mysql = await createConnection({ uri: nowhere.href, multipleStatements: true })
  tally.reset(undefined)
  await mysql.query("select 'chat-1', null, '' union all select ?, 1, 2; set @a = 1; select 1 where 1 = 0", [
    BIG,
  ])
  await mysql.query('commit')
  await mysql.query('select * from nowhere.nothing').catch(() => undefined)
  await mysql.ping()
  mysql.destroy()
  // The commit ends what the first one began.
  expect(tally.counts).toEqual({ redis: 0, mysql: 2, loops: 2 })
})

test.each([
  ['before', 'pending'],
  ['after', 'answered'],
] as const)('a trap %s a reply leaves the request %s', async (when, expected) => {
  const { tally, url } = await open('redis')
  const redis = new Redis(url, { enableReadyCheck: false })
  await redis.ping()
  const sprung = new Promise<string>((spring) => tally.reset({ kind: 'redis', at: 2, when, spring }))
  const second = redis
    .echo('chat-1')
    .then(() => redis.echo('chat-1 again'))
    .then(() => 'answered')
  expect(await sprung).toBe('echo chat-1 again')
  const pause = new Promise((resolve) => setImmediate(() => setTimeout(resolve, 50, 'pending')))
  expect(await Promise.race([second, pause])).toBe(expected)
  redis.disconnect()
  await second.catch(() => undefined)
})
