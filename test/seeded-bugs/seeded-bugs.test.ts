import { existsSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { plant } from './bug.ts'
import { bugs } from './bugs.ts'

test.each(bugs.map((bug) => [`${bug.file}: ${bug.name}`, bug] as const))(
  'the seeded bug still applies to the code · %s',
  (_title, bug) => {
    const text = readFileSync(new URL(`../../src/${bug.file}`, import.meta.url), 'utf8')
    expect(plant(bug, text)).not.toBe(text)
    expect(bug.noticedBy).not.toEqual([])
    for (const test of bug.noticedBy) expect(existsSync(new URL(`../${test}`, import.meta.url))).toBe(true)
  },
)
