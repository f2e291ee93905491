// Cursors: what is written is read back, what was not written is refused, and the text can stand anywhere.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { formatCursor, isBefore, isSame, parseCursor } from '../../src/protocol/cursor.ts'

const number = fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER })
const attempt = fc.record({ seq: number, attempt: number })

test('every place has a text that leads back to it and needs no escaping in a URL or a header', () => {
  const delta = fc.record({ seq: number, attempt: number, index: number })
  const place = fc.oneof(fc.record({ entry: fc.nat() }), fc.record({ entry: fc.maxSafeNat(), delta }))
  fc.assert(
    fc.property(place, (one) => {
      const text = formatCursor(one)
      expect(parseCursor(text)).toEqual(one)
      expect(encodeURIComponent(text)).toBe(text)
    }),
  )
  expect(parseCursor(17)).toEqual({ entry: 17 })
})

test('anything else is refused', () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.anything()), (value) => {
      fc.pre(
        !(typeof value === 'string' || typeof value === 'number') || !/^\d+(\.\d+){0,3}$/.test(`${value}`),
      )
      expect(() => parseCursor(value)).toThrow(expect.objectContaining({ code: 'INVALID_CURSOR' }))
    }),
  )
  for (const text of ['9007199254740992', '1.1.1.9007199254740992', '00', '1.0.1.1', '1.1.1', '1.1.1.0'])
    expect(() => parseCursor(text), text).toThrow(/Cursor/)
})

test('attempts have one order', () => {
  fc.assert(
    fc.property(attempt, attempt, (a, b) => {
      expect([isBefore(a, b), isSame(a, b), isBefore(b, a)].filter(Boolean)).toHaveLength(1)
    }),
  )
  expect(isBefore({ seq: 1, attempt: 9 }, { seq: 2, attempt: 1 })).toBe(true)
})
