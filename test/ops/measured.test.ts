// What a worker and a client that really work say at /metrics.
import { expect, test } from 'vitest'
import { openMetrics } from '../../src/http/metrics.ts'
import { eventually, openHouse } from '../session/house.ts'

const house = openHouse()

test('turns, their waiting and the readiness of both are on the page', async () => {
  const client = house.client()
  const worker = house.newWorker(() => undefined)
  const page = openMetrics([worker, client])
  try {
    expect(await page.text()).toContain('butler_problem{part="worker",code="starting"} 1')
    await worker.start()
    const ids = [1, 2, 3].map(() => house.sessionId())
    for (const id of ids) await client.enqueue(id, 'x')
    for (const id of ids) await house.settled(client, id)
    const text = await eventually(async () => {
      const now = await page.text()
      expect(now).toContain('butler_turns_ended_total{outcome="completed"} 3')
      return now
    })
    expect(text).toContain('butler_turns_started_total 3')
    expect(text).toContain('butler_turn_wait_seconds_count 3')
    const waited = Number(/butler_turn_wait_seconds_sum (\S+)/.exec(text)?.[1])
    // By the clock of the database; whatever this process's says.
    expect(waited).toBeGreaterThanOrEqual(0)
    expect(waited).toBeLessThan(60)
    expect(text).toContain('butler_ready{part="worker"} 1')
    expect(text).toContain('butler_ready{part="client"} 1')
    // A session rests in its slot for a moment.
    await eventually(async () => expect(await page.text()).toContain('butler_turns_running{part="worker"} 0'))
    await eventually(async () => expect(await page.text()).toMatch(/butler_sweeps_total [1-9]/))
    await worker.stop()
    expect(await page.text()).toContain('butler_problem{part="worker",code="stopped"} 1')
  } finally {
    await page.close()
  }
})

test('a reader that is cut off is counted where it read', async () => {
  const client = house.client({ watchMaxEvents: 100, watchMaxBytes: 1024 * 1024 })
  const page = openMetrics([client])
  try {
    const id = house.sessionId()
    await client.enqueue(id, 'x')
    const reader = client.subscribe(id)
    await reader.next()
    await house.worker(async (turn) => {
      for (let n = 0; n < 300; n++) await turn.append({ type: 'note', payload: n })
    })
    await eventually(async () => expect(await page.text()).toContain('butler_watchers_cut_off_total 1'))
    await reader.return?.()
  } finally {
    await page.close()
  }
})
