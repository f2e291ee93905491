import { describe, expect, it } from 'vitest'
import { duration } from '../../src/cli/arguments.ts'
import { describeFailure, exitCodeOf } from '../../src/cli/exits.ts'
import { readSettings, withoutPassword } from '../../src/cli/settings.ts'
import { InvalidInputError, RefusedError, UnavailableError } from '../../src/index.ts'

describe('settings', () => {
  it('come from the flag, else from our variable, else from the common one, else by default', () => {
    const env = {
      BUTLER_REDIS_URL: 'redis://ours',
      REDIS_URL: 'redis://common',
      MYSQL_URL: 'mysql://common/db',
      DATABASE_URL: 'mysql://everybody/db',
    }
    expect(readSettings({ redis: 'redis://flag' }, env)).toEqual({
      redis: { value: 'redis://flag', from: '--redis' },
      mysql: { value: 'mysql://common/db', from: 'MYSQL_URL' },
      prefix: { value: 'butler', from: 'default' },
    })
    expect(readSettings({}, env).redis).toEqual({ value: 'redis://ours', from: 'BUTLER_REDIS_URL' })
    expect(readSettings({}, {}).redis.from).toBe('default')
  })

  it('take DATABASE_URL only when it names a MySQL, and empty variables for none', () => {
    const from = (env: Record<string, string>) => readSettings({}, env).mysql.from
    expect(from({ DATABASE_URL: 'mysql://here/db' })).toBe('DATABASE_URL')
    expect(from({ DATABASE_URL: 'mariadb://here/db' })).toBe('DATABASE_URL')
    expect(from({ DATABASE_URL: 'postgres://here/db' })).toBe('default')
    expect(from({ BUTLER_MYSQL_URL: '', MYSQL_URL: '' })).toBe('default')
  })

  it.each([
    ['mysql://root:pa:ss@word@host:3306/db', 'mysql://root:***@host:3306/db'],
    ['redis://:secret@host', 'redis://:***@host'],
    [
      'redis+sentinel://h1:1,h2:2/group?sentinelPassword=secret&db=1',
      'redis+sentinel://h1:1,h2:2/group?sentinelPassword=***&db=1',
    ],
    ['redis://host:6379/0', 'redis://host:6379/0'],
  ])('are shown without their password: %s', (url, shown) => {
    expect(withoutPassword(url)).toBe(shown)
  })
})

describe('ends', () => {
  it('have an exit code by the kind of error', () => {
    expect(exitCodeOf(new InvalidInputError('INVALID_KEY', 'no'))).toBe(2)
    expect(exitCodeOf(new UnavailableError('REDIS_UNAVAILABLE', 'no'))).toBe(3)
    expect(exitCodeOf(new UnavailableError('MIGRATION_PENDING', 'no'))).toBe(1)
    expect(exitCodeOf(new RefusedError('QUEUE_FULL', 'no'))).toBe(5)
    expect(exitCodeOf(Object.assign(new Error('no'), { code: 'ECONNREFUSED' }))).toBe(3)
    expect(exitCodeOf(new Error('no'))).toBe(1)
  })

  it('show a stack only on request, and never one of a deliberate error', () => {
    const deliberate = new RefusedError('QUEUE_FULL', 'the queue is full')
    expect(describeFailure(deliberate, true)).toBe('QUEUE_FULL: the queue is full')
    expect(describeFailure(new Error('oops'), false)).toBe('oops')
    expect(describeFailure(new Error('oops'), true)).toMatch(/^Error: oops\n\s+at /)
  })
})

describe('ages', () => {
  it('are numbers with a unit', () => {
    expect(['250ms', '90s', '15m', '12h', '30d'].map(duration)).toEqual([
      250, 90_000, 900_000, 43_200_000, 2_592_000_000,
    ])
    for (const text of ['30', 'd', '-1d', '1.5h', '30 d', '1w', ''])
      expect(() => duration(text)).toThrow('such as 30d')
  })
})
