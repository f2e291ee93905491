/**
 * The floor under W2: the same pace with nothing around it. One committed INSERT, one PUBLISH, heard on another
 * connection: what a durable message and its notification cost on this machine at this moment.
 */
import { createConnection } from 'mysql2/promise'
import { Redis } from 'ioredis'
import { sleep } from '../src/base/timing.ts'
import { monotonicMs } from './clock.ts'

export async function bareLatencies(
  urls: { redis: string; mysql: string },
  { count, everyMs }: { count: number; everyMs: number },
): Promise<number[]> {
  const mysql = await createConnection({ uri: urls.mysql })
  const [sender, hearer] = [new Redis(urls.redis), new Redis(urls.redis)]
  try {
    await mysql.query('CREATE TABLE bare (id INT AUTO_INCREMENT PRIMARY KEY, payload VARCHAR(400))')
    await hearer.subscribe('bench:bare')
    const took: number[] = []
    for (let n = 0; n < count; n++) {
      const heard = new Promise((resolve) => hearer.once('message', resolve))
      const from = monotonicMs()
      await mysql.query('INSERT INTO bare (payload) VALUES (?)', ['x'.repeat(200)])
      await sender.publish('bench:bare', 'x')
      await heard
      took.push(monotonicMs() - from)
      await sleep(everyMs)
    }
    return took
  } finally {
    sender.disconnect()
    hearer.disconnect()
    await mysql.query('DROP TABLE bare')
    await mysql.end()
  }
}
