// Transactions under faults of a real server: nothing half-written is committed, nothing committed is called failed, and
// every error says which of the two it is.
import { sql } from 'kysely'
import { expect, test } from 'vitest'
import { isInDoubt, isRetryable, toUnavailable } from '../../src/mysql/trouble.ts'
import { add, connectionId, failure, faultServer } from './faults.ts'
import { wireTo } from './wire.ts'

const at = faultServer()

test('a COMMIT whose answer is lost is in doubt, whatever became of it', async () => {
  const wire = await wireTo(at.server.url, (text) => (/commit$/i.test(text) ? 'pass, then cut' : 'pass'))
  try {
    const error = await failure(at.open({}, wire.url).transaction((trx) => add(trx, 1)))
    expect(error).toMatchObject({ code: 'OUTCOME_UNKNOWN' })
    expect([isInDoubt(error), isRetryable(error)]).toEqual([true, false])
    expect(isInDoubt(new Error('outer', { cause: error }))).toBe(true)
    expect(await at.ids()).toEqual([1])
  } finally {
    wire.close()
  }
})

test('a COMMIT that nobody answers in time is in doubt', async () => {
  const wire = await wireTo(at.server.url, (text) => (/commit$/i.test(text) ? 'swallow' : 'pass'))
  try {
    const error = await failure(at.open({ timeoutMs: 1000 }, wire.url).transaction((trx) => add(trx, 1)))
    expect(isInDoubt(error)).toBe(true)
  } finally {
    wire.close()
  }
})

test('a single write whose answer is lost is in doubt; a single read is not', async () => {
  const wire = await wireTo(at.server.url, (text) => (/things/.test(text) ? 'pass, then cut' : 'pass'))
  try {
    const mysql = at.open({}, wire.url)
    expect(isInDoubt(await failure(add(mysql.db, 1)))).toBe(true)
    const error = await failure(sql`select id from things`.execute(mysql.db))
    expect([isInDoubt(error), isRetryable(error)]).toEqual([false, true])
  } finally {
    wire.close()
  }
})

test('a connection killed within a transaction undoes it, also when the function looks away', async () => {
  const mysql = at.open()
  const error = await failure(
    mysql.transaction(async (trx) => {
      await add(trx, 1)
      await at.kill(await connectionId(trx))
      await add(trx, 2).catch(() => undefined)
    }),
  )
  expect(error).toMatchObject({ code: 'MYSQL_UNAVAILABLE' })
  expect([isInDoubt(error), isRetryable(error)]).toEqual([false, true])
  expect(await at.ids()).toEqual([])
  await mysql.transaction((trx) => add(trx, 3))
  expect(await at.ids()).toEqual([3])
})

test('a connection killed just before COMMIT never pretends success', async () => {
  const mysql = at.open()
  const error = await failure(
    mysql.transaction(async (trx) => {
      await add(trx, 1)
      await at.kill(await connectionId(trx))
    }),
  )
  expect(isInDoubt(error) || isRetryable(error)).toBe(true)
  expect(await at.ids()).toEqual([])
})

test('a failing ROLLBACK does not hide why', async () => {
  const mysql = at.open()
  const reason = new Error('the reason')
  const error = await failure(
    mysql.transaction(async (trx) => {
      await add(trx, 1)
      await at.kill(await connectionId(trx))
      throw reason
    }),
  )
  expect(error).toBe(reason)
  expect([isRetryable(error), toUnavailable(error)]).toEqual([false, reason])
  expect(await at.ids()).toEqual([])
})

test('a connection that comes back with an open transaction leaks nothing to the next user', async () => {
  const mysql = at.open()
  const first = await mysql.db.connection().execute(async (db) => {
    await sql`begin`.execute(db)
    await add(db, 1)
    return connectionId(db)
  })
  expect(await connectionId(mysql.db)).not.toBe(first)
  await add(mysql.db, 2)
  expect(await at.ids()).toEqual([2])
})

test.each([
  ['lock wait timeout', 1205],
  ['deadlock', 1213],
])(
  'after a %s nothing of the transaction is committed, even when the function looks away',
  async (_what, errno) => {
    await add(at.admin.db, 10)
    await add(at.admin.db, 11)
    const mysql = at.open()
    const other = at.open({ timeoutMs: 10_000 })
    let release = () => {}
    const blocked = new Promise<void>((resolve) => (release = resolve))
    let hasLock = () => {}
    const isLocked = new Promise<void>((resolve) => (hasLock = resolve))
    const rival = other.transaction(async (trx) => {
      await sql`update things set body = 'rival' where id = 10`.execute(trx)
      // The heavier transaction survives a deadlock.
      for (let i = 20; i < 40; i++) await add(trx, i)
      hasLock()
      if (errno === 1213) await sql`update things set body = 'rival' where id = 11`.execute(trx)
      else await blocked
    })
    const error = await failure(
      mysql
        .transaction(async (trx) => {
          await sql`update things set body = 'mine' where id = 11`.execute(trx)
          await isLocked
          await sql`update things set body = 'mine' where id = 10`.execute(trx).catch(() => undefined)
          await add(trx, 12)
        })
        .finally(() => release()),
    )
    await rival
    expect(error).toMatchObject({ errno })
    expect([isInDoubt(error), isRetryable(error)]).toEqual([false, true])
    const { rows } = await sql<{ id: number }>`select id from things where body = 'mine' or id = 12`.execute(
      at.admin.db,
    )
    expect(rows).toEqual([])
  },
)
