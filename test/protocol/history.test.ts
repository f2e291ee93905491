// history.ts: what a model may see of a transcript.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { visible } from '../../src/protocol/history.ts'

interface Line {
  seq: number
  attempt: number
  type: string
  callId: string | null
  stepKey: string | null
  payload: unknown
}

const line = (attempt: number, type: string, more: Partial<Line> = {}): Line => ({
  seq: 1,
  attempt,
  type,
  callId: null,
  stepKey: null,
  payload: null,
  ...more,
})
const shown = (lines: Line[]) =>
  visible(lines).map(({ attempt, type, callId }) => [attempt, type, callId ?? ''].join(' ').trim())

test('I4 · a superseded attempt shows its steps and its closed calls, nothing half-said (CR-10)', () => {
  const transcript = [
    line(1, 'turn_started'),
    line(1, 'message'),
    line(1, 'thought'),
    line(1, 'tool_call', { callId: 'closed' }),
    line(1, 'tool_result', { callId: 'closed' }),
    line(1, 'step', { stepKey: 'a' }),
    line(1, 'tool_call', { callId: 'open' }),
    line(1, 'tool_result', { callId: 'open', payload: { interrupted: true } }),
    line(1, 'error'),
    line(1, 'turn_ended'),
    line(2, 'turn_started'),
    line(2, 'tool_call', { callId: 'running' }),
  ]
  expect(shown(transcript)).toEqual([
    '1 message',
    '1 tool_call closed',
    '1 tool_result closed',
    '1 step',
    '2 tool_call running',
  ])
})

test('an attempt that no other one superseded is shown whole, without the bookkeeping', () => {
  const transcript = [
    line(1, 'turn_started'),
    line(1, 'message'),
    line(1, 'thought'),
    line(1, 'tool_call', { callId: 'c' }),
    line(1, 'tool_result', { callId: 'c', payload: { interrupted: true } }),
    line(1, 'turn_ended'),
  ]
  expect(shown(transcript)).toEqual(['1 message', '1 thought', '1 tool_call c', '1 tool_result c'])
})

test('a result whose call lies before the window is not shown', () => {
  const transcript = [
    line(1, 'tool_result', { callId: 'c' }),
    line(1, 'reply'),
    line(1, 'note', { callId: 'c' }),
  ]
  expect(shown(transcript)).toEqual(['1 reply', '1 note c'])
})

test('the same call id in two attempts is two calls', () => {
  const transcript = [
    line(1, 'tool_call', { callId: 'c' }),
    line(1, 'tool_result', { callId: 'c', payload: { interrupted: true } }),
    line(2, 'tool_call', { callId: 'c' }),
    line(2, 'tool_result', { callId: 'c' }),
  ]
  expect(shown(transcript)).toEqual(['2 tool_call c', '2 tool_result c'])
})

/** Attempts as the runtime leaves them: each call has one result, real or interrupted, but for the last attempt's own. */
const attempts = fc.array(
  fc.record({
    calls: fc.array(fc.constantFrom('returned', 'interrupted', 'open'), { maxLength: 4 }),
    words: fc.nat(3),
  }),
  { minLength: 1, maxLength: 4 },
)

test('I4 · whatever the attempts and the window, no closed call is shown without its result and no result without its call', () => {
  fc.assert(
    fc.property(attempts, fc.nat(40), (runs, cut) => {
      const lines = runs.flatMap(({ calls, words }, index) => {
        const attempt = index + 1
        const isLast = attempt === runs.length
        const kept = calls.map((end) => (end === 'open' && !isLast ? 'interrupted' : end))
        return [
          line(attempt, 'turn_started'),
          ...Array.from({ length: words }, () => line(attempt, 'thought')),
          ...kept.map((_, call) => line(attempt, 'tool_call', { callId: `${call}` })),
          ...kept.flatMap((end, call) =>
            end === 'open'
              ? []
              : [
                  line(attempt, 'tool_result', {
                    callId: `${call}`,
                    payload: end === 'interrupted' ? { interrupted: true } : 1,
                  }),
                ],
          ),
        ]
      })
      const window = lines.slice(Math.min(cut, lines.length))
      const seen = visible(window)
      for (const { type, attempt, callId } of seen) {
        if (type !== 'tool_call' && type !== 'tool_result') continue
        const pair = (what: string) =>
          seen.filter((one) => one.type === what && one.attempt === attempt && one.callId === callId)
        expect(pair('tool_call').length).toBe(1)
        if (attempt < runs.length) expect(pair('tool_result').length).toBe(1)
      }
      expect(seen.every(({ type, attempt }) => type !== 'thought' || attempt === runs.length)).toBe(true)
    }),
  )
})
