/** What `session-butler/http` offers: the HTTP API for servers of your own. */
export { type Access, keyAccess, openAccess, SessionTokens, type TokenRight } from './access.ts'
export { createHttpHandler, type HttpHandler, type HttpOptions } from './handler.ts'
