/**
 * The handler behind a port, for `butler serve`: with time limits against slow clients, a bound on connections, and a way
 * to leave that waits for nobody.
 */
import { createServer, type Server, type ServerResponse } from 'node:http'
import { once } from 'node:events'
import { getRequestListener, type Http2Bindings, type HttpBindings } from '@hono/node-server'
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response'
import { sleep } from '../base/timing.ts'
import { type EventStream, streamBehind } from './event-stream.ts'
import type { HttpHandler } from './handler.ts'

export interface HttpServer {
  /** Where it listens. */
  readonly url: string
  /** Tells streams to go on elsewhere and closes connections that wait for nothing; the others end with their answer. */
  drain(): void
  /** Drains and stops listening; requests may end within the grace, then all connections are closed. */
  close(graceMs: number): Promise<void>
}

/** Milliseconds and counts that no client gets beyond. */
const LIMITS = {
  /** For sending the headers. */
  headersTimeout: 10_000,
  /** For sending the whole request. */
  requestTimeout: 30_000,
  /** Between two requests on one connection. */
  keepAliveTimeout: 5_000,
  /** Without taking anything of the rest of a stream that has ended. */
  lingerTimeout: 10_000,
  maxHeaderSize: 16 * 1024,
  /** Beside the streams, whose number the handler bounds. */
  maxConnections: 20_000,
}

/** Rejects when it cannot listen there. `port` 0: any that is free. */
export async function listen(
  handler: HttpHandler,
  { host, port, ...limits }: { host: string; port: number } & Partial<typeof LIMITS>,
): Promise<HttpServer> {
  const { maxConnections, lingerTimeout, ...options } = { ...LIMITS, ...limits }
  const answer = async (request: Request, { outgoing }: HttpBindings | Http2Bindings) => {
    const response = await handler.fetch(request)
    const { body, headers, status } = response
    const stream = body && streamBehind(body)
    if (!stream) return response
    send(stream, (outgoing as ServerResponse).writeHead(status, Object.fromEntries(headers)), lingerTimeout)
    return RESPONSE_ALREADY_SENT
  }
  const listener = getRequestListener(answer, { overrideGlobalObjects: false })
  const server = createServer(
    { ...options, connectionsCheckingInterval: Math.min(1000, options.headersTimeout), noDelay: true },
    (request, response) => void listener(request, response),
  )
  server.maxConnections = maxConnections
  server.listen(port, host)
  await once(server, 'listening')
  const drain = () => {
    handler.drain()
    server.closeIdleConnections()
  }
  return { url: urlOf(server, host), drain, close: (graceMs) => close(server, drain, graceMs) }
}

/** Straight from its source: a body in between would be a second queue for every client. */
function send(stream: EventStream, outgoing: ServerResponse, lingerMs: number): void {
  if (outgoing.destroyed) return stream.leave()
  outgoing.once('close', () => stream.leave())
  stream.sendTo({
    write: (bytes) => !outgoing.destroyed && outgoing.write(bytes),
    drained: () => new Promise((resolve) => outgoing.once('drain', resolve)),
    end: () => void outgoing.end().setTimeout(lingerMs, () => void outgoing.destroy()),
    breakOff: () => void outgoing.destroy(),
  })
}

async function close(server: Server, drain: () => void, graceMs: number): Promise<void> {
  drain()
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  const patience = new AbortController()
  await Promise.race([closed, sleep(graceMs, patience.signal)])
  patience.abort()
  server.closeAllConnections()
  await closed
}

function urlOf(server: Server, host: string): string {
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : 0
  return `http://${host.includes(':') ? `[${host}]` : host}:${port}`
}
