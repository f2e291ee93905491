// The short form of `npm run model`: the smallest worlds, whole, and the rules that are missed soonest.
import { describe, expect, test } from 'vitest'
import { MISSED_IN, QUICK, SLOW, titleOf } from './configurations.ts'
import { Protocol, RULES, type RuleName } from './rules.ts'
import { search } from './search.ts'

const LIMIT_MS = 120_000

test.each(QUICK.map((configuration) => [titleOf(configuration), configuration] as const))(
  'I1 I2 I3 I4 I5 I8 · every interleaving of %s',
  (_title, configuration) => {
    const { found, cut, states } = search(configuration, new Protocol())
    expect([found, cut]).toEqual([undefined, false])
    expect(states).toBeGreaterThan(100)
  },
  LIMIT_MS,
)

const names = (Object.keys(RULES) as RuleName[]).filter((name) => !SLOW.includes(name))

describe('a rule that is taken out is missed', () => {
  test.each(names.map((name) => [name, RULES[name]] as const))(
    '%s: %s',
    (name) => {
      expect(search(MISSED_IN[name], new Protocol(name)).found?.invariant).toMatch(/^(?:I\d|lock)$/)
    },
    LIMIT_MS,
  )
})
