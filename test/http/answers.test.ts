// Every answer of every route that the document knows is given here, and is what the document says it is.
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { documentOf } from '../../src/http/openapi.ts'
import { ROUTES } from '../../src/http/handler.ts'
import { type Client, createClient } from '../../src/index.ts'
import { eventually } from '../traps/world.ts'
import { type Api, type Ask, openApi, pathFor, seen } from './api.ts'

let api: Api
beforeAll(async () => {
  api = await openApi()
  await api.work()
})
afterAll(() => api.close())

/** What a request of that route needs in order to be understood. */
const BODIES: Record<string, unknown> = {
  sendMessages: { text: 'hello' },
  stopSession: {},
  moveCursor: { read: '0' },
  createToken: { rights: ['watch'], ttlSeconds: 60 },
}
const bodyOf = (name: string): Ask => (name in BODIES ? { body: BODIES[name] } : {})
const routes = ROUTES.map((route) => [`${route.method} ${route.path}`, route] as const)

describe.each(routes)('%s', (_name, route) => {
  const { method, name, right } = route
  const ask = (session: string, more: Ask = {}) =>
    api.ask(method.toUpperCase(), pathFor(route.path, session), { ...bodyOf(name), ...more })

  test('asks who it is, always in the same way (HT-01)', async () => {
    const [id] = (api.keys.all.match(/bk_\w{12}/) ?? []) as string[]
    const bad = [undefined, '', 'nonsense', `${id}_${'x'.repeat(32)}`, 'a.b.c', api.keys.all.slice(0, -1)]
    const answers = await Promise.all(bad.map((key) => ask('acme:1', { key })))
    for (const one of ['Basic dXNlcjpwYXNz', `Bearer ${api.keys.all}, Bearer ${api.keys.all}`, api.keys.all])
      answers.push(await ask('acme:1', { key: undefined, headers: { authorization: one } }))
    answers.push(
      await api.ask(
        method.toUpperCase(),
        `${pathFor(route.path)}?access_token=${api.keys.all}&key=${api.keys.all}`,
        {
          ...bodyOf(name),
          key: undefined,
        },
      ),
    )
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401]))
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1)
    expect(answers[0]?.headers.get('www-authenticate')).toBe('Bearer')
  })

  test('refuses who may do other things', async () => {
    const others = (['produce', 'watch', 'stop', 'admin'] as const).filter((one) => one !== right)
    const key = await api.create(others)
    expect(await ask('acme:1', { key })).toMatchObject({ status: 403, body: { code: 'FORBIDDEN' } })
  })

  test('refuses what cannot be meant', async () => {
    const path = route.path.includes('{id}') ? pathFor(route.path, 'a%20b') : `${route.path}?limit=0`
    const told = await api.ask(method.toUpperCase(), path, bodyOf(name))
    expect(told.status).toBe(400)
    if (!route.query) return
    for (const query of ['?limit=1&limit=2', '?nonsense=1', '?after[]=1'])
      expect((await api.ask(method.toUpperCase(), pathFor(route.path) + query)).status).toBe(400)
  })

  test.runIf(route.body)('wants JSON, and not too much of it (HT-06)', async () => {
    const send = (text: string | Uint8Array<ArrayBuffer>, headers: Record<string, string>) =>
      ask('acme:1', { body: undefined, text, headers })
    const json = { 'content-type': 'application/json' }
    expect((await send('a=b', { 'content-type': 'application/x-www-form-urlencoded' })).status).toBe(415)
    expect((await send('{}', { ...json, 'content-encoding': 'gzip' })).status).toBe(415)
    expect((await send(`"${'x'.repeat(5 * 1024 * 1024)}"`, json)).status).toBe(413)
    for (const text of ['', '{', '[]]', 'NaN', '{"text":"a"'])
      expect(await send(text, json)).toMatchObject({ status: 400, body: { code: 'INVALID_BODY' } })
    expect(await send(new Uint8Array([0x22, 0xff, 0xfe, 0x22]), json)).toMatchObject({ status: 400 })
    for (const text of ['null', '1', '"text"', '[]', '{"nonsense":1}'])
      expect((await send(text, json)).status).toBe(400)
  })

  test.runIf(route.path.includes('{id}'))(
    'does not know a session that is not there, or is somebody else’s',
    async () => {
      await api.world.client.enqueue('other:1', 'hello')
      const foreign = await ask('other:1', { key: api.keys.acme })
      const none = await ask('other:none', { key: api.keys.acme })
      expect([foreign.status, none.status]).toEqual([404, 404])
      expect(foreign.text).toBe(none.text)
      if (!route.refusals?.includes(404)) return
      const unknown = await ask('acme:unknown')
      expect(unknown.status).toBe(404)
      if (!route.path.includes('{seq}')) expect(unknown.text).toBe(foreign.text)
    },
  )

  test('says nothing of the inside when it fails (HT-12)', async () => {
    const broken = new Proxy({} as Client, {
      get: () => () => {
        throw new TypeError('secret: SELECT * FROM butler_sessions at db.internal:3306 /home/app/secret.js')
      },
    })
    const asked = { key: api.keys.all, ...bodyOf(name) }
    const failing = api.over(broken, {
      access: {
        ...api.access,
        get tokens(): never {
          throw new TypeError('secret')
        },
      },
    })
    const told = await failing.ask(method.toUpperCase(), pathFor(route.path), asked)
    expect(told).toMatchObject({ status: 500, body: { code: 'INTERNAL' } })
    expect(told.text).not.toMatch(/secret|SELECT|butler_|internal:|home|\.js|\.ts/)
  })

  test('says that a store does not answer, and not which', async () => {
    const client = api.withoutDatabase()
    const away = openKeyringAway()
    const outage = api.over(client, { access: name === 'createToken' ? away : api.access, streamsMax: 0 })
    const told = await outage.ask(method.toUpperCase(), pathFor(route.path), {
      key: api.keys.all,
      ...bodyOf(name),
    })
    await client.close()
    expect(told.status).toBe(503)
    expect(Number(told.headers.get('retry-after'))).toBeGreaterThan(0)
    expect(told.text).not.toMatch(/127\.0\.0\.1|ECONN|butler_|secret|:9/)
  })
})

/** Somebody whom this server cannot know at the moment. */
function openKeyringAway() {
  return {
    tokens: api.tokens,
    identify: async (): Promise<never> => {
      const client = createClient({
        redis: api.world.redisUrl,
        mysql: 'mysql://root@127.0.0.1:9/x',
        logger: false,
      })
      try {
        await client.sessions()
      } finally {
        await client.close()
      }
      throw new Error('it answered')
    },
  }
}

describe('messages', () => {
  /** A test that is tried again begins anew. */
  let tries = 0
  const send = (session: string, body: unknown, headers: Record<string, string> = {}) =>
    api.ask('POST', `/v1/sessions/${session}/messages`, { body, headers })

  test('a message is accepted, once per key, and a key is good for one message', async () => {
    const key = { 'idempotency-key': 'click-1' }
    const first = await send('acme:send', { text: 'hello' }, key)
    expect(first).toMatchObject({ status: 202, body: { session: 'acme:send', seq: 1, duplicate: false } })
    expect((await send('acme:send', { payload: 'hello' }, key)).body).toEqual({
      ...first.body,
      duplicate: true,
      position: 0,
    })
    expect(await send('acme:send', { text: 'other' }, key)).toMatchObject({
      status: 422,
      body: { code: 'IDEMPOTENCY_CONFLICT' },
    })
    await api.world.done('acme:send')
  })

  test('several at once are decided one by one', async () => {
    const body = [
      { text: 'a', key: 'k' },
      { payload: { b: 1 }, kind: 'note', source: 'agent' },
      { text: 'c', key: 'k' },
    ]
    expect((await send('acme:list', body.slice(0, 2))).body.map(({ seq }: { seq: number }) => seq)).toEqual([
      1, 2,
    ])
    const mixed = await send('acme:list', body)
    expect(mixed.status).toBe(207)
    expect(mixed.body.map((one: { seq?: number; status?: number }) => one.seq ?? one.status)).toEqual([
      1, 3, 422,
    ])
    expect((await send('acme:list', body, { 'idempotency-key': 'x' })).status).toBe(400)
    expect((await send('acme:list', { text: 'a', key: 'x' })).status).toBe(400)
  })

  test('a busy session refuses who asks for that, and a full queue everybody (HT-11)', async () => {
    const busy = `acme:busy-${++tries}`
    await send(busy, { text: 'wait' })
    await eventually(() => api.stage.turns.some(({ sessionId }) => sessionId === busy), 'it runs')
    expect(await send(busy, { text: 'now', whenBusy: 'reject' })).toMatchObject({
      status: 409,
      body: { code: 'SESSION_BUSY' },
    })
    const positions = []
    for (let n = 0; n < 3; n++) positions.push((await send(busy, { text: 'later' })).body.position)
    expect(positions).toEqual([1, 2, 3])
    const full = await send(busy, { text: 'one more' })
    expect(full).toMatchObject({ status: 429, body: { code: 'QUEUE_FULL' } })
    expect(Number(full.headers.get('retry-after'))).toBeGreaterThan(0)
    const queue = await api.ask('GET', `/v1/sessions/${busy}/queue?limit=2`)
    expect(queue.body.messages.map(({ seq }: { seq: number }) => seq)).toEqual([2, 3])
    expect((await api.ask('DELETE', `/v1/sessions/${busy}/messages/4`)).status).toBe(204)
    expect(await api.ask('DELETE', `/v1/sessions/${busy}/messages/1`)).toMatchObject({ status: 409 })
    expect(await api.ask('DELETE', `/v1/sessions/${busy}/messages/0`)).toMatchObject({ status: 400 })
    expect(await api.ask('POST', `/v1/sessions/${busy}/stop`, { body: { turn: 2 } })).toMatchObject({
      status: 409,
      body: { code: 'NOT_RUNNING' },
    })
    const stopped = await api.ask('POST', `/v1/sessions/${busy}/stop`, { body: { wait: 20 } })
    expect(stopped).toMatchObject({ status: 200, body: { through: 4, quiet: true } })
    const outcomes = stopped.body.outcomes.map(
      (one: { seq: number; outcome: string }) => `${one.seq} ${one.outcome}`,
    )
    expect(outcomes).toEqual(['1 aborted', '2 never-started', '3 never-started', '4 already-done'])
    await api.world.done(busy)
    const again = await api.ask('POST', `/v1/sessions/${busy}/stop`, { body: {} })
    expect(again.body).toMatchObject({ through: 4, quiet: true, outcomes: [{ seq: null, outcome: 'idle' }] })
    expect(await api.ask('POST', `/v1/sessions/${busy}/messages/1/retry`)).toMatchObject({
      status: 202,
      body: { seq: 5, duplicate: false },
    })
    expect(await api.ask('POST', `/v1/sessions/${busy}/messages/4/retry`)).toMatchObject({ status: 409 })
    // While it waits to start it would fill a place of the queue, and then no more.
    const started = () => api.stage.turns.filter(({ sessionId }) => sessionId === busy).length === 2
    await eventually(started, 'it runs again')
    await send(busy, [{ text: 'deaf' }, { text: 'x' }, { text: 'y' }, { text: 'z' }])
    await eventually(async () => (await send(busy, { text: 'again' })).status === 429, 'it is full')
    expect(await api.ask('POST', `/v1/sessions/${busy}/messages/1/retry`)).toMatchObject({ status: 429 })
    await api.ask('POST', `/v1/sessions/${busy}/stop`, { body: {} })
    api.stage.go()
  })

  test('an answer that was lost says that it is safe to ask again', async () => {
    const line = await api.world.newLine(api.world.mysqlUrl)
    const client = api.world.newClient({ enqueueTimeoutMs: 1500, mysqlTimeoutMs: 500 }, line.url)
    const { ask } = api.over(client)
    await client.enqueue('acme:unsure', 'first')
    const lost = line.loseAnswer(/COMMIT/i).then(() => line.down())
    const told = await ask('POST', '/v1/sessions/acme:unsure/messages', {
      key: api.keys.all,
      body: { text: 'second' },
    })
    await lost
    expect(told).toMatchObject({ status: 503, body: { code: 'OUTCOME_UNKNOWN' } })
    expect(told.body.detail).toContain('same Idempotency-Key')
    line.up()
  })
})

describe('sessions', () => {
  test('are listed, shown, read and deleted; a key sees its tenants’ only (HT-02)', async () => {
    for (const id of ['acme:l1', 'acme:l2', 'acmer:1', 'acm', 'b:1', 'acme:l3'])
      await api.client.enqueue(id, 'hello')
    for (const id of ['acme:l1', 'acme:l2', 'acme:l3']) await api.world.done(id)
    const idsOf = async (key: string) => {
      const ids: string[] = []
      for (let after = ''; ;) {
        const query = `?limit=2${after && `&after=${after}`}`
        const { body } = await api.ask('GET', `/v1/sessions${query}`, { key })
        ids.push(...body.sessions.map(({ id }: { id: string }) => id))
        if (body.next === null) return ids
        after = body.next
      }
    }
    const [all, mine] = [await idsOf(api.keys.all), await idsOf(api.keys.acme)]
    expect(all).toEqual([...all].sort())
    expect(mine).toEqual(all.filter((id) => id.startsWith('acme:')))
    expect(all).toContain('acmer:1')
    const bare = await idsOf(await api.create(['watch'], ['', 'b']))
    expect(bare).toEqual(all.filter((id) => !id.includes(':') || id.startsWith('b:')))
    const shown = await api.ask('GET', '/v1/sessions/acme:l1')
    expect(shown.body).toMatchObject({ id: 'acme:l1', state: 'idle', doneSeq: 1 })
    expect(shown.body).not.toHaveProperty('owner')
    const page = await api.ask('GET', '/v1/sessions/acme:l1/entries?after=1&limit=2')
    expect(page.body).toMatchObject({ cursor: 3, entries: [{ entry: 2 }, { entry: 3 }] })
    expect((await api.ask('GET', '/v1/sessions/acme:l1/events')).headers.get('content-type')).toBe(
      'text/event-stream',
    )
    expect((await api.ask('DELETE', '/v1/sessions/acme:l1')).status).toBe(204)
    expect((await api.ask('GET', '/v1/sessions/acme:l1')).status).toBe(404)
  })

  test('are explained; who may not see all of them learns nothing of the processes', async () => {
    // A test that is tried again begins anew.
    const id = `acme:why-${api.stage.turns.length}`
    const path = `/v1/sessions/${id}/explain`
    await api.client.enqueue(id, 'wait')
    await eventually(() => api.stage.turns.some(({ sessionId }) => sessionId === id), 'it runs')
    await api.client.enqueue(id, { kind: 'note', payload: 'hello' })
    const [process, ...others] = await api.client.fleet()
    expect(others).toEqual([])
    const { body: told } = await api.ask('GET', path)
    expect(told).toMatchObject({
      verdict: { code: 'running' },
      session: { id, runningSeq: 1 },
      owner: { process: process?.process, alive: true, pid: process?.pid },
      lock: { kind: 'busy', process: process?.process, ofOwner: true },
      queue: { waiting: 1, first: [{ seq: 2, kind: 'note', version: 1 }] },
      turn: { seq: 1, attempt: 1, lastEntry: { type: 'message' } },
      processes: [{ process: process?.process, kinds: ['*'] }],
    })
    expect(told.session).not.toHaveProperty('owner')
    const { token } = await api.tokens.sign(id, ['watch'], 60)
    for (const key of [api.keys.acme, token]) {
      const { text, body } = await api.ask('GET', path, { key })
      expect(body).toEqual({
        ...body,
        verdict: told.verdict,
        owner: { process: null, alive: true, draining: false, host: null, pid: null },
        lock: { ...body.lock, kind: 'busy', process: null, ofOwner: true },
        processes: null,
      })
      expect(text).not.toContain(process?.process)
      expect(text).not.toContain(`"pid":${process?.pid}`)
    }
    const away = api.world.newClient({}, undefined, 'redis://127.0.0.1:9')
    const blind = await api.over(away).ask('GET', path, { key: api.keys.all })
    expect(blind).toMatchObject({ status: 200, body: { verdict: { code: 'running' }, lock: null } })
    await api.client.stop(id)
    await api.world.done(id)
  })

  test('remember how far each reader is, and only onwards', async () => {
    await api.client.enqueue('acme:read', 'hello')
    await api.world.done('acme:read')
    const path = '/v1/sessions/acme:read/cursors/phone'
    expect((await api.ask('GET', path)).body).toEqual({
      reader: 'phone',
      read: null,
      acknowledged: null,
      updatedAt: null,
    })
    const put = (body: unknown) => api.ask('PUT', path, { body })
    expect((await put({ read: '3' })).body).toMatchObject({ read: '3', acknowledged: null })
    expect((await put({ read: '2', acknowledged: '2' })).body).toMatchObject({ read: '3', acknowledged: '2' })
    expect((await put({ acknowledged: '4' })).body).toMatchObject({ read: '4', acknowledged: '4' })
    expect((await put({ read: '3.1.1.5' })).body).toMatchObject({ read: '4' })
    expect(await put({ read: '99' })).toMatchObject({ status: 400, body: { code: 'INVALID_CURSOR' } })
    expect(await put({})).toMatchObject({ status: 400 })
    expect((await api.ask('GET', path)).body).toMatchObject({ read: '4', acknowledged: '4' })
  })

  test('a token is for one session, for what its giver may do, and ends', async () => {
    await api.client.enqueue('acme:token', 'hello')
    const make = (body: unknown, key = api.keys.all) =>
      api.ask('POST', '/v1/sessions/acme:token/tokens', { key, body })
    const { body } = await make({ rights: ['watch'], ttlSeconds: 60 })
    const show = (session: string, key: string) => api.ask('GET', `/v1/sessions/${session}`, { key })
    expect((await show('acme:token', body.token)).status).toBe(200)
    expect((await show('acme:read', body.token)).status).toBe(404)
    const key: string = body.token
    expect((await api.ask('GET', '/v1/sessions', { key })).status).toBe(403)
    expect((await api.ask('POST', '/v1/sessions/acme:token/stop', { key, body: {} })).status).toBe(403)
    expect((await make({ rights: ['stop'], ttlSeconds: 60 }, api.keys.produce)).status).toBe(403)
    expect((await make({ rights: ['watch'], ttlSeconds: 86_400 })).status).toBe(400)
    const { token } = await api.tokens.sign('acme:token', ['watch'], -1)
    expect((await show('acme:token', token)).status).toBe(401)
    const [head, claims, signature] = body.token.split('.') as string[]
    const forged = Buffer.from(claims!, 'base64url').toString().replace('acme:token', 'other:1')
    expect(
      (await show('other:1', [head, Buffer.from(forged).toString('base64url'), signature].join('.'))).status,
    ).toBe(401)
    const none = Buffer.from('{"alg":"none"}').toString('base64url')
    expect((await show('acme:token', `${none}.${claims}.`)).status).toBe(401)
    const without = api.over(api.client, { access: { ...api.access, tokens: undefined } })
    expect(
      (
        await without.ask('POST', '/v1/sessions/acme:token/tokens', {
          key: api.keys.all,
          body: { rights: ['watch'], ttlSeconds: 60 },
        })
      ).status,
    ).toBe(409)
  })
})

test('the open pages say how the server is, to everybody', async () => {
  let problems: string[] = []
  const { ask, handler } = api.over(api.client, {
    problems: () => problems,
    metrics: () => Promise.resolve('butler_up 1\n'),
  })
  expect((await ask('GET', '/healthz')).body).toEqual({ status: 'ok' })
  expect(await ask('GET', '/readyz')).toMatchObject({ status: 200, body: { ready: true, problems: [] } })
  problems = ['mysql']
  expect(await ask('GET', '/readyz')).toMatchObject({ status: 503, body: { ready: false, problems } })
  expect(await ask('GET', '/metrics')).toMatchObject({ status: 200, text: 'butler_up 1\n' })
  expect((await ask('GET', '/v1/openapi.json')).body).toEqual(JSON.parse(JSON.stringify(documentOf(ROUTES))))
  handler.drain()
  expect(await ask('GET', '/readyz')).toMatchObject({ status: 503, body: { problems: ['draining'] } })
  expect((await ask('GET', '/healthz')).status).toBe(200)
  expect((await api.ask('GET', '/metrics')).status).toBe(404)
})

test('every answer in the document was given', () => {
  const { paths } = documentOf(ROUTES) as { paths: Record<string, Record<string, { responses: object }>> }
  const promised = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { responses }]) =>
      Object.keys(responses).map((status) => `${method} ${path} ${status}`),
    ),
  )
  expect(promised.filter((one) => !seen.has(one))).toEqual([])
  expect([...seen].filter((one) => !promised.includes(one))).toEqual([])
})
