// The document of the API, held against what OpenAPI 3.1 asks of one, and against the routes it is made from.
import { expect, test } from 'vitest'
import { z } from 'zod'
import { ROUTES } from '../../src/http/handler.ts'
import { apiDocument } from '../../src/http/index.ts'
import { OPEN } from './api.ts'

/** As a client gets it. */
const document: unknown = JSON.parse(JSON.stringify(apiDocument('/api')))

// The parts of the specification that such a document may use, each with what it must have.
const schema = z.record(z.string(), z.unknown())
const media = z.strictObject({ schema })
const content = z.record(z.string().regex(/^[a-z]+\/[a-z.+-]+$/), media)
const parameter = z
  .strictObject({
    name: z.string().min(1),
    in: z.enum(['path', 'query', 'header']),
    required: z.boolean(),
    description: z.string().optional(),
    schema,
  })
  .refine((one) => one.in !== 'path' || one.required, 'a part of the path is required')
  .refine((one) => !/^(?:accept|content-type|authorization)$/i.test(one.name), 'this header is no parameter')
const response = z.strictObject({ description: z.string().min(1), content: content.optional() })
const operation = z.strictObject({
  operationId: z
    .string()
    .regex(/^[a-z]\w+$/i)
    .optional(),
  summary: z.string().min(1),
  description: z.string().optional(),
  security: z.array(z.record(z.string(), z.array(z.string()))),
  parameters: z.array(parameter).optional(),
  requestBody: z.strictObject({ required: z.boolean(), content }).optional(),
  responses: z.record(z.string().regex(/^[1-5]\d\d$/), response).refine((one) => Object.keys(one).length > 0),
})
const openapi = z.strictObject({
  openapi: z.string().regex(/^3\.1\.\d+$/),
  info: z.strictObject({ title: z.string(), version: z.string(), description: z.string() }),
  servers: z.array(z.strictObject({ url: z.string() })),
  paths: z.record(
    z.string().startsWith('/'),
    z.partialRecord(z.enum(['get', 'put', 'post', 'delete']), operation),
  ),
  components: z.strictObject({
    securitySchemes: z.record(
      z.string(),
      z.strictObject({ type: z.literal('http'), scheme: z.literal('bearer'), description: z.string() }),
    ),
    schemas: z.record(z.string(), schema),
  }),
})

const parsed = openapi.parse(document)
const operations = Object.entries(parsed.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, one]) => ({ path, method, name: `${method} ${path}`, ...one })),
)

/** Every object in it, with where it stands. */
function* objectsIn(value: unknown, at = ''): Generator<[string, Record<string, unknown>]> {
  if (typeof value !== 'object' || value === null) return
  if (!Array.isArray(value)) yield [at, value as Record<string, unknown>]
  for (const [key, member] of Object.entries(value)) yield* objectsIn(member, `${at}/${key}`)
}

test('has each operation once, with its parameters, for each route', () => {
  const ids = operations.flatMap(({ operationId }) => operationId ?? [])
  expect(new Set(ids).size).toBe(ids.length)
  expect(operations.map(({ name }) => name).sort()).toEqual(
    [...ROUTES.map(({ method, path }) => `${method} ${path}`), ...OPEN.map((path) => `get ${path}`)].sort(),
  )
  for (const { path, name, parameters = [] } of operations) {
    const inPath = parameters.filter((one) => one.in === 'path').map((one) => one.name)
    expect([name, inPath]).toEqual([name, [...path.matchAll(/\{(\w+)\}/g)].map(([, part]) => part)])
    expect(new Set(parameters.map((one) => `${one.in} ${one.name}`)).size).toBe(parameters.length)
  }
})

test('refers to nothing that is not there', () => {
  const references = [...objectsIn(document)].flatMap(([at, { $ref }]) =>
    typeof $ref === 'string' ? [{ at, $ref }] : [],
  )
  expect(references.length).toBeGreaterThan(10)
  for (const { at, $ref } of references) {
    const [hash, ...parts] = $ref.split('/')
    const found = parts.reduce<unknown>((value, part) => Object(value)[part], document)
    expect([at, hash, typeof found]).toEqual([at, '#', 'object'])
  }
  for (const { name, security } of operations)
    for (const scheme of security.flatMap((one) => Object.keys(one)))
      expect([name, scheme in parsed.components.securitySchemes]).toEqual([name, true])
})

test('has schemas that are some, with which a client can check', () => {
  const schemas = operations.flatMap(({ name, parameters = [], requestBody, responses }) => [
    ...parameters.map((one) => ({ name: `${name} ${one.name}`, schema: one.schema })),
    ...[requestBody, ...Object.values(responses)].flatMap((one) =>
      Object.values(one?.content ?? {}).map((part) => ({ name, schema: part.schema })),
    ),
  ])
  expect(schemas.length).toBeGreaterThan(60)
  const TYPES = new Set(['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'])
  for (const { name, schema } of schemas) {
    if (!('$ref' in schema))
      expect([name, z.fromJSONSchema(schema as never) instanceof z.ZodType]).toEqual([name, true])
    for (const [at, { type }] of objectsIn(schema)) {
      if (type === undefined || at.endsWith('/properties')) continue
      for (const one of [type].flat()) expect([name, at, TYPES.has(one as string)]).toEqual([name, at, true])
    }
  }
})

test('asks for a key everywhere but on the open pages, and names the right (HT-01)', () => {
  for (const { path, name, security, description = '', responses } of operations) {
    if (OPEN.includes(path)) {
      expect([name, security]).toEqual([name, []])
      continue
    }
    expect([name, security]).toEqual([name, [{ bearer: [] }]])
    const { right } = ROUTES.find((route) => `${route.method} ${route.path}` === name)!
    expect(description).toContain(`\`${right}\``)
    const expected = ['400', '401', '403', '500', '503', ...(path.includes('{id}') ? ['404'] : [])]
    expect(Object.keys(responses)).toEqual(expect.arrayContaining(expected))
  }
})

// The one table of who may do what: a change of it is a change of this test.
test('which right each route needs', () => {
  expect(Object.fromEntries(ROUTES.map(({ name, right }) => [name, right]))).toEqual({
    sendMessages: 'produce',
    withdrawMessage: 'produce',
    retryMessage: 'produce',
    createToken: 'produce',
    stopSession: 'stop',
    listSessions: 'watch',
    showSession: 'watch',
    explainSession: 'watch',
    listQueue: 'watch',
    listEntries: 'watch',
    watchSession: 'watch',
    showCursor: 'watch',
    moveCursor: 'watch',
    deleteSession: 'admin',
  })
})

test('says where it is mounted', () => {
  expect(parsed.servers).toEqual([{ url: '/api' }])
})
