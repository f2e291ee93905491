// Whatever is wrong with a call is told by its code, and neither store hears of it.
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  type Audit,
  type Client,
  createClient,
  createLogger,
  createWorker,
  diagnose,
  openAudit,
  type Worker,
} from '../../src/index.ts'
import { freshDatabase } from '../support/services.ts'
import { FAST, failure, openHouse, signal } from './house.ts'

const house = openHouse()

let client: Client
let audit: Audit
beforeAll(() => {
  audit = openAudit(house.url)
  client = createClient({ redis: house.redisUrl, mysql: house.url, prefix: house.prefix, ...FAST })
})
afterAll(() => Promise.all([client.close(), audit.close()]))

const cycle: Record<string, unknown> = {}
cycle['self'] = { cycle }
const deep = (levels: number): unknown => (levels === 0 ? 1 : [deep(levels - 1)])
const any = (value: unknown) => value as never

const send = (payload: unknown) => (client: Client, id: string) => client.enqueue(id, { payload })
const withOptions = (options: unknown) => (client: Client, id: string) =>
  client.enqueue(id, 'x', any(options))
const toId = (id: unknown) => (client: Client) => client.enqueue(any(id), 'x')

test.each<[string, string, (client: Client, id: string) => Promise<unknown>]>([
  ...['', '.', '..', 'a b', 'ä', 'a/b', 'a{b}', 'a\n', 'x'.repeat(129), 7, null, undefined, {}].map(
    (id): [string, string, (client: Client) => Promise<unknown>] => [
      `session id ${String(JSON.stringify(id)).slice(0, 20)}`,
      'INVALID_SESSION_ID',
      toId(id),
    ],
  ),
  ['key empty', 'INVALID_KEY', withOptions({ idempotencyKey: '' })],
  ['key with a space at its end', 'INVALID_KEY', withOptions({ idempotencyKey: 'k ' })],
  ['key beyond ASCII', 'INVALID_KEY', withOptions({ idempotencyKey: 'ключ' })],
  ['key of 201', 'INVALID_KEY', withOptions({ idempotencyKey: 'k'.repeat(201) })],
  ['key a number', 'INVALID_KEY', withOptions({ idempotencyKey: 7 })],
  ['payload too large', 'PAYLOAD_TOO_LARGE', send('x'.repeat(1024 ** 2))],
  ['payload too large in bytes only', 'PAYLOAD_TOO_LARGE', send('€'.repeat(400_000))],
  ['payload too deep', 'PAYLOAD_TOO_DEEP', send(deep(65))],
  ['payload far too deep', 'PAYLOAD_TOO_DEEP', send(deep(5000))],
  ['payload NaN', 'PAYLOAD_NOT_JSON', send({ a: [NaN] })],
  ['payload Infinity', 'PAYLOAD_NOT_JSON', send(-Infinity)],
  ['payload BigInt', 'PAYLOAD_NOT_JSON', send(7n)],
  ['payload beyond 2^53', 'PAYLOAD_NOT_JSON', send({ id: 2 ** 53 })],
  ['payload undefined', 'PAYLOAD_NOT_JSON', send(undefined)],
  ['payload with undefined in a list', 'PAYLOAD_NOT_JSON', send([undefined])],
  ['payload function', 'PAYLOAD_NOT_JSON', send(() => 1)],
  ['payload cycle', 'PAYLOAD_NOT_JSON', send(cycle)],
  ['payload Map', 'PAYLOAD_NOT_JSON', send(new Map())],
  ['message null', 'INVALID_MESSAGE', (client, id) => client.enqueue(id, any(null))],
  ['message number', 'INVALID_MESSAGE', (client, id) => client.enqueue(id, any(7))],
  ['message without payload', 'INVALID_MESSAGE', (client, id) => client.enqueue(id, any({ kind: 'x' }))],
  [
    'an option within the message',
    'INVALID_MESSAGE',
    (client, id) => client.enqueue(id, any({ payload: 1, idempotencyKey: 'k' })),
  ],
  ['kind with a space', 'INVALID_MESSAGE', (client, id) => client.enqueue(id, { kind: 'a b', payload: 1 })],
  ['kind of 65', 'INVALID_MESSAGE', (client, id) => client.enqueue(id, { kind: 'k'.repeat(65), payload: 1 })],
  ['unknown option', 'INVALID_OPTIONS', withOptions({ idempotencykey: 'k' })],
  ['options null', 'INVALID_OPTIONS', withOptions(null)],
  ['options a string', 'INVALID_OPTIONS', withOptions('reject')],
  ['unknown source', 'INVALID_ARGUMENT', withOptions({ source: 'robot' })],
  ['unknown whenBusy', 'INVALID_ARGUMENT', withOptions({ whenBusy: 'wait' })],
  ['traceparent', 'INVALID_ARGUMENT', withOptions({ traceparent: 'x' })],
  ['trx that is no transaction', 'INVALID_ARGUMENT', withOptions({ trx: {} })],
  [
    'trx within a list',
    'INVALID_OPTIONS',
    (client, id) => client.enqueueMany([any({ sessionId: id, message: 'x', trx: {} })]),
  ],
  [
    'one bad of several',
    'INVALID_SESSION_ID',
    (client, id) =>
      client.enqueueMany([
        { sessionId: id, message: 'x' },
        { sessionId: '', message: 'x' },
      ]),
  ],
  ['items no list', 'INVALID_ARGUMENT', (client) => client.enqueueMany(any('x'))],
  ['prune with a signal that is none', 'INVALID_ARGUMENT', (client) => client.prune({}, any({ signal: 1 }))],
  ['an item null', 'INVALID_MESSAGE', (client) => client.enqueueMany([any(null)])],
  [
    'unknown option of enqueueMany',
    'INVALID_OPTIONS',
    (client) => client.enqueueMany([], any({ source: 'user' })),
  ],
  ['stop misspelt', 'INVALID_OPTIONS', (client, id) => client.stop(id, any({ throgh: 1 }))],
  ['stop through -1', 'INVALID_ARGUMENT', (client, id) => client.stop(id, { through: -1 })],
  ['stop through 1.5', 'INVALID_ARGUMENT', (client, id) => client.stop(id, { through: 1.5 })],
  ['withdraw 0', 'INVALID_ARGUMENT', (client, id) => client.withdraw(id, 0)],
  ['retry NaN', 'INVALID_ARGUMENT', (client, id) => client.retry(id, NaN)],
  ['transcript limit', 'INVALID_ARGUMENT', (client, id) => client.transcript(id, { limit: 1001 })],
  ['transcript after', 'INVALID_ARGUMENT', (client, id) => client.transcript(id, { after: 2 ** 53 })],
  ['queue limit', 'INVALID_ARGUMENT', (client, id) => client.queue(id, { limit: 0 })],
  ['sessions state', 'INVALID_ARGUMENT', (client) => client.sessions({ state: any('lost') })],
  ['prune misspelt', 'INVALID_OPTIONS', (client) => client.prune(any({ messageMs: 1 }))],
  ['prune negative', 'INVALID_ARGUMENT', (client) => client.prune({ messagesMs: -1 })],
])(
  'I1 · %s is refused with %s and writes nothing (HT-03, HT-07, PE-03, PE-04, PE-05, PE-06, PI-09, SS-07)',
  async (_what, code, call) => {
    const before = await house.everything()
    const error = await failure(call(client, 'bad-input'))
    expect(error).toMatchObject({ name: 'InvalidInputError', code })
    expect(String(error).length).toBeLessThan(400)
    expect(await house.everything()).toEqual(before)
  },
)

const typo = any({ tpyo: 1 })

test.each<[string, (client: Client, worker: Worker, id: string) => unknown]>([
  ['createClient', () => createClient(typo)],
  ['createWorker', () => createWorker(any({ handler() {}, tpyo: 1 }))],
  ['createLogger', () => createLogger(typo)],
  ['diagnose', () => diagnose(typo)],
  ['enqueue', (client, _, id) => client.enqueue(id, 'x', typo)],
  ['enqueueMany', (client) => client.enqueueMany([], typo)],
  [
    'an item of enqueueMany',
    (client) => client.enqueueMany([{ sessionId: 'a', message: 'x', tpyo: 1 } as never]),
  ],
  ['queue', (client, _, id) => client.queue(id, typo)],
  ['stop', (client, _, id) => client.stop(id, typo)],
  ['transcript', (client, _, id) => client.transcript(id, typo)],
  ['sessions', (client) => client.sessions(typo)],
  ['prune, among the ages', (client) => client.prune(typo)],
  ['prune', (client) => client.prune({}, typo)],
  ['times of an audit', (_client, _, id) => audit.times(id, typo)],
  ['worker.drain', (_, worker) => worker.drain(typo)],
  ['worker.stop', (_, worker) => worker.stop(typo)],
  ['worker.on', (_, worker) => worker.on(any('tpyo'), () => {})],
])('a misspelt option of %s is named, and nothing is done', async (_what, call) => {
  const worker = house.newWorker(() => {})
  await client.enqueue('misspelt', 'x')
  const before = await house.everything()
  const error = await failure((async () => call(client, worker, 'misspelt'))())
  expect(error).toMatchObject({ name: 'InvalidInputError', code: 'INVALID_OPTIONS' })
  expect(String(error)).toContain('tpyo')
  expect(worker.stats().state).toBe('new')
  expect(await house.everything()).toEqual(before)
})

test('a misspelt option of turn.history is named', async () => {
  const told = signal<unknown>()
  await house.worker(async (turn) => told.resolve(await failure(turn.history(typo))))
  await client.enqueue('history', 'x')
  expect(await told.promise).toMatchObject({
    code: 'INVALID_OPTIONS',
    message: expect.stringContaining('tpyo'),
  })
})

test('what is wrong with stop or drain leaves the worker as it was, and it can still be stopped', async () => {
  const worker = await house.worker(() => {})
  for (const graceMs of [-1, 1.5, any('1')]) {
    await expect(worker.drain({ graceMs })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(worker.stop({ graceMs })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
  }
  expect(worker.stats().state).toBe('running')
  await worker.stop()
  expect(worker.stats().state).toBe('stopped')
})

test('a listener that is no function, and a level that is none, are refused; a misspelt event gets advice', () => {
  const worker = house.newWorker(() => {})
  expect(() => worker.on('turn.started', any(7))).toThrow('A listener is a function')
  expect(() => worker.on(any('turn.startet'), () => {})).toThrow('did you mean turn.started?')
  expect(() => worker.on(any('toString'), () => {})).toThrow('There is no event "toString"')
  expect(() => createLogger({ level: any('loud') })).toThrow('level "loud" is not allowed')
})

test.each<[string, string, (client: Client, id: string) => Promise<unknown>]>([
  ['stop', 'SESSION_NOT_FOUND', (client, id) => client.stop(id)],
  ['withdraw', 'SESSION_NOT_FOUND', (client, id) => client.withdraw(id, 1)],
  ['retry', 'MESSAGE_NOT_FOUND', (client, id) => client.retry(id, 1)],
  ['delete', 'SESSION_NOT_FOUND', (client, id) => client.delete(id)],
  ['transcript', 'SESSION_NOT_FOUND', (client, id) => client.transcript(id)],
  ['queue', 'SESSION_NOT_FOUND', (client, id) => client.queue(id)],
  ['inspect', 'SESSION_NOT_FOUND', (client, id) => client.inspect(id)],
  ['explain', 'SESSION_NOT_FOUND', (client, id) => client.explain(id)],
])('%s of an unknown session says %s and creates none (PI-09)', async (_what, code, call) => {
  const before = await house.everything()
  await expect(call(client, 'nobody')).rejects.toMatchObject({ name: 'NotFoundError', code })
  expect(await house.everything()).toEqual(before)
  expect(await client.sessions()).toEqual([])
})

test.each([
  ['an unknown option', { lockTtl: 1 }],
  ['a TTL too short', { lockTtlMs: 10 }],
  ['a renewal too rare', { renewMs: 2000 }],
  ['a heartbeat too rare', { heartbeatMs: 1000, heartbeatTtlMs: 1500 }],
  ['a Redis deadline beyond the renewal', { redisTimeoutMs: 2000 }],
  ['entries smaller than messages', { entryMaxBytes: 1000 }],
  ['a prefix with a brace', { prefix: 'a{b}' }],
  ['a retention that is a number', { retention: 7 }],
  ['a logger that is a word', { logger: 'warn' }],
  ['a logger that is null', { logger: null }],
  ['a logger without levels', { logger: console }],
  ['no Redis', { redis: undefined }],
  ['a Redis URL of another kind', { redis: 'http://localhost' }],
  ['a Redis URL that is none', { redis: 'localhost:6379' }],
  ['no MySQL', { mysql: undefined }],
  ['a MySQL URL of another kind', { mysql: 'postgres://localhost/app' }],
  ['a MySQL URL without database', { mysql: 'mysql://root@localhost' }],
  ['a MySQL that is no pool', { mysql: {} }],
])('%s is refused when a client or a worker is made', (_what, wrong) => {
  const options = {
    redis: 'redis://127.0.0.1:1',
    mysql: 'mysql://root:SECRET@127.0.0.1:1/app',
    ...FAST,
    ...wrong,
  }
  const attempts = [
    () => createClient(any(options)),
    () => createWorker(any({ ...options, handler: () => {} })),
  ]
  for (const attempt of attempts) {
    expect(attempt).toThrow(expect.objectContaining({ name: 'InvalidInputError', code: 'INVALID_OPTIONS' }))
    expect(attempt).toThrow(expect.not.objectContaining({ message: expect.stringContaining('SECRET') }))
  }
})

test.each([
  ['no handler', {}],
  ['no handler for any kind', { handlers: {} }],
  ['a handler that is no function', { handler: 'x' }],
  ['a handler that is no function for a kind', { handlers: { a: 7 } }],
])('a worker with %s is refused', (_what, options) => {
  const make = (): Worker =>
    createWorker(any({ redis: 'redis://127.0.0.1:1', mysql: 'mysql://root@127.0.0.1:1/app', ...options }))
  expect(make).toThrow(expect.objectContaining({ code: 'INVALID_OPTIONS' }))
})

test('a database without our tables is told as a missing migration, by every call and by the start of a worker', async () => {
  const empty = await freshDatabase()
  try {
    const client = house.client({ mysql: empty.url })
    const pending = { name: 'UnavailableError', code: 'MIGRATION_PENDING' }
    await expect(client.enqueue('a', 'x')).rejects.toMatchObject(pending)
    await expect(client.stop('a')).rejects.toMatchObject(pending)
    await expect(client.transcript('a')).rejects.toMatchObject(pending)
    const worker = house.newWorker(() => {}, { mysql: empty.url })
    await expect(worker.start()).rejects.toMatchObject(pending)
    expect(worker.stats().state).toBe('new')
    expect(await house.redisKeys()).toEqual([])
    await Promise.all([client.close(), worker.stop()])
  } finally {
    await empty.drop()
  }
})

test('a closed client says so, and closing it again is harmless', async () => {
  const closed = house.client()
  await Promise.all([closed.close(), closed.close()])
  const calls = [closed.enqueue('a', 'x'), closed.stop('a'), closed.transcript('a'), closed.prune({})]
  const error = { name: 'ClosedError', code: 'CLOSED' }
  expect(await Promise.all(calls.map(failure))).toMatchObject(calls.map(() => error))
})
