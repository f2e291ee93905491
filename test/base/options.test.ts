// Tunables: what the docs promise is what is enforced, and every refusal says what to do.
import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { InvalidInputError } from '../../src/base/errors.ts'
import { DEFAULTS, resolveTunables } from '../../src/base/options.ts'
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

const numbers = Object.entries(DEFAULTS).filter(
  (pair): pair is [string, number] => typeof pair[1] === 'number',
)

/** `name → doc text`, from the page users read. */
function docs(): Map<string, string> {
  const source = readFileSync(new URL('../../src/base/tunables.ts', import.meta.url), 'utf8')
  const fields = source.matchAll(/\/\*\*((?:(?!\*\/)[^])*)\*\/\s+readonly (\w+)\??:/g)
  return new Map([...fields].map(([, text, name]) => [name!, text!.replaceAll(/\s*\n\s*\*\s*/g, ' ').trim()]))
}

describe('defaults', () => {
  it('are those of the protocol', () => {
    expect(DEFAULTS).toStrictEqual({
      lockTtlMs: 30_000,
      renewMs: 10_000,
      idleReleaseMs: 300_000,
      sweepMs: 5_000,
      heartbeatMs: 750,
      heartbeatTtlMs: 3_000,
      deadAfterMs: 2_500,
      hungAfterMs: 4_000,
      retakeMs: 1_000,
      lookMs: 5_000,
      lookFastMs: 1_000,
      giveAwayMs: 3_000,
      concurrency: 100,
      maxFailures: 3,
      maxCrashes: 3,
      maxStarts: 20,
      retryDelaysMs: [1_000, 5_000],
      drainGraceMs: 25_000,
      stopGraceMs: 5_000,
      turnTimeoutMs: 1_800_000,
      progressTimeoutMs: 600_000,
      maxDetached: 10,
      payloadMaxBytes: 1_048_576,
      entryMaxBytes: 4_194_304,
      payloadMaxDepth: 64,
      queueMax: 1_000,
      liveMaxDeltas: 20_000,
      liveMaxBytes: 1_048_576,
      watchMaxEvents: 10_000,
      watchMaxBytes: 16_777_216,
      enqueueTimeoutMs: 10_000,
      notifyTimeoutMs: 500,
      redisTimeoutMs: 1_000,
      mysqlTimeoutMs: 5_000,
      mysqlPoolSize: 10,
      prefix: 'butler',
      retention: {},
    })
  })

  it('scale with the lock TTL', () => {
    expect(resolveTunables({ lockTtlMs: 3_000 })).toStrictEqual({
      ...DEFAULTS,
      lockTtlMs: 3_000,
      renewMs: 1_000,
      sweepMs: 500,
      heartbeatMs: 75,
      heartbeatTtlMs: 300,
      deadAfterMs: 250,
      hungAfterMs: 400,
      retakeMs: 100,
      lookMs: 500,
      lookFastMs: 100,
      giveAwayMs: 300,
      redisTimeoutMs: 500,
    })
    expect(resolveTunables({ renewMs: 800 })).toStrictEqual({
      ...DEFAULTS,
      renewMs: 800,
      redisTimeoutMs: 400,
    })
  })

  it('work together, whole and within bounds, at every allowed lock TTL', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1_000, max: 300_000 }), (lockTtlMs) => {
        const tunables = resolveTunables({ lockTtlMs })
        // Resolving what was resolved checks the derived values against their own bounds.
        expect(resolveTunables(tunables)).toStrictEqual(tunables)
        expect(
          Object.values(tunables)
            .filter((value) => typeof value === 'number')
            .every(Number.isInteger),
        ).toBe(true)
      }),
    )
  })

  it('stand where undefined is given', () => {
    const undefineds = Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, undefined]))
    expect(resolveTunables(undefineds)).toStrictEqual(DEFAULTS)
    expect(resolveTunables()).toStrictEqual(DEFAULTS)
  })

  it('are frozen, and what was passed in is neither changed nor kept', () => {
    const input = { retryDelaysMs: [1], retention: { entriesMs: 5_000 } }
    const tunables = resolveTunables(input)
    input.retryDelaysMs.push(2)
    input.retention.entriesMs = 6_000
    expect(tunables).toMatchObject({ retryDelaysMs: [1], retention: { entriesMs: 5_000 } })
    for (const part of [tunables, tunables.retryDelaysMs, tunables.retention, DEFAULTS]) {
      expect(Object.isFrozen(part)).toBe(true)
    }
  })
})

describe('bounds', () => {
  const documented = docs()

  it('every tunable is documented', () => {
    expect([...documented.keys()].toSorted()).toStrictEqual(
      [...Object.keys(DEFAULTS), 'messagesMs', 'entriesMs', 'deletedMs'].toSorted(),
    )
  })

  it.each(numbers)('%s has the default and the bounds its docs name', (name, value) => {
    const [, said, derived, min, max] = documented
      .get(name)!
      .match(/Default (.+?)(?: \((\d+)\))?; (\d+) to (\d+)\.$/)!
      .map((part) => part as string | undefined)
    expect(Number(derived ?? said)).toBe(value)
    for (const outside of [Number(min) - 1, Number(max) + 1]) {
      expect(refusal({ [name]: outside })).toContain(`${name} is ${outside}: use a whole number`)
      expect(refusal({ [name]: outside })).toContain(`from ${min} to ${max} (default ${value}).`)
    }
    // At the bounds only a relation may still object.
    for (const inside of [Number(min), Number(max)]) {
      let problem = ''
      try {
        resolveTunables({ [name]: inside })
      } catch (error) {
        problem = (error as Error).message
      }
      expect(problem).not.toContain('use a whole number')
    }
    expect(Number(max)).toBeLessThan(2 ** 31)
  })

  it.each(numbers)('%s refuses what is no whole number', (name) => {
    for (const value of [Infinity, -Infinity, Number.NaN, -1, 0.5, 2 ** 31, '5000', null, true, [], {}, 5n]) {
      expect(refusal({ [name]: value })).toMatch(new RegExp(`^- ${name} is .+: use a whole number`, 'm'))
    }
  })

  it.each(['', ' ', 'a b', ':a', 'a:', 'a{b}', 'a*', 'é', 'x'.repeat(33), 7, null])(
    'prefix %j is refused',
    (prefix) => {
      expect(refusal({ prefix })).toMatch(/^- prefix is .+: use 1 to 32 of/m)
    },
  )

  it.each(['b', 'Team.One_2-x', 'prod:butler', 'x'.repeat(32)])('prefix %j is accepted', (prefix) => {
    expect(resolveTunables({ prefix }).prefix).toBe(prefix)
  })

  it.each([
    [[], 'retryDelaysMs is a list of 0: use a list of 1 to 100 waits'],
    [Array.from({ length: 101 }, () => 1), 'retryDelaysMs is a list of 101: use a list'],
    [5_000, 'retryDelaysMs is 5000: use a list of 1 to 100 waits in milliseconds, such as [1000, 5000]'],
    [[1, -1], 'retryDelaysMs[1] is -1: use a whole number of milliseconds from 0 to 604800000'],
    [[Infinity], 'retryDelaysMs[0] is Infinity: use a whole number'],
  ])('retryDelaysMs %j is refused', (retryDelaysMs, problem) => {
    expect(refusal({ retryDelaysMs })).toContain(problem)
  })

  it('retention is an object of ages, which may be longer than any timer', () => {
    const retention = { messagesMs: 90 * 86_400_000, deletedMs: 1_000 }
    expect(resolveTunables({ retention }).retention).toStrictEqual(retention)
    expect(refusal({ retention: { entriesMs: 999 } })).toContain(
      'retention.entriesMs is 999: use a whole number',
    )
    expect(refusal({ retention: { entriesMs: Infinity } })).toContain('retention.entriesMs is Infinity')
    expect(refusal({ retention: null })).toContain('retention is null: use an object of ages')
    expect(refusal({ retention: { mesagesMs: 5_000 } })).toContain(
      '"retention.mesagesMs" is not an option: did you mean messagesMs?',
    )
  })
})
