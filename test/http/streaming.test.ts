// Watching over HTTP: what a stream looks like on its way, how it ends, and that it can be gone on with anywhere.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type HttpServer, listen } from '../../src/http/server.ts'
import { createHttpHandler, type HttpHandler, type HttpOptions } from '../../src/http/index.ts'
import type { Turn } from '../../src/index.ts'
import { until } from '../support/eventually.ts'
import { eventually, Latch } from '../traps/world.ts'
import { resources } from '../support/resources.ts'
import { type Api, openApi } from './api.ts'
import { head, raw } from './raw.ts'
import { entriesOf, Reader } from './sse.ts'

const NAME = /^(?:entry|delta|gap|state|resync|reconnect|gone)$/
const NASTY = [
  'a\nb',
  'a\rb',
  'a\r\nb',
  '\n\nevent: forged\ndata: {}\n\n',
  '\r\rid: 99999\r\rdata: forged\r\r',
  'id: 1',
  'data: x',
  'retry: 0',
  ': comment',
  '\u0000',
  '\u2028 \u2029 \u0085',
  '\ufeff',
  '\ud800',
  '😀',
  '',
]

/** A thousand take a minute on a busy machine. */
const SLOW = process.env.MODE === 'slow'

let api: Api
let last: Turn | undefined
beforeAll(async () => {
  api = await openApi({ keepAliveMs: 200, tunables: { queueMax: 100 } })
  await api.world.worker(async (turn) => {
    last = turn
    const script = turn.message.payload as string
    if (script === 'nasty') {
      for (const text of NASTY) turn.emit(text)
      for (const text of NASTY) await turn.append({ type: 'note', payload: { text, [text]: text } })
    }
    if (script.startsWith('notes'))
      for (let n = 0; n < Number(script.slice(6)); n++) await turn.append({ type: 'note', payload: n })
    if (script.startsWith('big')) await turn.append({ type: 'note', payload: 'x'.repeat(300_000) })
    if (script === 'wait') {
      turn.emit('so far')
      await new Promise<void>((_resolve, reject) =>
        turn.signal.addEventListener('abort', () => reject(turn.signal.reason as Error)),
      )
    }
    return `done ${script}`
  })
})
afterAll(() => api.close())

async function open(
  session: string,
  {
    key = api.keys.all,
    query = '',
    lastId,
    signal,
    over = api.handler,
  }: {
    key?: string
    query?: string
    lastId?: string
    signal?: AbortSignal
    over?: HttpHandler
  } = {},
): Promise<{ response: Response; reader: Reader }> {
  const response = await over.fetch(
    new Request(`http://butler.test/v1/sessions/${session}/events${query}`, {
      headers: { authorization: `Bearer ${key}`, ...(lastId !== undefined && { 'last-event-id': lastId }) },
      ...(signal && { signal }),
    }),
  )
  expect(response.status).toBe(200)
  return { response, reader: new Reader(response.body!) }
}

async function serving(
  use: (server: HttpServer, handler: HttpHandler) => Promise<void>,
  { limits, ...http }: Partial<HttpOptions> & { limits?: Partial<Parameters<typeof listen>[1]> } = {},
) {
  const { client, access } = api
  const handler = createHttpHandler({ client, access, logger: false, keepAliveMs: 200, ...http })
  const server = await listen(handler, { host: '127.0.0.1', port: 0, ...limits })
  try {
    await use(server, handler)
  } finally {
    await server.close(0)
  }
}

const isEnd = ({ event, value }: { event: string; value: { entry?: { type: string } } }) =>
  event === 'entry' && value.entry?.type === 'turn_ended'

test('says at once that it is there, and goes on saying so while nothing happens (SS-10)', async () => {
  await api.client.enqueue('acme:still', 'wait')
  await eventually(() => last?.sessionId === 'acme:still', 'it runs')
  await serving(async ({ url }) => {
    const { heard, socket } = await raw(
      url,
      head([
        'GET /v1/sessions/acme:still/events HTTP/1.1',
        'host: butler',
        'accept-encoding: gzip, br',
        `authorization: Bearer ${api.keys.all}`,
      ]),
    )
    await eventually(() => heard().includes('retry: '), 'the first bytes')
    const headers = heard().slice(0, heard().indexOf('\r\n\r\n')).toLowerCase()
    expect(headers).toContain('content-type: text/event-stream')
    expect(headers).toContain('cache-control: no-store, no-transform')
    expect(headers).toContain('x-accel-buffering: no')
    expect(headers).not.toContain('content-encoding')
    await eventually(() => heard().split(': keep-alive').length > 4, 'it is kept alive')
    await eventually(() => heard().includes('"delta":"so far"'), 'the reply so far')
    socket.destroy()
  })
  await api.client.stop('acme:still')
})

test('no text becomes a field of the stream (SS-11)', async () => {
  await api.client.enqueue('acme:nasty', 'x')
  await api.world.done('acme:nasty')
  const { reader } = await open('acme:nasty')
  await reader.until(isEnd)
  await api.client.enqueue('acme:nasty', 'nasty')
  await reader.until((one) => isEnd(one) && one.value.entry.seq === 2)
  await reader.leave()
  const notes = reader.events.filter(({ value }) => value.entry?.type === 'note')
  expect(notes.map(({ value }) => value.entry.payload)).toEqual(NASTY.map((text) => ({ text, [text]: text })))
  const deltas = reader.events.filter(({ event }) => event === 'delta').map(({ value }) => value.delta)
  expect(NASTY.join('|')).toContain(deltas.join('|'))
  for (const { event, id, data, value } of reader.events) {
    expect(event).toMatch(NAME)
    expect(event).toBe(value.type)
    expect(id).toBe(value.cursor)
    expect(data).not.toMatch(/[\r\n]/)
  }
  expect(reader.strange).toEqual([])
  expect(reader.retries).toHaveLength(1)
})

test('I7 · goes on behind the last event that was seen, whatever the address says', async () => {
  await api.client.enqueue('acme:resume', 'notes 20')
  await api.world.done('acme:resume')
  const whole = (await open('acme:resume')).reader
  await whole.until(isEnd)
  await whole.leave()
  const all = entriesOf(whole)
  expect(all).toHaveLength(24)
  for (const { id, event, value } of whole.events) {
    if (event !== 'entry') continue
    const { reader } = await open('acme:resume', { lastId: id, query: '?after=0' })
    const { entry } = value.entry
    if (entry < all.length) await reader.until(isEnd)
    else await reader.until((one) => one.event === 'state')
    expect(entriesOf(reader)).toEqual(all.slice(entry))
    await reader.leave()
  }
  const { reader } = await open('acme:resume', { query: '?after=22' })
  await reader.until(isEnd)
  expect(entriesOf(reader)).toEqual(all.slice(22))
  await reader.leave()
  const beyond = (await open('acme:resume', { lastId: '99' })).reader
  expect(await beyond.until(({ event }) => event === 'resync')).toMatchObject({ value: { head: 24 } })
  await beyond.leave()
})

test('I5 · whoever hangs up has stopped nothing; whoever stops, also later and elsewhere, has (ST-09)', async () => {
  await api.client.enqueue('acme:hang', 'wait')
  await serving(async ({ url }) => {
    const leaving = new AbortController()
    const response = await fetch(`${url}/v1/sessions/acme:hang/events`, {
      headers: { authorization: `Bearer ${api.keys.all}` },
      signal: leaving.signal,
    })
    const reader = new Reader(response.body!)
    await reader.until(({ event, value }) => event === 'delta' && value.delta === 'so far')
    leaving.abort()
    await reader.toTheEnd().catch(() => undefined)
  })
  const { reader } = await open('acme:hang')
  await reader.until(({ event, value }) => event === 'delta' && value.delta === 'so far')
  expect(await api.client.inspect('acme:hang')).toMatchObject({ state: 'running', starts: 1, stopSeq: 0 })
  expect(last?.signal.aborted).toBe(false)
  const elsewhere = api.over(api.world.newClient())
  const { body } = await elsewhere.ask('POST', '/v1/sessions/acme:hang/stop', {
    key: api.keys.all,
    body: { wait: 20 },
  })
  expect(body).toMatchObject({ quiet: true, outcomes: [{ seq: 1, outcome: 'aborted' }] })
  expect((await reader.until(isEnd)).value.entry.payload).toMatchObject({ outcome: 'stopped' })
  await reader.leave()
})

test('a drain sends every client on, with its cursor, and spreads their return', async () => {
  await api.client.enqueue('acme:drain', 'x')
  await api.world.done('acme:drain')
  const { handler } = api.over(api.client)
  const open1 = () => open('acme:drain', { over: handler })
  const readers = await Promise.all(Array.from({ length: 20 }, async () => (await open1()).reader))
  for (const reader of readers) await reader.until(isEnd)
  expect(handler.streams).toBe(20)
  handler.drain()
  await Promise.all(readers.map((reader) => reader.toTheEnd()))
  for (const { events, lastId } of readers) {
    expect(events.at(-1)).toMatchObject({
      event: 'reconnect',
      id: '4',
      value: { cursor: '4', why: 'draining' },
    })
    expect(lastId).toBe('4')
  }
  expect(new Set(readers.map(({ retries }) => retries.at(-1))).size).toBeGreaterThan(5)
  expect(handler.streams).toBe(0)
  const refused = await handler.fetch(
    new Request('http://butler.test/v1/sessions/acme:drain/events', {
      headers: { authorization: `Bearer ${api.keys.all}` },
    }),
  )
  expect(refused.status).toBe(503)
  expect(await refused.json()).toMatchObject({ code: 'DRAINING' })
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
})

test('ends with the right to watch: an expired token, a revoked key, a deleted session', async () => {
  await api.client.enqueue('acme:right', 'x')
  await api.world.done('acme:right')
  const { token } = await api.tokens.sign('acme:right', ['watch'], 3)
  const expiring = (await open('acme:right', { key: token })).reader
  const key = await api.create(['watch'])
  const revoked = (await open('acme:right', { key })).reader
  const staying = (await open('acme:right')).reader
  for (const reader of [expiring, revoked, staying]) await reader.until(isEnd)
  await api.keyring.revoke(/bk_(\w{12})/.exec(key)![1]!)
  await Promise.all([expiring.toTheEnd(), revoked.toTheEnd()])
  for (const { events } of [expiring, revoked])
    expect(events.at(-1)).toMatchObject({ event: 'reconnect', id: '4', value: { why: 'expired' } })
  await api.client.delete('acme:right')
  await staying.toTheEnd()
  expect(staying.events.at(-1)).toMatchObject({ event: 'gone', value: { why: 'gone' } })
})

test(
  'I7 · a client that reads nothing is given up, and costs a bounded buffer until then',
  { timeout: 120_000 },
  async () => {
    for (let n = 0; n < 40; n++) await api.client.enqueue('acme:deaf', `big ${n}`)
    const done = async () => (await api.client.inspect('acme:deaf')).doneSeq === 40
    await until(done, { ms: 90_000, what: 'what it does not read to be there' })
    await serving(async ({ url }, handler) => {
      const before = process.memoryUsage().arrayBuffers
      const deaf = await Promise.all(
        Array.from({ length: 10 }, async () => {
          const one = await raw(
            url,
            head([
              'GET /v1/sessions/acme:deaf/events HTTP/1.1',
              'host: b',
              `authorization: Bearer ${api.keys.all}`,
            ]),
          )
          one.socket.pause()
          return one
        }),
      )
      await eventually(() => handler.streams === 10, 'all are open')
      await until(() => handler.streams === 0, { ms: 60_000, what: 'all to be given up' })
      for (const { socket } of deaf) socket.resume()
      for (const told of await Promise.all(deaf.map(({ closed }) => closed)))
        expect(told).not.toMatch(/broke|reads nothing|Error/)
      // Twelve megabytes for each would lie there if a stream took what its client does not.
      expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(60_000_000)
      // The same with a client that reads.
      const response = await fetch(`${url}/v1/sessions/acme:deaf/events`, {
        headers: { authorization: `Bearer ${api.keys.all}` },
      })
      const reader = new Reader(response.body!)
      await reader.until((one) => isEnd(one) && one.value.entry.seq === 40)
      expect(entriesOf(reader)).toHaveLength(200)
      await reader.leave()
    })
  },
)

test('a connection whose stream has ended is closed although its client reads nothing (SS-14)', async () => {
  const { token } = await api.tokens.sign('acme:deaf', ['watch'], 3)
  await serving(
    async ({ url }, handler) => {
      const lines = [
        'GET /v1/sessions/acme:deaf/events HTTP/1.1',
        'host: b',
        `authorization: Bearer ${token}`,
      ]
      const { socket, closed } = await raw(url, head(lines))
      socket.pause()
      await eventually(() => handler.streams === 1, 'it is open')
      // Nobody else gets in until then.
      const probe = () => fetch(`${url}/healthz`, { headers: { connection: 'close' } }).catch(() => undefined)
      expect(await probe()).toBeUndefined()
      await eventually(async () => (await probe())?.status === 200, 'the server closes it')
      socket.resume()
      // Its last word lay behind what it had not read.
      expect(await closed).not.toContain('event: reconnect')
      expect(handler.streams).toBe(0)
    },
    { keepAliveMs: 60_000, limits: { lingerTimeout: 300, maxConnections: 1 } },
  )
})

test(
  'I7 · a client that reads too slowly is sent away with its cursor, and misses nothing',
  { timeout: 120_000 },
  async () => {
    const client = api.world.newClient({ watchMaxEvents: 10, queueMax: 100 })
    const { handler } = api.over(client, { keepAliveMs: 60_000 })
    await client.enqueue('acme:slow', 'notes 1')
    await api.world.done('acme:slow')
    const { reader } = await open('acme:slow', { over: handler })
    await reader.until(isEnd)
    // More than what a stream takes in advance: it stands still, and then too much goes by.
    for (let n = 0; n < 30; n++) await client.enqueue('acme:slow', 'big')
    await api.world.done('acme:slow')
    await reader.toTheEnd()
    const cut = reader.events.at(-1)!
    expect(cut).toMatchObject({ event: 'reconnect', value: { why: 'slow' } })
    const next = (await open('acme:slow', { lastId: reader.lastId })).reader
    await next.until((one) => isEnd(one) && one.value.entry.seq === 31)
    await next.leave()
    const numbers = [...entriesOf(reader), ...entriesOf(next)].map((entry) => Number.parseInt(entry, 10))
    expect(numbers).toEqual(Array.from({ length: 5 + 30 * 5 }, (_, n) => n + 1))
  },
)

test(
  'I7 · hundreds that come back at the same moment get what they miss, over the connections there are (SS-12)',
  { timeout: 120_000 },
  async () => {
    const COUNT = SLOW ? 300 : 100
    await api.client.enqueue('acme:herd', 'notes 10')
    await api.world.done('acme:herd')
    await serving(async ({ url }, handler) => {
      const come = async (lastId?: string) => {
        const response = await fetch(`${url}/v1/sessions/acme:herd/events`, {
          headers: { authorization: `Bearer ${api.keys.all}`, ...(lastId && { 'last-event-id': lastId }) },
        })
        expect(response.status).toBe(200)
        return new Reader(response.body!)
      }
      const first = await Promise.all(Array.from({ length: COUNT }, () => come()))
      await Promise.all(first.map((reader) => reader.until(({ value }) => value.entry?.entry === 9)))
      expect(handler.streams).toBe(COUNT)
      const back = new Latch('all are back', 25_000)
      const [before] = await api.world.rows<{ n: number }>(
        'SELECT COUNT(*) AS n FROM information_schema.processlist WHERE db = DATABASE()',
      )
      const seen: string[][] = []
      await Promise.all(
        first.map(async (reader) => {
          // What was on its way is not seen any more, as with a connection that breaks.
          const at = reader.events.find(({ value }) => value.entry?.entry === 9)!
          await reader.leave()
          const again = await come(at.id)
          await again.until(isEnd)
          seen.push(entriesOf(again))
          if (seen.length === COUNT) back.open()
          await again.leave()
        }),
      )
      await back.opened
      const [after] = await api.world.rows<{ n: number }>(
        'SELECT COUNT(*) AS n FROM information_schema.processlist WHERE db = DATABASE()',
      )
      expect(new Set(seen.map((entries) => entries.join()))).toHaveLength(1)
      expect(seen[0]?.[0]).toMatch(/^10 /)
      // The pools of the client, of the keyring and of the worker, and the test's own.
      expect(after!.n - before!.n).toBeLessThan(20)
      await eventually(() => handler.streams === 0, 'all have left')
      const waits = first.map(({ retries }) => retries[0]!)
      expect(Math.min(...waits)).toBeGreaterThanOrEqual(500)
      expect(Math.max(...waits) - Math.min(...waits)).toBeGreaterThan(1000)
    })
  },
)

test(
  'a thousand who come and leave, at any moment, leave nothing behind (SS-14)',
  { timeout: 120_000 },
  async () => {
    await api.client.enqueue('acme:visit', 'wait')
    await eventually(() => last?.sessionId === 'acme:visit', 'it runs')
    const staying = (await open('acme:visit')).reader
    await staying.until(({ event }) => event === 'delta')
    await serving(async ({ url }, handler) => {
      const visit = async (n: number) => {
        const leaving = new AbortController()
        const visiting = fetch(`${url}/v1/sessions/acme:visit/events`, {
          headers: { authorization: `Bearer ${api.keys.all}`, connection: 'close' },
          signal: leaving.signal,
        })
        visiting.catch(() => undefined)
        // Before there is an answer, as soon as there is, and after something was read.
        if (n % 4 === 0) await new Promise((resolve) => setImmediate(resolve))
        else if (n % 4 === 1) await visiting
        else {
          const reader = new Reader((await visiting).body!)
          await reader.until(({ event }) => event === (n % 4 === 2 ? 'state' : 'delta'))
        }
        leaving.abort()
      }
      await visit(3)
      await eventually(() => handler.streams === 0, 'the first has left')
      const held = () => resources().length
      const before = held()
      for (let round = 0; round < (SLOW ? 20 : 4); round++)
        await Promise.all(Array.from({ length: 50 }, (_, n) => visit(n)))
      await eventually(() => handler.streams === 0, 'all have left')
      await eventually(() => held() <= before, 'everything is closed')
    })
    expect(last?.signal.aborted).toBe(false)
    await api.client.stop('acme:visit')
    await staying.until(isEnd)
    await staying.leave()
  },
)
