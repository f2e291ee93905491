// Impossible pairs and unknown names are refused at start, with the reason and the way out.
import { describe, expect, it } from 'vitest'
import { InvalidInputError } from '../../src/base/errors.ts'
import { resolveTunables } from '../../src/base/options.ts'
import type { TunablesInput } from '../../src/base/options.ts'

/** The message of the refusal; for input that no type allows. */
function refusal(input: unknown): string {
  try {
    resolveTunables(input as TunablesInput)
  } catch (error) {
    expect(error).toBeInstanceOf(InvalidInputError)
    expect(error).toMatchObject({ code: 'INVALID_OPTIONS', name: 'InvalidInputError' })
    return (error as Error).message
  }
  throw new Error(`accepted: ${String(input)}`)
}

describe('relations', () => {
  it.each<[TunablesInput, RegExp]>([
    [
      { renewMs: 15_000 },
      /renewMs \(15000\) must be less than half of lockTtlMs \(30000\), or a single lost renewal/,
    ],
    [{ lockTtlMs: 3_000, renewMs: 1_500 }, /renewMs \(1500\) must be less than half of lockTtlMs \(3000\)/],
    [
      { heartbeatMs: 800, heartbeatTtlMs: 1_599 },
      /heartbeatMs \(800\) must be at most half of heartbeatTtlMs \(1599\)/,
    ],
    [{ deadAfterMs: 2_249 }, /deadAfterMs \(2249\) must be at least three times heartbeatMs \(750\)/],
    [{ redisTimeoutMs: 10_000 }, /redisTimeoutMs \(10000\) must be less than renewMs \(10000\)/],
    [
      { payloadMaxBytes: 4_194_305 },
      /entryMaxBytes \(4194304\) must be at least payloadMaxBytes \(4194305\)/,
    ],
    [{ idleReleaseMs: 29_999 }, /idleReleaseMs \(29999\) must be at least lockTtlMs \(30000\)/],
  ])('%j is refused with the reason and both ways out', (input, problem) => {
    expect(refusal(input)).toMatch(problem)
    expect(refusal(input)).toMatch(
      /^These options cannot be used:\n- [^\n]+: (lower|raise) \w+ or (lower|raise) \w+\.$/,
    )
  })

  it.each<TunablesInput>([
    { renewMs: 14_999 },
    { heartbeatMs: 800, heartbeatTtlMs: 1_600 },
    { deadAfterMs: 2_250 },
    { redisTimeoutMs: 9_999 },
    { payloadMaxBytes: 4_194_304 },
    { idleReleaseMs: 30_000 },
    { progressTimeoutMs: 2_000_000 },
  ])('%j is just allowed', (input) => {
    expect(resolveTunables(input)).toMatchObject(input)
  })
})

describe('messages', () => {
  it.each([
    ['lockTtl', 'lockTtlMs'],
    ['renewms', 'renewMs'],
    ['LOCKTTLMS', 'lockTtlMs'],
    ['maxFailure', 'maxFailures'],
    ['concurency', 'concurrency'],
    ['turnTimeout', 'turnTimeoutMs'],
  ])('%s: did you mean %s?', (name, meant) => {
    expect(refusal({ [name]: 1 })).toContain(`"${name}" is not an option: did you mean ${meant}?`)
  })

  it.each(['foo', 'x'.repeat(10_000), '', '__proto__', 'constructor'])(
    'unknown and like nothing: %j',
    (name) => {
      const message = refusal(JSON.parse(JSON.stringify({ [name]: 1 }).replace('{}', '{"__proto__":1}')))
      expect(message).toMatch(/is not an option: use one of lockTtlMs, renewMs, /)
      expect(message.length).toBeLessThan(1_000)
    },
  )

  it('names all problems at once, each on its line', () => {
    const lines = refusal({ lockTtlMs: -1, renewMs: 'x', sweep: 1, prefix: '' }).split('\n')
    expect(lines[0]).toBe('These options cannot be used:')
    expect(lines.slice(1).map((line) => /^- "?(\w+)/.exec(line)?.[1])).toStrictEqual([
      'lockTtlMs',
      'renewMs',
      'prefix',
      'sweep',
    ])
  })

  it.each([null, [], 'x', 5, () => 1])('%j is no set of options', (input) => {
    expect(refusal(input)).toMatch(/^- the argument is .+: use an object\.$/m)
  })
})
