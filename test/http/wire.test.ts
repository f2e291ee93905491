// The server on a real port: clients that are slow, endless, too many, or do not speak HTTP as one should.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type HttpServer, listen } from '../../src/http/server.ts'
import { createHttpHandler, type HttpOptions } from '../../src/http/index.ts'
import { sleep, until } from '../support/eventually.ts'
import { eventually } from '../traps/world.ts'
import { type Api, openApi } from './api.ts'
import { head, raw } from './raw.ts'

let api: Api
beforeAll(async () => {
  api = await openApi()
})
afterAll(() => api.close())

type Limits = Partial<Parameters<typeof listen>[1]>

async function serving(
  use: (server: HttpServer, ask: (path: string, init?: RequestInit) => Promise<Response>) => Promise<void>,
  { limits = {}, ...http }: Partial<HttpOptions> & { limits?: Limits } = {},
): Promise<void> {
  const { client, access } = api
  const handler = createHttpHandler({ client, access, logger: false, ...http })
  const server = await listen(handler, { host: '127.0.0.1', port: 0, ...limits })
  const ask = (path: string, init: RequestInit = {}) =>
    fetch(server.url + path, {
      ...init,
      headers: {
        authorization: `Bearer ${api.keys.all}`,
        connection: 'close',
        ...(init.headers as Record<string, string>),
      },
    })
  try {
    await use(server, ask)
  } finally {
    await server.close(0)
  }
}

const post = (session: string, ...more: string[]) => [
  `POST /v1/sessions/${session}/messages HTTP/1.1`,
  'host: butler',
  `authorization: Bearer ${api.keys.all}`,
  'content-type: application/json',
  ...more,
]
const statusOf = (heard: string) => Number(/^HTTP\/1\.1 (\d{3})/.exec(heard)?.[1])

test('a header that stands twice says nothing about who it is (HT-01)', async () => {
  await serving(async ({ url }) => {
    const key = `authorization: Bearer ${api.keys.all}`
    const ask = async (...headers: string[]) => {
      const { closed } = await raw(
        url,
        head(['GET /v1/sessions HTTP/1.1', 'host: butler', 'connection: close', ...headers]),
      )
      return statusOf(await closed)
    }
    expect(await ask(key)).toBe(200)
    expect(await ask(key, key)).toBe(401)
    expect(await ask(key, 'authorization: Bearer nobody')).toBe(401)
    expect(await ask('authorization: Bearer nobody', key)).toBe(401)
    expect(await ask(`Cookie: authorization=Bearer ${api.keys.all}`)).toBe(401)
    expect(await ask(`Proxy-Authorization: Bearer ${api.keys.all}`)).toBe(401)
  })
})

test('who is slow with a request is cut off, and nobody else notices (HT-05)', async () => {
  await serving(
    async ({ url }, ask) => {
      const half = `POST /v1/sessions/acme:slow/messages HTTP/1.1\r\nhost: butler\r\nx-slow: `
      const headers = await Promise.all(Array.from({ length: 200 }, () => raw(url, half)))
      const bodies = await Promise.all(
        Array.from({ length: 20 }, () => raw(url, head(post('acme:slow', 'content-length: 100000')))),
      )
      let isOver = false
      const dripping = (async () => {
        for (; !isOver; await sleep(50)) {
          for (const { socket } of [...headers, ...bodies]) if (socket.writable) socket.write('x')
        }
      })()
      const { status } = await ask('/v1/sessions/acme:brisk/messages', {
        method: 'POST',
        body: '{"text":"hello"}',
        headers: { 'content-type': 'application/json' },
      })
      expect(status).toBe(202)
      const heard = await Promise.all([...headers, ...bodies].map(({ closed }) => closed))
      isOver = true
      await dripping
      expect(new Set(heard.map(statusOf))).toEqual(new Set([408]))
      expect((await ask('/v1/sessions/acme:slow')).status).toBe(404)
      expect((await ask('/healthz')).status).toBe(200)
    },
    { limits: { headersTimeout: 1000, requestTimeout: 2000 } },
  )
})

test('a body without end is refused before it is there (HT-05)', async () => {
  await serving(
    async ({ url }, ask) => {
      const announced = await raw(url, head(post('acme:huge', 'content-length: 5000000000')))
      await eventually(() => statusOf(announced.heard()) === 413, 'it is refused')
      announced.socket.destroy()
      const endless = await raw(url, head(post('acme:huge', 'transfer-encoding: chunked')))
      const chunk = `10000\r\n${'x'.repeat(0x10000)}\r\n`
      let sent = 0
      while (endless.heard() === '' && sent < 500_000_000) {
        endless.socket.write(chunk)
        sent += chunk.length
        await sleep(0)
      }
      expect(statusOf(await endless.closed)).toBe(413)
      // What the connection itself holds on its way, and what a server reads while it closes.
      expect(sent).toBeLessThan(100_000_000)
      expect((await ask('/v1/sessions/acme:huge')).status).toBe(404)
    },
    { bodyMaxBytes: 100_000 },
  )
})

test('what is not HTTP is refused, and its connection closed (HT-06)', async () => {
  await serving(async ({ url }, ask) => {
    const body = '{"text":"a"}'
    const bad: (string | Buffer)[] = [
      'nonsense\r\n\r\n',
      head(post('acme:bad', 'content-length: 12', 'transfer-encoding: chunked')) + body,
      head(post('acme:bad', 'content-length: 12', 'content-length: 13')) + body,
      head(post('acme:bad', 'content-length: -1')) + body,
      head(post('acme:bad', 'transfer-encoding: chunked')) + 'zz\r\nnonsense',
      head(post('acme:bad', `x-long: ${'x'.repeat(20_000)}`)),
      head(['GET /v1/sessions HTTP/1.1', 'bad header: a', '']),
      Buffer.from(head(['GET /v1/sessions HTTP/1.1', 'host: butler', 'x-a: a\0b']), 'latin1'),
      head(['GET /v1/sessions HTTP/1.1']),
    ]
    for (const text of bad) {
      const { closed } = await raw(url, text)
      const status = statusOf(await closed)
      expect([String(text).slice(0, 300), status >= 400 && status < 500]).toEqual([
        String(text).slice(0, 300),
        true,
      ])
    }
    expect((await ask('/v1/sessions/acme:bad')).status).toBe(404)
  })
})

test('an address that is none is refused, whatever it is (HT-06)', async () => {
  await serving(async ({ url }) => {
    for (const target of [
      '*',
      'http://other.example/v1/sessions',
      '//v1/sessions',
      '/v1/%',
      '/\u00ff',
      '/v1/sessions#a',
      '/v1/sessions?%',
    ]) {
      const text = head([`GET ${target} HTTP/1.1`, 'host: butler', 'connection: close'])
      const { closed } = await raw(url, Buffer.from(text, 'latin1'))
      const status = statusOf(await closed)
      expect([target, status >= 400 && status < 500]).toEqual([target, true])
    }
    for (const host of ['a b', '[', 'a/b', '']) {
      const { closed } = await raw(
        url,
        head(['GET /v1/sessions HTTP/1.1', `host: ${host}`, 'connection: close']),
      )
      const status = statusOf(await closed)
      expect([host, status >= 400 && status < 500]).toEqual([host, true])
    }
  })
})

test('a key of bytes that no text has is refused, on the same connection as before (HT-08)', async () => {
  await serving(async ({ url }) => {
    const body = '{"text":"a"}'
    const ask = (key: string) =>
      head(post('acme:bytes', `content-length: ${body.length}`, `idempotency-key: ${key}`)) + body
    const { socket, heard } = await raw(url, Buffer.from(ask('caf\u00e9'), 'latin1'))
    await eventually(() => heard().includes('INVALID_KEY'), 'the first answer')
    socket.write(Buffer.from(ask('\u00ff\u00fe'), 'latin1'))
    await eventually(() => heard().split('INVALID_KEY').length === 3, 'the second answer')
    socket.write(ask('good'))
    await eventually(() => heard().includes('"seq":1'), 'the third answer')
    socket.destroy()
  })
})

test('beyond what it can do at once it refuses, and does the rest as fast as ever (HT-11)', async () => {
  await serving(
    async (_server, ask) => {
      await api.client.enqueue('acme:crowd', 'first')
      const release = await api.world.holdRow('acme:crowd')
      const send = () =>
        ask('/v1/sessions/acme:crowd/messages', {
          method: 'POST',
          body: '{"text":"hello"}',
          headers: { 'content-type': 'application/json' },
        })
      // One of these may come while this test asks whether they are there.
      const taken = async () => {
        const response = await send()
        return response.status !== 503 && response
      }
      const within = Array.from({ length: 2 }, () => until(taken))
      await eventually(async () => (await ask('/v1/sessions?limit=1')).status === 503, 'it has enough to do')
      const beyond = await Promise.all(Array.from({ length: 10 }, send))
      for (const response of beyond) {
        expect(response.status).toBe(503)
        expect(Number(response.headers.get('retry-after'))).toBeGreaterThan(0)
        expect(await response.json()).toMatchObject({ code: 'OVERLOADED' })
      }
      expect((await ask('/healthz')).status).toBe(200)
      expect((await ask('/readyz')).status).toBe(200)
      await release()
      expect((await Promise.all(within)).map(({ status }) => status)).toEqual([202, 202])
      expect((await ask('/v1/sessions?limit=1')).status).toBe(200)
    },
    { requestsMax: 2 },
  )
})

test('a full server refuses streams, and takes the next when one has ended (HT-11)', async () => {
  await api.client.enqueue('acme:full', 'hello')
  await serving(
    async (_server, ask) => {
      const leaving = new AbortController()
      const streams = await Promise.all(
        Array.from({ length: 3 }, () => ask('/v1/sessions/acme:full/events', { signal: leaving.signal })),
      )
      // Two got in, of three that came at the same moment.
      expect(streams.map(({ status }) => status).sort((a, b) => a - b)).toEqual([200, 200, 503])
      expect((await ask('/v1/sessions/acme:full')).status).toBe(200)
      leaving.abort()
      await eventually(async () => {
        const again = await ask('/v1/sessions/acme:full/events')
        await again.body?.cancel()
        return again.status === 200
      }, 'there is room again')
    },
    { streamsMax: 2 },
  )
})

test('a connection that waits for nothing is closed after a while, and at once in a drain', async () => {
  const idle = async (url: string) => {
    const one = await raw(url, head(['GET /healthz HTTP/1.1', 'host: butler']))
    await eventually(() => one.heard().includes('"ok"'), 'an answer')
    return one
  }
  await serving(
    async ({ url }) => {
      expect(statusOf(await (await idle(url)).closed)).toBe(200)
    },
    { limits: { keepAliveTimeout: 200 } },
  )
  await serving(
    async (server, ask) => {
      const one = await idle(server.url)
      server.drain()
      await one.closed
      const ready = await ask('/readyz', { headers: { connection: 'keep-alive' } })
      expect(ready.status).toBe(503)
      expect(ready.headers.get('connection')).toBe('close')
      expect((await ask('/v1/sessions?limit=1')).status).toBe(200)
    },
    { limits: { keepAliveTimeout: 60_000 } },
  )
})

test('is mounted below a path of somebody else’s server, and answers there alone', async () => {
  await serving(
    async (_server, ask) => {
      expect((await ask('/api/butler/healthz')).status).toBe(200)
      expect((await ask('/api/butler/v1/sessions?limit=1')).status).toBe(200)
      expect((await ask('/api/butler/v1/sessions?limit=1', { headers: { authorization: '' } })).status).toBe(
        401,
      )
      expect((await ask('/api/butler/v1/sessions', { method: 'PATCH' })).status).toBe(405)
      const document = (await (await ask('/api/butler/v1/openapi.json')).json()) as { servers: unknown }
      expect(document.servers).toEqual([{ url: '/api/butler' }])
      for (const path of ['/healthz', '/v1/sessions', '/api/v1/sessions', '/api/butler'])
        expect([path, (await ask(path)).status]).toEqual([path, 404])
    },
    { basePath: '/api/butler' },
  )
})
