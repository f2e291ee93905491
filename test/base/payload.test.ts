// The border for user data: what is accepted comes back unchanged, everything else is refused with a hint.
import { createHash } from 'node:crypto'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { fingerprint, parse, serialise } from '../../src/base/payload.ts'

const limits = { maxBytes: 1024 * 1024, maxDepth: 64, what: 'Message payload' }
const write = (value: unknown, over: Partial<typeof limits> = {}) => serialise(value, { ...limits, ...over })
const refusal = (code: string, message: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(message) })

function nested(depth: number): unknown {
  let value: unknown = []
  for (let level = 1; level < depth; level++) value = [value]
  return value
}

const alike = fc.json({ maxDepth: 10, stringUnit: 'binary' }).map((text) => JSON.parse(text) as unknown)
const isSafe = (value: unknown): boolean => {
  if (typeof value === 'number') return !Number.isInteger(value) || Number.isSafeInteger(value)
  if (typeof value !== 'object' || value === null) return true
  return Object.values(value).every(isSafe)
}

describe('what is accepted', () => {
  it('comes back unchanged, and is written as JSON.stringify would', () => {
    fc.assert(
      fc.property(alike.filter(isSafe), (value) => {
        const text = write(value)
        expect(text).toBe(JSON.stringify(value))
        expect(parse(text)).toStrictEqual(value)
      }),
      { numRuns: 500 },
    )
  })

  it('holds strings of any UTF-16 units, lone surrogates included, through UTF-8 bytes', () => {
    const units = fc.array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 50 })
    fc.assert(
      fc.property(units, (codes) => {
        const value = String.fromCharCode(...codes)
        const stored = Buffer.from(write({ [value]: value }), 'utf8').toString('utf8')
        expect(parse(stored)).toStrictEqual({ [value]: value })
      }),
      { numRuns: 500 },
    )
  })

  it.each([
    ['null', null, 'null'],
    ['an empty string', '', '""'],
    ['minus zero', -0, '0'],
    ['the largest safe integer', Number.MAX_SAFE_INTEGER, '9007199254740991'],
    ['a fraction', 0.1, '0.1'],
    ['a tiny number', 5e-324, '5e-324'],
    ['undefined members', { a: undefined, b: 1, c: undefined }, '{"b":1}'],
    ['a date', new Date(0), '"1970-01-01T00:00:00.000Z"'],
    ['a url', { at: new URL('http://h/') }, '{"at":"http://h/"}'],
    ['a member whose toJSON has nothing to say', { a: { toJSON: () => undefined }, b: 1 }, '{"b":1}'],
    ['toJSON that is data', { toJSON: 'x' }, '{"toJSON":"x"}'],
    ['an object without prototype', Object.assign(Object.create(null) as object, { a: 1 }), '{"a":1}'],
    ['an object of another realm', runInNewContext('({ a: [1, { b: 2 }] })'), '{"a":[1,{"b":2}]}'],
    ['symbol keys', { [Symbol('s')]: 1, a: 1 }, '{"a":1}'],
    ['inherited members', Object.create(null, { hidden: { value: 1 } }), '{}'],
  ])('%s', (_name, value, text) => {
    expect(write(value)).toBe(text)
  })

  it('one object in two places is not a cycle', () => {
    const shared = { a: [1] }
    expect(write([shared, shared, { shared }])).toBe('[{"a":[1]},{"a":[1]},{"shared":{"a":[1]}}]')
  })

  it('toJSON gets the key as JSON.stringify passes it', () => {
    const asked: string[] = []
    const spy = { toJSON: (key: string) => (asked.push(key), key) }
    expect(write({ member: spy, list: [spy] })).toBe('{"member":"member","list":["0"]}')
    expect(asked).toStrictEqual(['member', '0', 'member', '0'])
    expect(write({ toJSON: (key: string) => ({ key }) })).toBe('{"key":""}')
  })

  it('a toJSON that changes its mind is refused or stored within the size limit', () => {
    const fickle = (answers: unknown[]) => ({ toJSON: () => answers.shift() })
    expect(write(fickle(['a', 'b']))).toBe('"b"')
    expect(() => write(fickle(['a', undefined]))).toThrow(refusal('PAYLOAD_NOT_JSON', /is undefined/))
    const grown = () => write(fickle(['a', 'x'.repeat(200)]), { maxBytes: 100 })
    expect(grown).toThrow(refusal('PAYLOAD_TOO_LARGE', /is 202 bytes/))
    expect(() => write(fickle(['a', nested(100_000)]))).toThrow(refusal('PAYLOAD_NOT_JSON', /cannot be read/))
  })

  it('__proto__ and constructor are ordinary keys, stored as they are, and pollute nothing', () => {
    const text = '{"__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}},"a":1}'
    const value = parse(text)
    expect(write(value)).toBe(text)
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype)
    expect(Object.hasOwn(value as object, '__proto__')).toBe(true)
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
  })
})

describe('what JSON cannot carry', () => {
  class Order {
    id = 1
  }
  const own: Record<string, unknown> = { list: [] }
  ;(own['list'] as unknown[]).push({ own })
  const ring: unknown[] = []
  ring.push({ toJSON: () => ring })

  it.each<[string, unknown, RegExp]>([
    ['undefined', undefined, /^Message payload is undefined: use null/],
    ['undefined in an array', [1, undefined], /at \[1\] is undefined/],
    // oxlint-disable-next-line no-sparse-arrays
    ['a hole', [1, , 2], /at \[1\] is undefined/],
    ['a function', { a: { f: () => 1 } }, /at \.a\.f is a function/],
    ['a symbol', { 'odd key': Symbol('s') }, /at \["odd key"\] is a symbol/],
    ['a bigint', { n: 1n }, /at \.n is a bigint: write it as a string/],
    ['NaN', { items: [{ price: Number.NaN }] }, /at \.items\[0\]\.price is NaN: write it as a string/],
    ['an infinity', [-Infinity], /is -Infinity: write it as a string/],
    ['an unsafe integer', { id: 2 ** 53 }, /is 9007199254740992, an integer beyond 2\^53 .* string/],
    ['an unsafe integer, huge', -1e300, /is -1e\+300, an integer beyond/],
    ['a Map', { m: new Map([[1, 2]]) }, /at \.m is an instance of Map: use a plain object/],
    ['a Set', new Set([1]), /instance of Set/],
    ['a class instance', [new Order()], /at \[0\] is an instance of Order/],
    ['a boxed number', Object(1), /instance of Number/],
    ['an error', new Error('x'), /instance of Error/],
    ['bytes', new Uint8Array(3), /instance of Uint8Array/],
    ['a promise', { later: Promise.resolve(1) }, /instance of Promise: use a plain/],
    ['an invalid date', { at: new Date(Number.NaN) }, /at \.at is an invalid date/],
    ['a cycle', own, /at \.list\[0\]\.own contains itself/],
    ['a cycle through toJSON', ring, /at \[0\] contains itself/],
    ['toJSON with nothing to say in an array', [{ toJSON: () => undefined }], /at \[0\] is undefined/],
    ['toJSON that answers NaN', { a: { toJSON: () => Number.NaN } }, /at \.a is NaN/],
  ])('%s', (_name, value, message) => {
    expect(() => write(value)).toThrow(refusal('PAYLOAD_NOT_JSON', message))
  })

  it.each<[string, unknown]>([
    [
      'a getter',
      {
        get a() {
          throw new TypeError('no')
        },
      },
    ],
    [
      'a toJSON',
      {
        a: {
          toJSON() {
            throw new TypeError('no')
          },
        },
      },
    ],
    [
      'a proxy',
      {
        a: new Proxy(
          {},
          {
            ownKeys() {
              throw new TypeError('no')
            },
          },
        ),
      },
    ],
  ])('%s that throws is reported with its place and cause', (_name, value) => {
    const problem = refusal('PAYLOAD_NOT_JSON', /^Message payload at \.a cannot be read: no/)
    expect(() => write(value)).toThrow(problem)
    expect(() => write(value)).toThrow(expect.objectContaining({ cause: expect.any(TypeError) }))
  })

  it('a long path is cut in the message', () => {
    const value = { ['k'.repeat(500)]: { n: Number.NaN } }
    expect(() => write(value)).toThrow(refusal('PAYLOAD_NOT_JSON', /^.{0,120}\.\.\. is NaN/))
  })
})

describe('parse', () => {
  it.each(['', 'secret words', '{"secret":', '[1,]', '\ufeff1'])('refuses %j without quoting it', (text) => {
    expect(() => parse(text)).toThrow(
      refusal('PAYLOAD_NOT_JSON', /^A stored payload \(\d+ characters\) is not JSON/),
    )
    expect(() => parse(text)).toThrow(
      expect.not.objectContaining({ message: expect.stringContaining('secret') }),
    )
    expect(() => parse(text)).toThrow(expect.not.objectContaining({ cause: expect.anything() }))
  })
})

describe('fingerprint', () => {
  it('is SHA-256 over length-prefixed parts, 43 characters', () => {
    const expected = createHash('sha256').update('4:chat7:{"é":1}').digest('base64url')
    expect(Buffer.byteLength('{"é":1}')).toBe(8)
    expect(fingerprint(['chat', '{"é":1}'])).toBe(
      createHash('sha256').update('4:chat8:{"é":1}').digest('base64url'),
    )
    expect(fingerprint(['chat', '{"é":1}'])).not.toBe(expected)
    expect(fingerprint([])).toHaveLength(43)
  })

  it('is equal exactly when the parts are', () => {
    const parts = fc.array(fc.string({ maxLength: 4 }), { maxLength: 4 })
    fc.assert(
      fc.property(parts, parts, (left, right) => {
        const same = JSON.stringify(left) === JSON.stringify(right)
        expect(fingerprint(left) === fingerprint(right)).toBe(same)
      }),
    )
    expect(fingerprint(['ab', 'c'])).not.toBe(fingerprint(['a', 'bc']))
    expect(fingerprint(['a', ''])).not.toBe(fingerprint(['a']))
    expect(fingerprint(['1:a'])).not.toBe(fingerprint(['1', 'a']))
  })
})
