// Depth and size: exact at the border, and cheap far beyond it.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parse, serialise } from '../../src/base/payload.ts'

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

describe('limits', () => {
  it.each([1, 5, 64, 512])('depth: %i levels fit, one more does not', (maxDepth) => {
    expect(write(nested(maxDepth), { maxDepth })).toBe('['.repeat(maxDepth) + ']'.repeat(maxDepth))
    const problem = refusal('PAYLOAD_TOO_DEEP', new RegExp(`nested too deeply: at most ${maxDepth} levels`))
    expect(() => write(nested(maxDepth + 1), { maxDepth })).toThrow(problem)
  })

  it('100,000 levels, and endless ones, do not overflow the stack', () => {
    expect(() => write(nested(100_000))).toThrow(refusal('PAYLOAD_TOO_DEEP', /nested/))
    const endless = (): object => ({ toJSON: () => ({ a: endless() }) })
    expect(() => write(endless())).toThrow(refusal('PAYLOAD_TOO_DEEP', /nested/))
    expect(parse('['.repeat(100_000) + ']'.repeat(100_000))).toHaveLength(1)
  })

  it('size is counted in UTF-8 bytes of the text', () => {
    expect(write('é'.repeat(49), { maxBytes: 100 })).toHaveLength(51)
    const problem = refusal(
      'PAYLOAD_TOO_LARGE',
      /^Message payload is 102 bytes of JSON; at most 100 are allowed/,
    )
    expect(() => write('é'.repeat(50), { maxBytes: 100 })).toThrow(problem)
    // Each control character is six bytes once escaped.
    expect(() => write('\u0001'.repeat(20), { maxBytes: 100 })).toThrow(
      refusal('PAYLOAD_TOO_LARGE', /at most 100/),
    )
  })

  it('is exact at the border, whatever the value', () => {
    fc.assert(
      fc.property(alike.filter(isSafe), (value) => {
        const text = JSON.stringify(value)
        const bytes = Buffer.byteLength(text)
        expect(write(JSON.parse(text), { maxBytes: bytes })).toBe(text)
        expect(() => write(JSON.parse(text), { maxBytes: bytes - 1 })).toThrow(
          refusal('PAYLOAD_TOO_LARGE', /at most/),
        )
      }),
    )
  })

  it.each<[string, unknown]>([
    ['a string', 'x'.repeat(50_000_000)],
    ['a key', { ['x'.repeat(50_000_000)]: 1 }],
    ['an array', Array.from({ length: 3_000_000 }, () => 1)],
    [
      'an array with a huge length and nothing in it but nulls',
      new Proxy([], { get: (_t, key) => (key === 'length' ? 4e9 : null) }),
    ],
    ['the same objects again and again', Array.from({ length: 60 }).reduce((inner) => [inner, inner], 'x')],
  ])('gives up early: %s', (_name, value) => {
    const before = performance.now()
    expect(() => write(value)).toThrow(
      refusal('PAYLOAD_TOO_LARGE', /is at least \d+ bytes .* 1048576 are allowed/),
    )
    // Many times what it takes, since the machine may be busy; a full pass takes longer or never ends.
    expect(performance.now() - before).toBeLessThan(10_000)
  })

  it('a million keys are refused, and as many as fit are written', () => {
    const keys = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`k${index}`, 0]))
    expect(() => write(keys(1_000_000))).toThrow(refusal('PAYLOAD_TOO_LARGE', /at least 1048/))
    expect(parse(write(keys(90_000)))).toHaveProperty('k89999', 0)
  })
})
