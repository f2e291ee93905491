/**
 * The handler behind a port, for `butler serve`: with time limits against slow clients, a bound on connections, and a way
 * to leave that waits for nobody.
 */
import { createServer, type Server } from 'node:http'
import { once } from 'node:events'
import { getRequestListener } from '@hono/node-server'
import { sleep } from '../base/timing.ts'
import type { HttpHandler } from './handler.ts'

export interface HttpServer {
  /** Where it listens. */
  readonly url: string
  /** Stops listening, tells streams to go on elsewhere, lets requests end within the grace, closes all connections. */
  close(graceMs: number): Promise<void>
}

/** Milliseconds that a client has to send its headers, and its whole request. */
const HEADERS_MS = 10_000
const REQUEST_MS = 30_000
const KEEP_ALIVE_MS = 30_000
const HEADERS_MAX_BYTES = 16 * 1024
/** Beside the streams, whose number the handler bounds. */
const CONNECTIONS_MAX = 20_000

/** Rejects when it cannot listen there. `port` 0: any that is free. */
export async function listen(
  handler: HttpHandler,
  { host, port }: { host: string; port: number },
): Promise<HttpServer> {
  const listener = getRequestListener((request) => handler.fetch(request), { overrideGlobalObjects: false })
  const server = createServer(
    {
      headersTimeout: HEADERS_MS,
      requestTimeout: REQUEST_MS,
      keepAliveTimeout: KEEP_ALIVE_MS,
      maxHeaderSize: HEADERS_MAX_BYTES,
      connectionsCheckingInterval: 1000,
      noDelay: true,
    },
    (request, response) => void listener(request, response),
  )
  server.maxConnections = CONNECTIONS_MAX
  server.listen(port, host)
  await once(server, 'listening')
  return { url: urlOf(server, host), close: (graceMs) => close(server, handler, graceMs) }
}

async function close(server: Server, handler: HttpHandler, graceMs: number): Promise<void> {
  handler.drain()
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  server.closeIdleConnections()
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
