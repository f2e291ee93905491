// The document is a whole one: whatever it points at is there, every name is used once, and every schema means something.
import { expect, test } from 'vitest'
import { z } from 'zod'
import { ROUTES } from '../../src/http/handler.ts'
import { documentOf } from '../../src/http/openapi.ts'

const schema = z.union([z.boolean(), z.record(z.string(), z.unknown())])
const content = z.record(z.string(), z.strictObject({ schema }))
const parameter = z.strictObject({
  name: z.string(),
  in: z.enum(['path', 'query', 'header']),
  required: z.boolean(),
  description: z.string().optional(),
  schema,
})
const operation = z.strictObject({
  operationId: z.string().optional(),
  summary: z.string().min(10),
  description: z.string().optional(),
  security: z.array(z.record(z.string(), z.array(z.string()))),
  parameters: z.array(parameter).optional(),
  requestBody: z.strictObject({ required: z.literal(true), content }).optional(),
  responses: z.record(
    z.string().regex(/^[1-5]\d\d$/),
    z.strictObject({ description: z.string(), content: content.optional() }),
  ),
})
const shape = z.strictObject({
  openapi: z.literal('3.1.0'),
  info: z.strictObject({ title: z.string(), version: z.string(), description: z.string() }),
  servers: z.array(z.strictObject({ url: z.string() })),
  paths: z.record(
    z.string().startsWith('/'),
    z.record(z.enum(['get', 'post', 'put', 'delete']), operation.optional()),
  ),
  components: z.strictObject({
    securitySchemes: z.record(z.string(), z.unknown()),
    schemas: z.record(z.string(), schema),
  }),
})

const document = shape.parse(documentOf(ROUTES))
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.values(methods).flatMap((one) => (one ? [{ path, ...one }] : [])),
)

test('every operation has a name of its own, and every part of a path is explained', () => {
  const names = operations.flatMap(({ operationId = [] }) => operationId)
  expect(new Set(names).size).toBe(names.length)
  for (const { path, parameters = [] } of operations) {
    const parts = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name)
    expect(parameters.filter((one) => one.in === 'path').map(({ name }) => name)).toEqual(parts)
  }
})

test('whatever it points at is there', () => {
  const targets = [...JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g)].map(
    ([, target = '']) => target,
  )
  expect(targets.length).toBeGreaterThan(10)
  for (const target of targets) {
    const found = target
      .slice(2)
      .split('/')
      .reduce<unknown>((at, step) => Object(at)[step] as unknown, document)
    expect(found, target).toBeDefined()
  }
})

test('every schema says what it is', () => {
  const schemas = operations.flatMap(({ responses, requestBody }) =>
    [...Object.values(responses), requestBody].flatMap((one) =>
      Object.values(one?.content ?? {}).map((each) => each.schema),
    ),
  )
  expect(schemas.filter((one) => Object.keys(one).length === 0)).toEqual([])
})
