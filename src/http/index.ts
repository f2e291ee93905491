/** What `session-butler/http` offers: the HTTP API for servers of your own. */
export { type Access, keyAccess, localAccess, openAccess, SessionTokens, type TokenRight } from './access.ts'
export { apiDocument, createHttpHandler, type HttpHandler, type HttpOptions } from './handler.ts'
export { type MetricsPage, openMetrics } from './metrics.ts'
