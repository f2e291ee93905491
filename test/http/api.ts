// The HTTP API as tests use it: a handler over real stores, keys of every kind, a worker, and requests that are answered
// in this process. What each route answered is noted down.
import { z } from 'zod'
import { createHttpHandler, type HttpOptions, keyAccess, SessionTokens } from '../../src/http/index.ts'
import { ROUTES } from '../../src/http/handler.ts'
import * as schemas from '../../src/http/schemas.ts'
import { type Client, createClient, openKeyring, type Scope } from '../../src/index.ts'
import { Stage } from '../traps/stage.ts'
import { openWorld, PATIENT_LOCK } from '../traps/world.ts'

export const SECRET = 'a secret of forty bytes that nobody knows'
export const ALL: readonly Scope[] = ['produce', 'watch', 'stop', 'admin']

export interface Ask {
  readonly key?: string | undefined
  readonly body?: unknown
  /** As it is. */
  readonly text?: string | Uint8Array<ArrayBuffer> | ReadableStream
  readonly headers?: Record<string, string>
  readonly signal?: AbortSignal
}

export interface Told {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  // The tests say what they expect of it.
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly body: any
}

/** `route status` of every answer so far. */
export const seen = new Set<string>()

export type Api = Awaited<ReturnType<typeof openApi>>

export async function openApi(options: Partial<HttpOptions> & { tunables?: object } = {}) {
  const world = await openWorld()
  const keyring = openKeyring(world.mysqlUrl)
  const tokens = new SessionTokens(SECRET)
  const { tunables = {}, ...http } = options
  const client = world.newClient({ queueMax: 3, ...tunables })
  const create = async (scopes: readonly Scope[], tenants?: readonly string[]) =>
    (await keyring.create({ name: 'test', scopes, tenants })).secret
  const [all, acme, produce, watch] = await Promise.all([
    create(ALL),
    create(ALL, ['acme']),
    create(['produce']),
    create(['watch']),
  ])
  const access = keyAccess(keyring, tokens)
  const over = (client: Client, more: Partial<HttpOptions> = {}) =>
    asker(createHttpHandler({ client, access, logger: false, ...http, ...more }))
  const { ask, handler } = over(client)
  const stage = new Stage()
  return {
    world,
    keyring,
    tokens,
    access,
    client,
    handler,
    stage,
    keys: { all, acme, produce, watch },
    create,
    over,
    ask: (method: string, path: string, more: Ask = {}) => ask(method, path, { key: all, ...more }),
    async work() {
      return world.worker(stage.handler)
    },
    /** A client of a database that nobody runs. */
    withoutDatabase: () =>
      createClient({
        ...PATIENT_LOCK,
        redis: world.redisUrl,
        mysql: 'mysql://butler:secret@127.0.0.1:9/butler',
        prefix: world.prefix,
        enqueueTimeoutMs: 300,
        mysqlTimeoutMs: 300,
        logger: false,
      }),
    async close() {
      await keyring.close()
      await world.close()
    },
  }
}

/** Asks one handler, and holds every answer to what the document says of it. */
export function asker(handler: ReturnType<typeof createHttpHandler>) {
  const ask = async (
    method: string,
    path: string,
    { key, body, text, headers, signal }: Ask = {},
  ): Promise<Told> => {
    const request = new Request(`http://butler.test${path}`, {
      method,
      headers: {
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(text !== undefined && { body: text, duplex: 'half' }),
      ...(signal && { signal }),
    })
    const response = await handler.fetch(request)
    const isStream = response.headers.get('content-type') === 'text/event-stream'
    const answer = isStream ? '' : await response.text()
    if (isStream) await response.body?.cancel()
    const isJson = /json/.test(response.headers.get('content-type') ?? '')
    const value: unknown = isJson ? JSON.parse(answer) : undefined
    note(method, path, response, value)
    return { status: response.status, headers: response.headers, text: answer, body: value }
  }
  return { ask, handler }
}

export function note(method: string, path: string, response: Response, value: unknown): void {
  const [bare = ''] = path.split('?')
  if (method === 'GET' && OPEN.includes(bare)) return void seen.add(`get ${bare} ${response.status}`)
  const route = ROUTES.find((one) => one.method === method.toLowerCase() && patternOf(one.path).test(bare))
  if (!route) return
  seen.add(`${route.method} ${route.path} ${response.status}`)
  const schema = response.status < 400 ? route.answers[response.status]?.schema : schemas.problem
  if (response.status < 400 && !route.answers[response.status])
    throw new Error(`${method} ${path} answered ${response.status}, which the document does not know`)
  if (!schema) return
  const { error } = schema.safeParse(value)
  if (error) throw new Error(`${method} ${path} ${response.status}: ${z.prettifyError(error)}`)
  if (response.status >= 400 && response.headers.get('content-type') !== 'application/problem+json')
    throw new Error(`${method} ${path} ${response.status} is no problem document`)
}

/** Pages that ask nobody who it is. */
export const OPEN = ['/healthz', '/readyz', '/metrics', '/v1/openapi.json']

const patternOf = (path: string) => new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/]+')}$`)

/** A route's path with a session and what else it needs. */
export const pathFor = (path: string, session = 'acme:1') =>
  path.replace('{id}', session).replace('{seq}', '1').replace('{reader}', 'phone')
