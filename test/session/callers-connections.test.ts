// An application's own Redis client and MySQL pool: used, never changed, never closed.
import { Redis } from 'ioredis'
import { createPool } from 'mysql2'
import { createPool as createPromisePool } from 'mysql2/promise'
import { expect, test } from 'vitest'
import { openHouse, outcomes } from './house.ts'

const house = openHouse()

test('I9 · a caller’s ioredis client is left alone: no command, no listener, no end', async () => {
  const redis = new Redis(house.redisUrl, { lazyConnect: true })
  try {
    const before = redis.eventNames()
    const client = house.client({ redis })
    const worker = await house.worker(() => 'done', { redis })
    const id = house.sessionId()
    await client.enqueue(id, 'x')
    await house.settled(client, id)
    await Promise.all([worker.stop(), client.close()])
    // It was never even connected.
    expect([redis.status, redis.eventNames()]).toEqual(['wait', before])
    expect(await redis.exists(house.keys.lock(id))).toBe(0)
  } finally {
    redis.disconnect()
  }
})

test.each([
  [
    'callback',
    (options: object) => createPool(options).promise(),
    (pool: unknown) => (pool as { pool: never }).pool,
  ],
  ['promise', (options: object) => createPromisePool(options), (pool: unknown) => pool as never],
])('I9 · a caller’s mysql2 %s pool keeps its session settings and stays open', async (_form, make, given) => {
  const pool = make({ uri: house.url, connectionLimit: 3, charset: 'utf8mb4_general_ci' })
  const settings = "time_zone = '+03:00', sql_mode = 'ANSI_QUOTES', innodb_lock_wait_timeout = 17"
  const variables =
    'select @@time_zone zone, @@sql_mode mode, @@innodb_lock_wait_timeout wait, @@autocommit auto, connection_id() id'
  try {
    const connections = await Promise.all([1, 2, 3].map(() => pool.getConnection()))
    for (const connection of connections) {
      await connection.query(`set ${settings}`)
      await connection.query('set session transaction isolation level serializable')
    }
    const look = async () => {
      const held = await Promise.all([1, 2, 3].map(() => pool.getConnection()))
      const rows = await Promise.all(
        held.map(async (one) => {
          const [isolation] = await one.query(
            "show variables where variable_name in ('tx_isolation', 'transaction_isolation')",
          )
          return [(await one.query(variables))[0], isolation]
        }),
      )
      for (const one of held) one.release()
      return rows.map((row) => JSON.stringify(row)).sort()
    }
    for (const connection of connections) connection.release()
    const before = await look()
    const client = house.client({ mysql: given(pool) })
    const worker = await house.worker((turn) => turn.step('a', () => 'done'), { mysql: given(pool) })
    const id = house.sessionId()
    await Promise.all([client.enqueue(id, 'x'), client.enqueue(id, 'y'), client.enqueue(id, 'z')])
    await house.settled(client, id)
    const entries = await house.transcript(client, id)
    expect(outcomes(entries)).toEqual(['completed', 'completed', 'completed'])
    expect(Math.abs(Date.parse(entries[0]?.createdAt ?? '') - Date.now())).toBeLessThan(600_000)
    await Promise.all([worker.stop(), client.close()])
    expect(await look()).toEqual(before)
  } finally {
    await pool.end()
  }
})
