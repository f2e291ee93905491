// The guard under faults of a real server: nobody hangs, no bad connection is used again, errors explain themselves.
import { sql } from 'kysely'
import { expect, test } from 'vitest'
import { isInDoubt, isRetryable, toUnavailable } from '../../src/mysql/trouble.ts'
import { freeze } from '../support/services.ts'
import { add, connectionId, failure, faultServer } from './faults.ts'

const at = faultServer()

test('a frozen server keeps nobody waiting, and is used again when it thaws (MY-02)', async () => {
  const mysql = at.open({ timeoutMs: 1000 })
  await connectionId(mysql.db)
  const started = performance.now()
  await freeze(at.server)
  try {
    const errors = await Promise.all([failure(connectionId(mysql.db)), failure(connectionId(mysql.db))])
    for (const error of errors) {
      expect(error).toMatchObject({ code: 'MYSQL_UNAVAILABLE' })
      expect(isRetryable(error)).toBe(true)
      expect(isInDoubt(error)).toBe(false)
    }
    const idle = at.open({ timeoutMs: 1000 })
    await failure(connectionId(idle.db))
    await Promise.all([idle.close(), mysql.close()])
    expect(performance.now() - started).toBeLessThan(15_000)
  } finally {
    at.server.kill('SIGCONT')
  }
  expect(await connectionId(at.open().db)).toBeGreaterThan(0)
})

test('a full pool refuses in time, and a connection that comes late goes back', async () => {
  const mysql = at.open({ timeoutMs: 1000 })
  const held = mysql.db.connection().execute(async (db) => {
    const refused = await failure(connectionId(mysql.db))
    expect(refused).toMatchObject({ code: 'MYSQL_UNAVAILABLE' })
    return connectionId(db)
  })
  const id = await held
  expect(await connectionId(mysql.db)).toBe(id)
})

test('a connection that comes back with a statement under way is not used again', async () => {
  const mysql = at.open()
  let forgotten: Promise<unknown> = Promise.resolve()
  const first = await mysql.db.connection().execute(async (db) => {
    const id = await connectionId(db)
    forgotten = failure(sql`select sleep(1)`.execute(db))
    return id
  })
  expect(await connectionId(mysql.db)).not.toBe(first)
  await forgotten
})

test.each([
  ['by a little', '"'.repeat(600 * 1024)],
  ['by far', 'é'.repeat(10 * 1024 ** 2)],
])('a statement too large for the server %s says so and poisons nothing (MY-11)', async (_how, body) => {
  const mysql = at.open()
  await mysql.transaction((trx) => add(trx, 3, body.slice(0, 500 * 1024)))
  const error = await failure(mysql.transaction((trx) => add(trx, 1, body)))
  expect(error).toMatchObject({ code: 'PAYLOAD_TOO_LARGE' })
  expect([isInDoubt(error), isRetryable(error)]).toEqual([false, false])
  await mysql.transaction((trx) => add(trx, 2))
  expect(await at.ids()).toEqual([2, 3])
})

test('a server that became read-only is left for a new connection (MY-10)', async () => {
  const url = new URL(at.server.url)
  url.username = 'app'
  const mysql = at.open({}, url.href)
  const first = await connectionId(mysql.db)
  await sql`set global read_only = 1`.execute(at.admin.db)
  try {
    const error = await failure(mysql.transaction((trx) => add(trx, 1)))
    expect([isInDoubt(error), isRetryable(error)]).toEqual([false, true])
    expect(toUnavailable(error)).toMatchObject({ code: 'MYSQL_UNAVAILABLE' })
  } finally {
    await sql`set global read_only = 0`.execute(at.admin.db)
  }
  expect(await connectionId(mysql.db)).not.toBe(first)
})

test('errors name the statement but none of its values', async () => {
  const mysql = at.open()
  await add(mysql.db, 1)
  const error = Object(await failure(add(mysql.db, 1, 'PRIVATE')))
  expect(error).toMatchObject({ errno: 1062, sql: 'insert into things values (?, ?)' })
  expect(JSON.stringify({ ...error, message: error.message, stack: error.stack })).not.toContain('PRIVATE')
})

test('a server that is down is reported in time, and used when it is back', async () => {
  const troubles: unknown[] = []
  const mysql = at.open({ onTrouble: (error) => troubles.push(error) })
  await connectionId(mysql.db)
  await at.server.restart()
  await expect
    .poll(
      () =>
        add(mysql.db, 1).then(
          () => true,
          () => false,
        ),
      { timeout: 10_000 },
    )
    .toBe(true)
  at.server.kill('SIGKILL')
  const error = await failure(connectionId(mysql.db))
  expect(error).toMatchObject({ code: 'MYSQL_UNAVAILABLE' })
  expect(isRetryable(error)).toBe(true)
  await at.server.restart()
  await expect.poll(() => connectionId(mysql.db).catch(() => 0), { timeout: 10_000 }).toBeGreaterThan(0)
  expect(troubles).not.toEqual([])
})

test('wrong credentials are explained and not worth repeating', async () => {
  const url = new URL(at.server.url)
  url.username = 'nobody'
  url.password = 'SECRET'
  const error = await failure(connectionId(at.open({}, url.href).db))
  expect(error).toMatchObject({ code: 'MYSQL_UNAVAILABLE', message: expect.stringContaining('check user') })
  expect(String(error)).not.toContain('SECRET')
  expect(isRetryable(error)).toBe(false)
})
