// Requests that mean no good: ids, bodies and headers built to reach what is not theirs, to end in an internal error, or
// to get into the log.
import pino from 'pino'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ROUTES } from '../../src/http/handler.ts'
import { localAccess } from '../../src/http/index.ts'
import { createClient } from '../../src/index.ts'
import { type Api, type Ask, openApi, pathFor } from './api.ts'

type Text = NonNullable<Ask['text']>

let api: Api
beforeAll(async () => {
  api = await openApi()
})
afterAll(() => api.close())

const send = (session: string, body: unknown, more: object = {}) =>
  api.ask('POST', `/v1/sessions/${session}/messages`, { body, ...more })
const sendText = (session: string, text: Text, headers: Record<string, string> = {}) =>
  api.ask('POST', `/v1/sessions/${session}/messages`, {
    text,
    headers: { 'content-type': 'application/json', ...headers },
  })

/** Everything that there is in either store. */
async function everything(): Promise<unknown> {
  const tables = ['sessions', 'messages', 'entries', 'cursors']
  const rows = await Promise.all(
    tables.map((table) => api.world.rows<{ n: number }>(`SELECT COUNT(*) AS n FROM butler_${table}`)),
  )
  const keys = await api.world.redis.keys(`${api.world.prefix}*`)
  return { rows: rows.map(([row]) => row?.n), keys: keys.sort() }
}

const BODIES: Record<string, unknown> = {
  sendMessages: { text: 'hello' },
  stopSession: {},
  moveCursor: { read: '0' },
  createToken: { rights: ['watch'], ttlSeconds: 60 },
}
const onSessions = ROUTES.filter(({ path }) => path.includes('{id}'))

test('equal names in two tenants meet nowhere (HT-02)', async () => {
  const other = await api.create(['produce', 'watch', 'stop', 'admin'], ['other'])
  const keyed = (session: string, text: string, key: string) =>
    send(session, { text }, { key, headers: { 'idempotency-key': 'same' } })
  expect((await keyed('acme:room', 'of acme', api.keys.acme)).body).toMatchObject({
    seq: 1,
    duplicate: false,
  })
  expect((await keyed('other:room', 'of other', other)).body).toMatchObject({ seq: 1, duplicate: false })
  const before = await everything()
  // Nor does a tenant whose name another one begins with, nor one without a name.
  for (const session of [
    'other:room',
    'acme2:room',
    'acm:room',
    'acme',
    ':room',
    'other:acme:room',
    'new:1',
  ]) {
    for (const { method, path, name } of onSessions) {
      const told = await api.ask(method.toUpperCase(), pathFor(path, session), {
        key: api.keys.acme,
        ...(name in BODIES && { body: BODIES[name] }),
      })
      expect([session, name, told.status]).toEqual([session, name, 404])
      expect(told.body).toMatchObject({ code: 'SESSION_NOT_FOUND' })
    }
  }
  expect(await everything()).toEqual(before)
  const move = (session: string, key: string) =>
    api.ask('PUT', `/v1/sessions/${session}/cursors/phone`, { key, body: { read: '0' } })
  expect((await move('acme:room', api.keys.acme)).body).toMatchObject({ read: '0' })
  expect((await api.ask('GET', '/v1/sessions/other:room/cursors/phone', { key: other })).body).toMatchObject({
    read: null,
  })
  const queueOf = async (session: string, key: string) =>
    (await api.ask('GET', `/v1/sessions/${session}/queue`, { key })).body.messages
  expect(await queueOf('acme:room', api.keys.acme)).toMatchObject([{ payload: 'of acme' }])
  await api.ask('POST', '/v1/sessions/acme:room/stop', { key: api.keys.acme, body: {} })
  expect((await api.ask('GET', '/v1/sessions/other:room', { key: other })).body).toMatchObject({ stopSeq: 0 })
  expect(await queueOf('other:room', other)).toMatchObject([{ payload: 'of other' }])
})

const NO_IDS = [
  '*',
  '%3F',
  '[a]',
  '%7Bx%7D',
  'a%3Aprocessing%2Flock',
  '..%2Fx',
  '%2e%2e%2f',
  '%2e%2e%2fv1%2fsessions',
  'a%00b',
  'a%0d%0aset-cookie:%20a=b',
  'a%20b',
  'a%25',
  '%E2%82%AC',
  '%ff',
  '%',
  "a'%20OR%20'1'='1",
  'a;DROP',
  'a`b',
  'x'.repeat(129),
  'x'.repeat(300),
]
test.each(NO_IDS)('%s names no session, on no route (HT-03)', async (id) => {
  const before = await everything()
  for (const { method, path, name } of onSessions) {
    const body = name in BODIES ? { body: BODIES[name] } : {}
    const told = await api.ask(method.toUpperCase(), pathFor(path, id), body)
    expect([400, 404]).toContain(told.status)
    expect(told.headers.get('set-cookie')).toBeNull()
  }
  for (const reader of [id]) {
    const told = await api.ask('PUT', `/v1/sessions/acme:r/cursors/${reader}`, { body: { read: '0' } })
    expect([400, 404]).toContain(told.status)
  }
  expect(await everything()).toEqual(before)
})

test('names that mean something elsewhere are ordinary sessions, each of its own (HT-03)', async () => {
  const ids = ['__proto__', 'constructor', 'a:processing', 'a:b', 'a', 'toString', 'a:', ':a', '...', 'A:b']
  for (const id of ids) expect(await send(id, { text: id })).toMatchObject({ status: 202, body: { seq: 1 } })
  for (const id of ids) {
    const { body } = await api.ask('GET', `/v1/sessions/${id}/queue`)
    expect(body.messages).toMatchObject([{ payload: id }])
  }
})

test('a body changes nothing but what it names (HT-04)', async () => {
  const nasty =
    '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}},"a":{"__proto__":null}}'
  expect((await sendText('acme:proto', `{"payload":${nasty}}`)).status).toBe(202)
  const read = await api.ask('GET', '/v1/sessions/acme:proto/queue')
  expect(read.text).toContain(`"payload":${nasty}`)
  const before = await everything()
  for (const text of [
    '{"text":"a","__proto__":{"kind":"polluted"}}',
    '{"text":"a","constructor":{"prototype":{"kind":"polluted"}}}',
    '{"__proto__":{"text":"a"}}',
    '[{"__proto__":{"text":"a"}}]',
  ])
    expect([text, (await sendText('acme:proto', text)).status]).toEqual([text, 400])
  for (const query of ['__proto__=1', '__proto__[limit]=1', 'constructor=1'])
    expect((await api.ask('GET', `/v1/sessions?${query}`)).status).toBe(400)
  for (const [path, text] of [
    ['stop', '{"__proto__":{"through":0}}'],
    ['tokens', '{"rights":["watch"],"ttlSeconds":60,"__proto__":{"rights":["stop"]}}'],
  ])
    expect(
      (
        await api.ask('POST', `/v1/sessions/acme:proto/${path}`, {
          text: text!,
          headers: { 'content-type': 'application/json' },
        })
      ).status,
    ).toBe(400)
  expect(await everything()).toEqual(before)
  expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
  expect(({} as { kind?: unknown }).kind).toBeUndefined()
})

test('malformed bodies are the sender’s fault (HT-06)', async () => {
  const bytes = (text: string, encoding: BufferEncoding) =>
    Buffer.from(text, encoding) as Uint8Array<ArrayBuffer>
  const deep = '['.repeat(100_000) + ']'.repeat(100_000)
  const cases: [number, Text, Record<string, string>?][] = [
    [400, '{"text":"a"} trailing'],
    [400, "{'text':'a'}"],
    [400, '{"text":"a",}'],
    [400, '\u0000'],
    [400, bytes('{"text":"a"}', 'utf16le')],
    [400, Buffer.concat([bytes('{"text":"', 'utf8'), Buffer.from([0xc3, 0x28]), bytes('"}', 'utf8')])],
    [400, `{"payload":${deep}}`],
    [400, deep],
    [400, '{"text":"a","payload":1}'],
    [400, '{"payload":1e400}'],
    [400, '{"payload":9007199254740993}'],
    [400, '{"text":"a","kind":"' + 'k'.repeat(65) + '"}'],
    [400, `[${Array(1001).fill('{"text":"a"}').join(',')}]`],
    [413, JSON.stringify({ text: 'x'.repeat(1024 * 1024) })],
    [415, '{"text":"a"}', { 'content-type': 'text/plain' }],
    [415, '{"text":"a"}', { 'content-type': 'application/json; charset=utf-16' }],
    [415, '{"text":"a"}', { 'content-type': 'application/jsonp' }],
    [415, '{"text":"a"}', { 'content-type': 'application/json, text/plain' }],
    [415, gzipSync('{"text":"a"}') as Uint8Array<ArrayBuffer>, { 'content-encoding': 'gzip' }],
    [
      415,
      gzipSync(Buffer.alloc(50_000_000)) as Uint8Array<ArrayBuffer>,
      { 'content-encoding': 'deflate, gzip' },
    ],
  ]
  const before = await everything()
  for (const [status, text, headers] of cases) {
    const told = await sendText('acme:malformed', text, headers)
    const shown = typeof text === 'string' ? text.slice(0, 40) : text
    expect([shown, headers, told.status]).toEqual([shown, headers, status])
  }
  expect(await everything()).toEqual(before)
  // Two that are well-formed, if odd: a mark of the encoding, and a name that stands twice.
  expect((await sendText('acme:bom', '\ufeff{"text":"a"}')).status).toBe(202)
  expect((await sendText('acme:twice', '{"text":"a","text":"b"}')).status).toBe(202)
  expect(
    (await sendText('acme:utf8', '{"text":"a"}', { 'content-type': 'Application/JSON; charset="UTF-8"' }))
      .status,
  ).toBe(202)
  expect((await api.ask('GET', '/v1/sessions/acme:twice/queue')).body.messages).toMatchObject([
    { payload: 'b' },
  ])
})

test('an object where a text or a number belongs goes nowhere near a query (HT-07)', async () => {
  const odd: unknown[] = [{ id: 1 }, ['a'], [['a']], { toString: 'x' }, true, { $gt: '' }]
  const before = await everything()
  for (const value of odd) {
    const bodies: [string, string, unknown][] = [
      ['POST', 'messages', { text: value }],
      ['POST', 'messages', { text: 'a', kind: value }],
      ['POST', 'messages', { text: 'a', source: value }],
      ['POST', 'messages', { text: 'a', whenBusy: value }],
      ['POST', 'messages', [{ text: 'a', key: value }]],
      ['POST', 'messages', [value]],
      ['POST', 'stop', { through: value }],
      ['POST', 'stop', { turn: value }],
      ['POST', 'stop', { wait: value }],
      ['PUT', 'cursors/phone', { read: value }],
      ['PUT', 'cursors/phone', { acknowledged: value }],
      ['POST', 'tokens', { rights: value, ttlSeconds: 60 }],
      ['POST', 'tokens', { rights: ['watch'], ttlSeconds: value }],
    ]
    for (const [method, path, body] of bodies) {
      // A list of a right that is none, not a list of lists.
      const told = await api.ask(method, `/v1/sessions/acme:odd/${path}`, { body })
      expect([path, body, told.status]).toEqual([path, body, 400])
    }
  }
  for (const query of [
    'after[]=1',
    'after[a]=1',
    'limit[$gt]=1',
    'limit=1e3',
    'limit=0x10',
    'limit=%201',
    'after=1&after=2',
  ])
    for (const path of ['/v1/sessions', '/v1/sessions/acme:odd/queue', '/v1/sessions/acme:odd/entries'])
      expect([query, (await api.ask('GET', `${path}?${query}`)).status]).toEqual([query, 400])
  for (const seq of ['1e0', '0x1', '-1', '1.5', '%201', '1%20OR%201', '99999999999999999999', 'null'])
    expect((await api.ask('DELETE', `/v1/sessions/acme:odd/messages/${seq}`)).status).toBe(400)
  expect(await everything()).toEqual(before)
})

test('what a header says splits no header of the answer (HT-08)', async () => {
  for (const key of ['ä', '\u00ff', 'a\tb', 'x'.repeat(201), 'a\u00a0b']) {
    const told = await send('acme:header', { text: 'a' }, { headers: { 'idempotency-key': key } })
    expect([key, told.status, told.body.code]).toEqual([key, 400, 'INVALID_KEY'])
  }
  for (const id of ['ä', '1;2', '1\u00a02', '-1', '1.', 'x'.repeat(71)])
    expect(
      (await api.ask('GET', '/v1/sessions/acme:header/events', { headers: { 'last-event-id': id } })).status,
    ).toBe(400)
  const { status } = await send('acme:header', { text: 'a' }, { headers: { traceparent: 'nonsense\u00ff' } })
  expect(status).toBeLessThan(500)
})

test('a page of another origin is told nothing it may read, unless it is on the list', async () => {
  const listed = api.over(api.client, { corsOrigins: ['https://app.example'] })
  const from = (origin: string, method = 'GET', headers = {}) =>
    listed.ask(method, '/v1/sessions', { key: api.keys.all, headers: { origin, ...headers } })
  const preflight = {
    'access-control-request-method': 'POST',
    'access-control-request-headers': 'authorization',
  }
  const mine = await from('https://app.example')
  expect(mine.headers.get('access-control-allow-origin')).toBe('https://app.example')
  expect(mine.headers.get('vary')).toBe('origin')
  expect(mine.headers.get('access-control-allow-credentials')).toBeNull()
  expect((await from('https://app.example', 'OPTIONS', preflight)).status).toBe(204)
  for (const origin of [
    'https://evil.example',
    'http://app.example',
    'https://app.example.evil',
    'null',
    '*',
  ]) {
    expect((await from(origin)).headers.get('access-control-allow-origin')).toBeNull()
    expect((await from(origin, 'OPTIONS', preflight)).status).toBe(403)
  }
  for (const origin of ['*', 'app.example', 'https://app.example/', 'https://*.example'])
    expect(() => api.over(api.client, { corsOrigins: [origin] })).toThrow('is no origin')
})

test('a server without keys answers nobody but programs of its own machine', async () => {
  const open = api.over(api.client, { access: localAccess(api.tokens, ['https://app.example']) })
  const status = async (headers: Record<string, string>) =>
    (await open.ask('GET', '/v1/sessions', { key: undefined, headers })).status
  for (const host of ['127.0.0.1:7300', 'localhost', 'LOCALHOST:1', '[::1]:7300', '127.1.2.3'])
    expect([host, await status({ host })]).toEqual([host, 200])
  for (const host of [
    '',
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '10.0.0.1:7300',
  ])
    expect([host, await status({ host })]).toEqual([host, 403])
  const host = '127.0.0.1:7300'
  expect(await status({ host, origin: 'http://127.0.0.1:7300' })).toBe(200)
  expect(await status({ host, origin: 'https://app.example' })).toBe(200)
  for (const origin of ['https://evil.example', 'http://127.0.0.1:3000', 'null', 'http://localhost:7300'])
    expect([origin, await status({ host, origin })]).toEqual([origin, 403])
})

test('the log has one line for each record, and no secret in it (HT-09)', async () => {
  const lines: string[] = []
  const logger = pino({ level: 'debug' }, { write: (line: string) => void lines.push(line) })
  const client = createClient({
    redis: api.world.redisUrl,
    mysql: api.world.mysqlUrl,
    prefix: api.world.prefix,
    logger,
  })
  const { ask } = api.over(client, { logger })
  const secret = 'hunter2\n{"level":60,"event":"forged"}'
  const post = (path: string, body: unknown, headers = {}) =>
    ask('POST', path, { key: api.keys.all, body, headers })
  await post('/v1/sessions/acme:log/messages', { text: secret }, { 'idempotency-key': 'key-hunter2' })
  await post('/v1/sessions/acme:log/messages', { text: secret, kind: secret })
  await post('/v1/sessions/acme:log/messages?hunter2=hunter2', { payload: { secret } })
  await post('/v1/sessions/a%0Ahunter3%0A/messages', { text: secret })
  await post('/v1/sessions/acme:log/tokens', { rights: ['watch'], ttlSeconds: 60 })
  const broken = api.over(
    new Proxy(client, {
      get: () => () => {
        throw new Error('two\nlines')
      },
    }),
    { logger },
  )
  await broken.ask('GET', '/v1/sessions/acme:log', { key: api.keys.all })
  await client.close()
  const records = lines.map((line) => JSON.parse(line) as { event: string; path?: string })
  expect(lines.every((line) => line.indexOf('\n') === line.length - 1)).toBe(true)
  expect(records.map(({ event }) => event)).toEqual(expect.arrayContaining(['http.request', 'http.error']))
  expect(records.map(({ path }) => path)).toContain('/v1/sessions/acme:log/messages')
  expect(lines.join('')).not.toMatch(/hunter2|forged|Bearer|eyJ/)
  expect(lines.join('')).not.toContain(api.keys.all)
})

test('an error tells how to do better, and nothing of the inside (HT-12)', async () => {
  const away = api.withoutDatabase()
  const outage = api.over(away)
  const told = [
    await api.ask('GET', '/'),
    await api.ask('GET', '/v1'),
    await api.ask('GET', '/v2/sessions'),
    await api.ask('GET', '/v1/sessions/acme:1/nothing'),
    await api.ask('GET', '/v1/../../etc/passwd'),
    await api.ask('GET', '/v1/sessions/acme:none'),
    await api.ask('GET', '/v1/sessions', { key: 'nobody' }),
    await api.ask('GET', '/v1/sessions?limit=no'),
    await send('acme:1', { text: { a: 1 } }),
    await outage.ask('GET', '/v1/sessions', { key: api.keys.all }),
    await outage.ask('POST', '/v1/sessions/acme:1/messages', { key: api.keys.all, body: { text: 'a' } }),
  ]
  await away.close()
  expect(told.map(({ status }) => status)).toEqual([404, 404, 404, 404, 404, 404, 401, 400, 400, 503, 503])
  for (const method of ['PATCH', 'PUT', 'DELETE', 'POST', 'TRACEX'])
    told.push(await api.ask(method, '/v1/sessions'))
  const methods = told.slice(-5)
  expect(methods.map(({ status }) => status)).toEqual([405, 405, 405, 405, 405])
  expect(methods[0]?.headers.get('allow')).toBe('GET')
  for (const { text, headers, body } of told) {
    expect(headers.get('content-type')).toBe('application/problem+json')
    expect(body.code).toMatch(/^[A-Z_]+$/)
    expect(text).not.toMatch(
      /\bat .*:\d+|\.ts\b|\.js\b|node_modules|butler_|select |ECONN|127\.0\.0\.1|root@|\bzod\b/i,
    )
    for (const name of ['server', 'x-powered-by']) expect(headers.get(name)).toBeNull()
    expect(headers.get('x-content-type-options')).toBe('nosniff')
  }
})
