/** The document of the API, OpenAPI 3.1, made from the routes; its schemas are JSON Schema 2020-12 as zod writes it. */
import { z } from 'zod'
import { COMMON_REFUSALS, type Route } from './route.ts'
import * as schemas from './schemas.ts'

type Part = Readonly<Record<string, unknown>>

export function documentOf(routes: readonly Route[], basePath = ''): Part {
  const paths: Record<string, Record<string, Part>> = {
    '/healthz': { get: open('Whether the process is there.', { 200: 'It is.' }) },
    '/readyz': {
      get: open('Whether to send requests here.', { 200: 'Yes.', 503: 'No; `problems` says why.' }),
    },
    '/metrics': {
      get: open('Metrics, in the Prometheus text format.', {
        200: 'The metrics.',
        404: 'This server has none.',
      }),
    },
    '/v1/openapi.json': { get: open('This document.', { 200: 'It is.' }) },
  }
  for (const route of routes) (paths[route.path] ??= {})[route.method] = operation(route)
  return {
    openapi: '3.1.0',
    info: {
      title: 'Butler',
      version: '1',
      description: 'Sessions with AI agents: send messages, watch, stop. Every error has a stable `code`.',
    },
    servers: [{ url: basePath || '/' }],
    paths,
    components: {
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer', description: 'An API key, or a session token.' },
      },
      schemas: { Problem: schemaOf(schemas.problem, 'output') },
    },
  }
}

const open = (summary: string, answers: Record<number, string>): Part => ({
  summary,
  security: [],
  responses: Object.fromEntries(
    Object.entries(answers).map(([status, description]) => [status, { description }]),
  ),
})

function operation(route: Route): Part {
  const { name, summary, right, body, answers } = route
  const refused = refusalsOf(route)
  return {
    operationId: name,
    summary,
    description: `Needs the right \`${right}\`.`,
    security: [{ bearer: [] }],
    parameters: parametersOf(route),
    ...(body && { requestBody: { required: true, content: jsonOf(schemaOf(body, 'input')) } }),
    responses: {
      ...Object.fromEntries(
        Object.entries(answers).map(([status, { description, schema }]) => [
          status,
          { description, ...(schema && { content: jsonOf(schemaOf(schema, 'output')) }) },
        ]),
      ),
      ...Object.fromEntries(refused.map((status) => [status, REFUSED])),
    },
  }
}

/** All errors that a route may answer. A foreign session is not there, also where an unknown one would be made. */
export function refusalsOf({ path, body, refusals = [] }: Route): number[] {
  const common = [...COMMON_REFUSALS, ...(path.includes('{id}') ? [404] : []), ...(body ? [413, 415] : [])]
  return [...new Set([...common, ...refusals])].sort((a, b) => a - b)
}

const REFUSED = {
  description: 'Refused; `code` and `detail` say why and what to do.',
  content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
}

function parametersOf({ path, query, headers = {} }: Route): Part[] {
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => {
    return { name, in: 'path', required: true, schema: PATH[name] ?? { type: 'string' } }
  })
  const { properties = {}, required = [] } = (query ? schemaOf(query, 'output') : {}) as {
    properties?: Record<string, Part>
    required?: string[]
  }
  const inQuery = Object.entries(properties).map(([name, schema]) => {
    return { name, in: 'query', required: required.includes(name), schema }
  })
  const inHeader = Object.entries(headers).map(([name, description]) => {
    return { name, in: 'header', required: false, description, schema: { type: 'string' } }
  })
  return [...inPath, ...inQuery, ...inHeader]
}

const PATH: Record<string, Part> = {
  id: { type: 'string', pattern: '^[A-Za-z0-9._:@-]{1,128}$', description: 'The session.' },
  seq: { type: 'integer', minimum: 1, description: 'The message.' },
  reader: {
    type: 'string',
    pattern: '^[A-Za-z0-9._:@-]{1,128}$',
    description: 'Who reads, in its own words.',
  },
}

const jsonOf = (schema: Part) => ({ 'application/json': { schema } })

function schemaOf(schema: z.ZodType, io: 'input' | 'output'): Part {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { target: 'draft-2020-12', io })
  return rest
}
