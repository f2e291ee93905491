/**
 * The HTTP API as one Web-standard handler: `fetch(request)` answers it, in any server that speaks Request and Response.
 * Only wires: who asks, what for, and which route it is.
 */
import { Hono } from 'hono'
import { now } from '../base/timing.ts'
import { checkSessionId, type Client, createLogger, InvalidInputError, type Logger } from '../index.ts'
import { type Access, covers, type Principal } from './access.ts'
import { readJson } from './body.ts'
import { messageRoutes } from './message-routes.ts'
import { documentOf } from './openapi.ts'
import { noSuchSession, overloaded, Refusal, toRefusal, toResponse } from './refusal.ts'
import type { Route, Service } from './route.ts'
import { sessionRoutes } from './session-routes.ts'
import { Streams } from './streams.ts'

export const ROUTES: readonly Route[] = [...messageRoutes, ...sessionRoutes]

/** The OpenAPI document of the API, as a server gives it at `/v1/openapi.json`. */
export const apiDocument = (basePath = ''): Readonly<Record<string, unknown>> => documentOf(ROUTES, basePath)

export interface HttpOptions {
  /** Stays the caller's: close it when the handler is drained. */
  readonly client: Client
  /** Who may do what: `keyAccess`, or `openAccess` where nobody else gets in. */
  readonly access: Access
  /** In front of every path, such as `/api/butler`. Default none. */
  readonly basePath?: string
  /** Longest body of a request in bytes. Default 4 MiB. */
  readonly bodyMaxBytes?: number
  /** Requests that are being answered at the same time, streams aside. Default 1,000. */
  readonly requestsMax?: number
  /** Streams at the same time. Default 10,000. */
  readonly streamsMax?: number
  /** A comment at least so often keeps a stream alive through proxies, milliseconds. Default 15,000. */
  readonly keepAliveMs?: number
  /** Origins of pages that may call it, each `https://…`. Default none. */
  readonly corsOrigins?: readonly string[]
  /** `/readyz` asks it: what keeps this server from being sent requests; empty when it is ready. Default: nothing. */
  readonly problems?: () => readonly string[] | Promise<readonly string[]>
  /** `/metrics` in the Prometheus text format. Default: there is no such page. */
  readonly metrics?: () => Promise<string>
  /** A pino logger; `false` for none. Default: lines of level `warn` and above on stderr. */
  readonly logger?: Logger | false
}

export interface HttpHandler {
  fetch(request: Request): Promise<Response>
  /** Not ready from now on; every stream is told to go on elsewhere. Requests are still answered. */
  drain(): void
  /** Streams that are open. */
  readonly streams: number
}

export function createHttpHandler(options: HttpOptions): HttpHandler {
  const logger = options.logger === false ? undefined : (options.logger ?? createLogger({ level: 'warn' }))
  const { client, access, corsOrigins = [], basePath = '', problems = () => [] } = options
  const { requestsMax = 1000 } = options
  let requests = 0
  let draining = false
  const onTrouble = (error: unknown) => logger?.warn({ event: 'http.stream', error: nameOf(error) })
  const streams = new Streams({
    max: options.streamsMax ?? 10_000,
    keepAliveMs: options.keepAliveMs ?? 15_000,
    onTrouble,
  })
  const service: Service = { client, access, streams, bodyMaxBytes: options.bodyMaxBytes ?? 4 * 1024 * 1024 }
  const app = new Hono({ strict: true }).basePath(basePath)
  const refused = (error: unknown): Response =>
    toResponse(
      toRefusal(error, (unforeseen, id) =>
        logger?.error({ event: 'http.error', id, error: nameOf(unforeseen), stack: stackOf(unforeseen) }),
      ),
    )

  app.get('/healthz', () => Response.json({ status: 'ok' }))
  app.get('/readyz', async () => {
    const list = draining ? ['draining'] : await problems()
    return Response.json(
      { ready: list.length === 0, problems: list },
      { status: list.length === 0 ? 200 : 503 },
    )
  })
  const { metrics } = options
  if (metrics)
    app.get(
      '/metrics',
      async () =>
        new Response(await metrics(), {
          headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
        }),
    )
  const document = apiDocument(basePath)
  app.get('/v1/openapi.json', () => Response.json(document))
  for (const route of ROUTES)
    app.on(route.method, route.path.replaceAll(/\{(\w+)\}/g, ':$1'), async (context) => {
      if (requests >= requestsMax) throw overloaded('requests')
      requests += 1
      try {
        return await answer(route, service, context.req.raw, context.req.param())
      } finally {
        requests -= 1
      }
    })
  // Known paths, other methods.
  const methods = new Map<string, string[]>()
  for (const { path, method } of ROUTES)
    methods.set(path, [...(methods.get(path) ?? []), method.toUpperCase()])
  for (const [path, allowed] of methods)
    app.all(path.replaceAll(/\{(\w+)\}/g, ':$1'), () => {
      throw new Refusal(405, 'METHOD_NOT_ALLOWED', `Here only: ${allowed.join(', ')}.`, {
        allow: allowed.join(', '),
      })
    })
  app.notFound(() =>
    toResponse(new Refusal(404, 'NOT_FOUND', 'There is nothing here: see /v1/openapi.json.')),
  )
  app.onError((error) => refused(error))

  const allowOrigins = checkOrigins(corsOrigins)
  return {
    fetch: async (request) => {
      const since = now()
      const origin = request.headers.get('origin')
      const cors = origin !== null && allowOrigins.has(origin) ? corsHeaders(origin) : undefined
      const isPreflight = request.method === 'OPTIONS' && request.headers.has('access-control-request-method')
      const response = isPreflight
        ? new Response(null, { status: cors ? 204 : 403 })
        : await Promise.resolve(app.fetch(request)).catch(refused)
      response.headers.set('x-content-type-options', 'nosniff')
      if (!response.headers.has('cache-control')) response.headers.set('cache-control', 'no-store')
      if (draining) response.headers.set('connection', 'close')
      for (const [name, value] of Object.entries(cors ?? {})) response.headers.set(name, value)
      if (logger?.isLevelEnabled('debug')) {
        // As it was escaped in the request, and without its query.
        const path = new URL(request.url).pathname.slice(0, 200)
        const { method } = request
        logger.debug({
          event: 'http.request',
          method,
          path,
          status: response.status,
          ms: Math.round(now() - since),
        })
      }
      return response
    },
    drain: () => {
      draining = true
      streams.drain()
    },
    get streams() {
      return streams.size
    },
  }
}

async function answer(
  route: Route,
  service: Service,
  request: Request,
  { id: session = '', ...path }: Readonly<Record<string, string>>,
): Promise<Response> {
  const principal = await service.access.identify(request.headers)
  admit(route, principal, session)
  if (session !== '') checkSessionId(session)
  const query = route.query ? check(route.query, queryOf(request), 'query') : undefined
  const body = route.body
    ? check(route.body, await readJson(request, service.bodyMaxBytes), 'body')
    : undefined
  return route.handle({ service, principal, session, path, query, body, request })
}

/** Foreign sessions are not there; a right that is missing is told only about what one may see. */
function admit(route: Route, principal: Principal, session: string): void {
  const isListed = !route.path.includes('{id}')
  if (!isListed && !covers(principal, session)) throw noSuchSession()
  // A list of one session is nobody's need, and a token knows its session.
  if ((isListed && principal.session !== undefined) || !principal.rights.has(route.right))
    throw new Refusal(403, 'FORBIDDEN', `This needs the right ${route.right}.`)
}

function queryOf(request: Request): Record<string, string> {
  const query: Record<string, string> = {}
  for (const [name, value] of new URL(request.url).searchParams) {
    if (Object.hasOwn(query, name))
      throw new Refusal(
        400,
        'INVALID_ARGUMENT',
        `The query names ${JSON.stringify(name.slice(0, 50))} twice.`,
      )
    Object.defineProperty(query, name, { value, enumerable: true })
  }
  return query
}

function check<T>(schema: NonNullable<Route<T>['query']>, value: unknown, where: string): T {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const problems = result.error.issues.slice(0, 5).map(({ path, message }) => {
    const at = path.length > 0 ? ` at ${path.join('.').slice(0, 100)}` : ''
    return `${where}${at}: ${message.slice(0, 200)}`
  })
  throw new Refusal(400, 'INVALID_ARGUMENT', `${problems.join('; ')}. See /v1/openapi.json.`)
}

function checkOrigins(origins: readonly string[]): ReadonlySet<string> {
  for (const origin of origins)
    if (!/^https?:\/\/[\w.-]+(?::\d+)?$/.test(origin))
      throw new InvalidInputError(
        'INVALID_OPTIONS',
        `${JSON.stringify(origin)} is no origin: use https://host, without a path.`,
      )
  return new Set(origins)
}

const corsHeaders = (origin: string): Record<string, string> => ({
  'access-control-allow-origin': origin,
  'access-control-allow-headers': 'authorization, content-type, idempotency-key, last-event-id, traceparent',
  'access-control-allow-methods': 'GET, POST, PUT, DELETE',
  'access-control-max-age': '600',
  vary: 'origin',
})

const nameOf = (error: unknown) =>
  error instanceof Error ? `${error.name}: ${error.message}`.slice(0, 500) : 'not an error'
const stackOf = (error: unknown) => (error instanceof Error ? error.stack?.slice(0, 4000) : undefined)
