/** What a route is: one table of them drives the server, the rights, the document and the tests. */
import type { z } from 'zod'
import type { Client } from '../index.ts'
import type { Access, Principal, Right } from './access.ts'
import type { Streams } from './streams.ts'

/** What is served; the same for all requests. */
export interface Service {
  readonly client: Client
  readonly access: Access
  readonly streams: Streams
  readonly bodyMaxBytes: number
}

/** One request that may be answered: who asks is known, and may. */
export interface Call<Query, Body> {
  readonly service: Service
  readonly principal: Principal
  /** The session of the path; '' when the route has none. */
  readonly session: string
  /** Further parts of the path. */
  readonly path: Readonly<Record<string, string>>
  readonly query: Query
  readonly body: Body
  readonly request: Request
}

export interface Answer {
  readonly description: string
  readonly schema?: z.ZodType
}

export interface Route<Query = unknown, Body = unknown> {
  readonly method: 'get' | 'post' | 'put' | 'delete'
  /** With `{id}` for the session and other names in braces. */
  readonly path: string
  readonly name: string
  readonly summary: string
  readonly right: Right
  readonly query?: z.ZodType<Query>
  readonly body?: z.ZodType<Body>
  readonly headers?: Readonly<Record<string, string>>
  /** What it answers when all is well, by status. */
  readonly answers: Readonly<Record<number, Answer>>
  /** Errors it may answer, beyond those that every route may. */
  readonly refusals?: readonly number[]
  readonly handle: (call: Call<Query, Body>) => Promise<Response>
}

/** Keeps the types of query and body together with the handler that gets them. */
export const route = <Query, Body>(definition: Route<Query, Body>): Route => definition as unknown as Route

export const json = (value: unknown, status = 200): Response => Response.json(value, { status })
export const nothing = (): Response => new Response(null, { status: 204 })

/** Any route with a right: who asks, what for, and how the server is. */
export const COMMON_REFUSALS: readonly number[] = [400, 401, 403, 500, 503]
