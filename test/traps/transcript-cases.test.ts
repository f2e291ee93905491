// Cases of transcripts: many entries at once, readers of any number and at any place, and appends that must not wait for
// each other.
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { Client } from '../../src/index.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type World } from './world.ts'

let world: World
let stage: Stage
beforeEach(async () => {
  world = await openWorld()
  stage = new Stage()
})
afterEach(() => world.close())

const ENTRIES = 3000

/** Follows the session from a cursor until the entry that says `last`, with a new client every few pages. */
async function follow(from: number, limit: number): Promise<number[]> {
  const numbers: number[] = []
  let after = from
  for (let pages = 0, client: Client | undefined; ; pages++) {
    if (pages % 5 === 0) {
      await client?.close()
      client = world.newClient()
    }
    const page = await client!.transcript('s', { after, limit })
    numbers.push(...page.entries.map(({ entry }) => entry))
    after = page.cursor
    if (page.entries.some(({ type }) => type === 'turn_ended')) return numbers
  }
}

test('I7 · thousands of entries of one moment reach every reader once and in order, from wherever it begins, also over several processes (PE-07, SS-03, SS-08, SS-09)', async () => {
  await world.worker(async (turn) => {
    const written = Array.from({ length: ENTRIES }, (_, n) => turn.append({ type: 'note', payload: n }))
    expect(await Promise.all(written)).toEqual(written.map((_, n) => n + 3))
  })
  await world.client.enqueue('s', 'hello')
  await eventually(async () => (await world.row('s')).entry_seq > 2)
  const middle = (await world.row('s')).entry_seq
  const readers = await Promise.all([follow(0, 1000), follow(0, 137), follow(middle, 500)])
  const last = ENTRIES + 3
  const all = Array.from({ length: last }, (_, n) => n + 1)
  expect(readers).toEqual([all, all, all.slice(middle)])
  // One that comes when all is over reads the same.
  expect(await follow(0, 50)).toEqual(all)
  const notes = (await world.entries('s')).filter(({ type }) => type === 'note')
  expect(notes.map(({ payload }) => Number(payload))).toEqual(Array.from({ length: ENTRIES }, (_, n) => n))
  // A time would be no cursor.
  const [busiest] = await world.rows<{ n: number }>(
    'SELECT count(*) n FROM butler_entries GROUP BY created_at ORDER BY n DESC LIMIT 1',
  )
  expect(busiest?.n).toBeGreaterThan(50)
})

test('I7 · a cursor beyond the end is told by the head, and reads on when the transcript gets there (SS-07)', async () => {
  await world.worker(stage.handler)
  await world.client.enqueue('s', 'a')
  await world.done('s')
  expect(await world.client.transcript('s', { after: 99 })).toEqual({ entries: [], cursor: 99, head: 4 })
  await expect(world.client.transcript('s', { after: -1 })).rejects.toMatchObject({
    code: 'INVALID_ARGUMENT',
  })
  await world.client.enqueue('s', 'b')
  await world.done('s')
  const { entries } = await world.client.transcript('s', { after: 7 })
  expect(entries.map(({ entry }) => entry)).toEqual([8])
})

test('I8 · an append whose transaction is open holds up no other session’s (MY-06)', async () => {
  const appended: string[] = []
  const handler: typeof stage.handler = async (turn) => {
    await stage.handler(turn)
    await turn.append({ type: turn.sessionId === 's10' ? 'slow' : 'note' })
    appended.push(turn.sessionId)
  }
  const w1 = await world.worker(handler, { concurrency: 1, mysqlTimeoutMs: 10_000 })
  await world.client.enqueue('s10', 'wait')
  await stage.began()
  const open = w1.toMysql.hold(/insert into `?butler_entries[\s\S]*slow/i)
  stage.go()
  await open.seen
  await world.worker(handler)
  const others = Array.from({ length: 19 }, (_, n) => (n < 10 ? `s1${n + 1}` : `s0${n}`))
  for (const id of others) await world.client.enqueue(id, 'hello')
  await Promise.all(others.map((id) => world.done(id)))
  expect(appended.toSorted()).toEqual(others.toSorted())
  open.release()
  await world.done('s10')
})
