// Watching over HTTP: whoever breaks off goes on behind the last event it has, on whatever server, as if nothing had been.
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Turn } from '../../src/index.ts'
import { events, follow } from '../service/stream.ts'
import { until } from '../support/eventually.ts'
import { openServed } from './served.ts'
import type { Told } from './sse.ts'

const SLOW = process.env.MODE === 'slow'
const EVENTS = SLOW ? 1000 : 300
const STEP = SLOW ? 1 : 7
const WATCHERS = SLOW ? 500 : 100

let served: Awaited<ReturnType<typeof openServed>>
let end = () => {}
const ended = new Promise<void>((resolve) => (end = resolve))
beforeAll(async () => {
  served = await openServed(3)
  await served.api.world.worker((turn) => (turn.sessionId === CROWD ? chat(turn) : stream(turn)))
})
afterAll(() => served.close())

const CROWD = 'acme:crowd'

/** Many events, and no end until the test says so. */
async function stream(turn: Turn): Promise<void> {
  for (let index = 1; index <= EVENTS - 2; index++) {
    if (index % 10 === 0) await turn.append({ type: 'note', payload: index })
    else turn.emit({ index, text: 'line\nbreak\r\n\r\ndata: x\u2028' })
  }
  await ended
}

async function chat(turn: Turn): Promise<void> {
  for (let index = 0; index < (SLOW ? 40 : 15); index++) {
    turn.emit(index)
    await turn.append({ type: 'note', payload: index })
  }
}

const show = ({ event, id, data }: Told) => `${event} ${id} ${data}`

/** So many events that are no states. */
async function take(url: string, session: string, after: string, count: number): Promise<string[]> {
  const over = new AbortController()
  const lines: string[] = []
  try {
    for await (const sent of events(url, { session, key: served.key, after, signal: over.signal })) {
      if (sent.event === 'state') continue
      lines.push(show(sent))
      if (lines.length === count) break
    }
  } finally {
    over.abort()
  }
  return lines
}

test(
  'I7 · at every cursor of a running turn, on changing servers, the remainder is the same (SS-09, SS-11)',
  { timeout: 240_000 },
  async () => {
    const session = 'acme:resume'
    await served.api.client.enqueue(session, 'go')
    const all = await take(served.urls[0]!, session, '0', EVENTS)
    const ids = all.map((line) => line.split(' ')[1]!)
    expect(new Set(ids).size).toBe(EVENTS)
    for (let at = 0; at < EVENTS - 1; at += STEP) {
      const rest = await take(served.urls[at % 3]!, session, ids[at]!, EVENTS - 1 - at)
      expect(rest).toEqual(all.slice(at + 1))
    }
    end()
    await served.api.world.done(session)
  },
)

test(
  `I7 · ${WATCHERS} watchers that come at random moments see every entry exactly once (SS-12)`,
  { timeout: 120_000 },
  async () => {
    const session = CROWD
    const seen = Array.from({ length: WATCHERS }, () => [] as number[])
    const overs = seen.map(() => new AbortController())
    await served.api.world.client.enqueue(session, 'go')
    const watching = seen.map(async (entries, index) => {
      await eventuallyAfter(index)
      const { signal } = overs[index]!
      const where = { session, key: served.key, signal }
      try {
        for await (const { event, value } of follow(() => served.urls, where))
          if (event === 'entry') entries.push((value as { entry: { entry: number } }).entry.entry)
      } catch (error) {
        if (!signal.aborted) throw error
      }
    })
    for (let more = 0; more < 2; more++) await served.api.world.client.enqueue(session, 'go')
    const inspect = () => served.api.client.inspect(session)
    await until(async () => (await inspect()).doneSeq === 3, { ms: 60_000, what: 'all turns to end' })
    const { head } = await served.api.client.transcript(session, { limit: 1 })
    const all = Array.from({ length: head }, (_, index) => index + 1)
    await until(() => seen.every(({ length }) => length >= head), {
      ms: 60_000,
      what: 'everybody to have everything',
    })
    for (const over of overs) over.abort()
    await Promise.all(watching)
    expect(seen.filter((entries) => JSON.stringify(entries) !== JSON.stringify(all))).toEqual([])
  },
)

/** Spread over the time that the turns take. */
const eventuallyAfter = (index: number) => {
  const at = performance.now() + (index % 50) * 20
  return until(() => performance.now() >= at)
}
