// The server itself: what a client may do to it, what its streams look like on the wire, and how it leaves.
import { connect, type Socket } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import type { Client, Logger } from '../../src/index.ts'
import { createHttpHandler, openAccess } from '../../src/http/index.ts'
import { events, type Sent } from '../service/stream.ts'
import { eventually } from '../traps/world.ts'
import { openServed } from './served.ts'

type Served = Awaited<ReturnType<typeof openServed>>
let served: Served | undefined
afterEach(async () => {
  await served?.close()
  served = undefined
})
const open = async (...args: Parameters<typeof openServed>): Promise<Served> =>
  (served = await openServed(...args))

/** A connection of bytes. */
async function raw(
  url: string,
  text: string,
): Promise<{ socket: Socket; heard: () => string; closed: Promise<void> }> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  let heard = ''
  socket.setEncoding('latin1').on('data', (chunk: string) => (heard += chunk))
  socket.on('error', () => undefined)
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))
  socket.write(text)
  return { socket, heard: () => heard, closed }
}

const post = (body: string, headers: string[] = []) =>
  [
    'POST /v1/sessions/acme:raw/messages HTTP/1.1',
    'host: x',
    'content-type: application/json',
    ...headers,
    '',
    body,
  ].join('\r\n')

describe('requests', () => {
  test('that are malformed are refused, and nobody else notices (HT-05, HT-06)', async () => {
    const { urls, key, api } = await open(1)
    const [url] = urls as [string]
    const auth = `authorization: Bearer ${key}`
    const idle = await Promise.all(
      Array.from({ length: 200 }, () => raw(url, 'GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: ')),
    )
    const both = await raw(url, post('0\r\n\r\n', [auth, 'content-length: 5', 'transfer-encoding: chunked']))
    const endless = await raw(url, post('', [auth, 'transfer-encoding: chunked']))
    const feed = setInterval(() => endless.socket.write(`10000\r\n${'x'.repeat(0x10000)}\r\n`), 1)
    const huge = await raw(url, post('', [auth, 'content-length: 5000000000']))
    const long = await raw(url, `GET /healthz HTTP/1.1\r\nhost: x\r\nx: ${'y'.repeat(40_000)}\r\n\r\n`)
    await Promise.all([both.closed, long.closed])
    expect(both.heard()).toMatch(/^HTTP\/1\.1 400/)
    expect(long.heard()).toMatch(/^HTTP\/1\.1 431/)
    await eventually(() => /413/.test(endless.heard()) && /413/.test(huge.heard()), 'both are refused')
    clearInterval(feed)
    expect((await fetch(`${url}/healthz`)).status).toBe(200)
    for (const { socket } of [...idle, endless, huge]) socket.destroy()
    expect((await api.client.sessions()).length).toBe(0)
  })

  test('with hostile names and headers touch nothing (HT-03, HT-07, HT-08)', async () => {
    const { urls, key, api } = await open(1)
    const keys = async () => (await api.world.redis.keys(`${api.world.prefix}*`)).sort()
    const before = await keys()
    const ids = [
      '*',
      '%3F',
      '%5Ba%5D',
      '%7Bx%7D',
      'a%2Fprocessing',
      '..%2Fx',
      '%00',
      'a%0D%0Ab',
      'x'.repeat(300),
      '%2e%2e',
      'a b',
      '%F0%9F%98%80',
      '%zz',
    ]
    for (const id of ids) {
      const response = await fetch(`${urls[0]}/v1/sessions/${id}/messages`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        body: '{"text":"x"}',
      })
      expect([400, 404]).toContain(response.status)
      await response.text()
    }
    for (const body of [
      '{"text":{"a":1}}',
      '{"kind":["a"],"text":"x"}',
      '{"text":"x","source":{}}',
      '{"payload":1,"text":"x"}',
    ])
      expect(
        (
          await api.ask('POST', '/v1/sessions/acme:x/messages', {
            text: body,
            headers: { 'content-type': 'application/json' },
          })
        ).status,
      ).toBe(400)
    for (const name of ['\u00e4\u00f6', 'x'.repeat(201)])
      expect(
        (
          await api.ask('POST', '/v1/sessions/acme:x/messages', {
            body: { text: 'x' },
            headers: { 'idempotency-key': `a${name}b` },
          })
        ).status,
      ).toBe(400)
    const split = await raw(
      urls[0]!,
      post('{"text":"x"}', [`authorization: Bearer ${key}`, 'idempotency-key: a\rb', 'content-length: 12']),
    )
    await split.closed
    expect(split.heard()).toMatch(/^HTTP\/1\.1 400/)
    expect(await keys()).toEqual(before)
    expect(await api.client.sessions()).toEqual([])
  })

  test('cannot change what objects are (HT-04)', async () => {
    const { api } = await open(0)
    const text = '{"payload":{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}}}}'
    const headers = { 'content-type': 'application/json' }
    expect((await api.ask('POST', '/v1/sessions/acme:proto/messages', { text, headers })).status).toBe(202)
    expect(({} as { admin?: boolean }).admin).toBeUndefined()
    const { body, text: answer } = await api.ask('GET', '/v1/sessions/acme:proto/queue')
    expect(answer).toContain('"__proto__":{"admin":true}')
    expect(body.messages[0].payload.admin).toBeUndefined()
    const outside = '{"text":"x","__proto__":{"kind":"y"}}'
    expect(
      (await api.ask('POST', '/v1/sessions/acme:proto/messages', { text: outside, headers })).status,
    ).toBe(400)
  })

  test('of pages from elsewhere are not allowed, but for those that are', async () => {
    const { urls, api } = await open(1, { corsOrigins: ['https://app.example'] })
    const ask = async (origin: string) => {
      const response = await fetch(`${urls[0]}/v1/sessions`, {
        method: 'OPTIONS',
        headers: { origin, 'access-control-request-method': 'GET' },
      })
      return [response.status, response.headers.get('access-control-allow-origin')]
    }
    expect(await ask('https://app.example')).toEqual([204, 'https://app.example'])
    expect(await ask('https://evil.example')).toEqual([403, null])
    expect(() =>
      createHttpHandler({
        client: api.client,
        access: openAccess(),
        corsOrigins: ['*'],
      }),
    ).toThrow(/origin/)
  })

  test('leave no line in the log but their own, and nothing of what they carry (HT-09)', async () => {
    const lines: object[] = []
    const write = (line: object) => void lines.push(line)
    const logger = {
      error: write,
      warn: write,
      info: write,
      debug: write,
      isLevelEnabled: () => true,
    } as unknown as Logger
    const { urls, key, api } = await open(1, { logger })
    await fetch(`${urls[0]}/v1/sessions/acme:log/messages`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: '{"text":"a secret\\n{\\"level\\":50}"}',
    })
    await fetch(`${urls[0]}/v1/%0A%7B%22level%22:50%7D?token=hidden`, {
      headers: { authorization: 'Bearer hidden' },
    })
    const broken = createHttpHandler({ client: {} as Client, access: api.access, logger })
    const request = new Request('http://x/v1/sessions/acme:log', {
      headers: { authorization: `Bearer ${key}` },
    })
    expect((await broken.fetch(request)).status).toBe(500)
    const text = lines.map((line) => JSON.stringify(line)).join('\n')
    expect(lines.length).toBeGreaterThanOrEqual(4)
    expect(text).toContain('http.error')
    for (const hidden of ['secret', 'hidden', key.slice(3), '\\n{']) expect(text).not.toContain(hidden)
  })

  test('to what is not there, or not in that way, say so', async () => {
    const { api } = await open(0)
    expect(await api.ask('GET', '/v1/nonsense')).toMatchObject({ status: 404, body: { code: 'NOT_FOUND' } })
    const wrong = await api.ask('PATCH', '/v1/sessions/acme:x')
    expect(wrong).toMatchObject({ status: 405, body: { code: 'METHOD_NOT_ALLOWED' } })
    expect(wrong.headers.get('allow')).toBe('GET, DELETE')
    expect((await api.ask('GET', '/v1/openapi.json', { key: undefined })).body).toMatchObject({
      openapi: '3.1.0',
    })
  })
})

describe('streams', () => {
  test('are open at once, stay alive, and are not held back by proxies (SS-10)', async () => {
    const { urls, key, api } = await open(1, { keepAliveMs: 50 })
    await api.client.enqueue('acme:live', 'x')
    const stream = await raw(
      urls[0]!,
      `GET /v1/sessions/acme:live/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\n\r\n`,
    )
    await eventually(() => /: open\n\n/.test(stream.heard()), 'it is open')
    for (const header of [
      'content-type: text/event-stream',
      'cache-control: no-store, no-transform',
      'x-accel-buffering: no',
    ])
      expect(stream.heard().toLowerCase()).toContain(header)
    expect(stream.heard()).toMatch(/retry: \d+\n/)
    await eventually(() => stream.heard().split(': keep-alive\n\n').length > 3, 'it is kept alive')
    stream.socket.destroy()
  })

  test('end no turn when their client leaves, and a later stop does (ST-09)', async () => {
    const { urls, key, api } = await open(2)
    await api.work()
    await api.client.enqueue('acme:left', 'wait')
    const over = new AbortController()
    const reading = events(urls[0]!, { session: 'acme:left', key, signal: over.signal })
    await reading.next()
    await api.stage.began()
    over.abort()
    await reading.next().catch(() => undefined)
    await eventually(() => served!.fronts[0]!.handler.streams === 0, 'the stream is gone')
    expect(api.stage.turn().signal.aborted).toBe(false)
    const response = await fetch(`${urls[1]}/v1/sessions/acme:left/stop`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: '{"wait":20}',
    })
    expect(await response.json()).toMatchObject({ quiet: true, outcomes: [{ seq: 1, outcome: 'aborted' }] })
  })

  test('of a thousand clients that come and go leave nothing behind (SS-14)', async () => {
    const { urls, key, api } = await open(1)
    await api.client.enqueue('acme:gone', 'x')
    for (let round = 0; round < 20; round++) {
      const over = new AbortController()
      const reading = Array.from({ length: 50 }, async () => {
        const stream = events(urls[0]!, { session: 'acme:gone', key, signal: over.signal })
        await stream.next().catch(() => undefined)
      })
      await Promise.all(reading)
      over.abort()
    }
    await eventually(() => served!.fronts[0]!.handler.streams === 0, 'all streams are gone')
  })

  test('of a key that is revoked, and of a token that is over, end; what is too much is refused (HT-11)', async () => {
    const { urls, api } = await open(1, { keepAliveMs: 50, streamsMax: 2 })
    await api.client.enqueue('acme:key', 'x')
    const secret = await api.create(['watch'])
    const { token } = await api.tokens.sign('acme:key', ['watch'], 2)
    const reads = [secret, token].map((key) => ends(urls[0]!, 'acme:key', key))
    await eventually(() => served!.fronts[0]!.handler.streams === 2, 'both are open')
    const third = await fetch(`${urls[0]}/v1/sessions/acme:key/events`, {
      headers: { authorization: `Bearer ${api.keys.all}` },
    })
    expect([third.status, third.headers.get('retry-after')]).toEqual([503, '1'])
    await third.text()
    await api.keyring.revoke(/bk_(\w{12})/.exec(secret)![1]!)
    for (const last of await Promise.all(reads))
      expect(last).toMatchObject({ event: 'reconnect', data: { why: 'expired' } })
  })

  test('are told to go on elsewhere when their server leaves, which waits for nobody (SD-10)', async () => {
    const { urls, key, api, fronts } = await open(2)
    await api.client.enqueue('acme:drain', 'x')
    const reads = Array.from({ length: 20 }, () => ends(urls[0]!, 'acme:drain', key))
    const idle = await Promise.all(
      Array.from({ length: 20 }, () => raw(urls[0]!, 'GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n')),
    )
    await eventually(
      () => fronts[0]!.handler.streams === 20 && idle.every(({ heard }) => /200/.test(heard())),
      'all are there',
    )
    expect((await fetch(`${urls[0]}/readyz`)).status).toBe(200)
    fronts[0]!.handler.drain()
    expect((await fetch(`${urls[0]}/readyz`)).status).toBe(503)
    const late = await fetch(`${urls[0]}/v1/sessions/acme:drain/events`, {
      headers: { authorization: `Bearer ${key}` },
    })
    expect(late.status).toBe(503)
    await late.text()
    await fronts[0]!.server.close(10_000)
    for (const last of await Promise.all(reads))
      expect(last).toMatchObject({ event: 'reconnect', id: last?.data.cursor, data: { why: 'draining' } })
    await Promise.all(idle.map(({ closed }) => closed))
  })
})

/** The last event of a stream. */
async function ends(url: string, session: string, key: string): Promise<Sent | undefined> {
  let last: Sent | undefined
  for await (const sent of events(url, { session, key })) last = sent
  return last
}
