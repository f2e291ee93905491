// Watching a session over the public API: what is there, then what comes, once each and in order.
import { expect, test } from 'vitest'
import type { Turn, WatchEvent } from '../../src/index.ts'
import { failure, openHouse, signal } from './house.ts'
import { expectConsistent, isEntry, show, story, watch } from './watching.ts'

const house = openHouse()

test('I7 · a watcher sees what is there, then entries, deltas and states as they come', async () => {
  const client = house.client()
  const id = house.sessionId()
  const go = signal()
  await client.enqueue(id, 'x')
  const watched = watch(house.client(), id)
  await watched.until(({ type }) => type === 'state')
  await house.worker(async (turn) => {
    turn.emit('a')
    turn.emit({ b: 1 })
    await turn.append({ type: 'note' })
    turn.emit('c')
    await go.promise
    return 'abc'
  })
  await watched.until((event) => event.type === 'delta' && event.index === 3)
  go.resolve()
  await watched.until((event) => event.type === 'state' && event.state === 'idle')
  expectConsistent(watched.events)
  expect(watched.events.map(show).filter((line) => line !== 'running')).toEqual([
    'waiting 1',
    '#1 turn_started',
    '#2 message',
    '1/1 "a"',
    '1/1 {"b":1}',
    '#3 note',
    '1/1 "c"',
    '#4 reply',
    '#5 turn_ended',
    'idle',
  ])
  await watched.leave()
})

test('I7 · a newcomer sees the reply so far at once, in the order in which it came; after its end, entries only', async () => {
  const client = house.client()
  const id = house.sessionId()
  const go = signal()
  await house.worker(async (turn) => {
    turn.emit(1)
    await turn.append({ type: 'note' })
    turn.emit(2)
    await go.promise
  })
  await client.enqueue(id, 'x')
  const first = watch(client, id)
  await first.until((event) => event.type === 'delta' && event.index === 2)
  const second = watch(house.client(), id)
  await second.until((event) => event.type === 'delta' && event.index === 2)
  expect(story(second.events)).toEqual(['#1 turn_started', '#2 message', '1/1 1', '#3 note', '1/1 2'])
  // Who comes by an entry's number has none of the reply under way, whatever entries it has.
  const third = watch(house.client(), id, { after: 3 })
  await third.until((event) => event.type === 'delta' && event.index === 2)
  expect(story(third.events)).toEqual(['1/1 1', '1/1 2'])
  go.resolve()
  for (const one of [first, second, third]) await one.until(isEntry('turn_ended'))
  const last = watch(house.client(), id)
  await last.until(isEntry('turn_ended'))
  expect(story(last.events)).toEqual(['#1 turn_started', '#2 message', '#3 note', '#4 turn_ended'])
  for (const one of [first, second, third, last]) await one.leave()
  await house.settled(client, id)
  expect(await house.redis.exists(house.keys.live(id))).toBe(0)
})

/** With the entries, a thousand events in slow mode: every cursor takes what follows it, so the work is their square. */
const DELTAS = process.env.MODE === 'slow' ? 900 : 300

test('I7 · going on from any cursor of a long turn, on alternating clients, gives the identical remainder', async () => {
  const client = house.client()
  const id = house.sessionId()
  const go = signal()
  await house.worker(async (turn: Turn) => {
    for (let n = 1; n <= DELTAS; n += 1) {
      turn.emit(n)
      if (n % 10 === 0) await turn.append({ type: 'note', payload: n })
    }
    turn.emit('last')
    await go.promise
    return 'done'
  })
  await client.enqueue(id, 'x')
  const live = watch(client, id)
  const isLast = (event: WatchEvent) => event.type === 'delta' && event.delta === 'last'
  await live.until(isLast)
  const all = watch(client, id)
  await all.until(isLast)
  for (const one of [live, all]) expectConsistent(one.events)
  const told = all.events.filter(({ type }) => type !== 'state')
  expect(told).toHaveLength(2 + DELTAS + 1 + DELTAS / 10)
  // Who was there may have been given an entry a moment before the deltas that lie before it, and misses none.
  expect(story(live.events).sort()).toEqual(story(all.events).sort())
  const others = [house.client(), house.client()]
  for (let at = 0; at < told.length - 1; at += 1) {
    const rest: unknown[] = []
    for await (const event of others[at % 2]!.subscribe(id, { after: told[at]!.cursor })) {
      if (event.type !== 'state') rest.push(event)
      if (rest.length === told.length - 1 - at) break
    }
    // As text: half a million deep comparisons take a minute.
    if (JSON.stringify(rest) !== JSON.stringify(told.slice(at + 1))) expect(rest).toEqual(told.slice(at + 1))
  }
  go.resolve()
  await all.until(isEntry('turn_ended'))
  // The attempt is over: whatever delta the cursor names, what follows are the entries.
  const [delta] = all.events.filter((event) => event.type === 'delta' && event.index === DELTAS / 2 + 5)
  const late = watch(others[0]!, id, { after: delta!.cursor })
  await late.until(isEntry('turn_ended'))
  expect(story(late.events)).toHaveLength(DELTAS / 20 + 2)
  await Promise.all([live.leave(), all.leave(), late.leave()])
}, 120_000)

test('I7 · a retry is a boundary: the next attempt’s deltas come after it and begin anew (CR-10)', async () => {
  const client = house.client()
  const id = house.sessionId()
  const seen = [signal(), signal()]
  await house.worker(async (turn) => {
    turn.emit(`try ${turn.attempt}`)
    await seen[turn.attempt - 1]!.promise
    if (turn.attempt === 1) throw new Error('not yet')
    return 'done'
  })
  await client.enqueue(id, 'x')
  const watched = watch(house.client(), id)
  for (const attempt of [1, 2]) {
    await watched.until((event) => event.type === 'delta' && event.attempt === attempt)
    seen[attempt - 1]!.resolve()
  }
  await watched.until(isEntry('reply'))
  await watched.until(({ type, ...rest }) => type === 'state' && 'state' in rest && rest.state === 'idle')
  expectConsistent(watched.events)
  expect(story(watched.events)).toEqual([
    '#1 turn_started',
    '#2 message',
    '1/1 "try 1"',
    '#3 error',
    '#4 turn_ended',
    '#5 turn_started',
    '1/2 "try 2"',
    '#6 reply',
    '#7 turn_ended',
  ])
  await watched.leave()
})

test('I7 · a cursor that leads nowhere is told by one resync, and everything there is follows (SS-07)', async () => {
  const client = house.client()
  const id = house.sessionId()
  await house.worker(() => 'done')
  await client.enqueue(id, 'x')
  await house.settled(client, id)
  const all = ['#1 turn_started', '#2 message', '#3 reply', '#4 turn_ended']
  for (const after of [99, '5', '99.1.1.7']) {
    const watched = watch(client, id, { after })
    await watched.until(isEntry('turn_ended'))
    expect(story(watched.events)).toEqual(['resync 4', ...all])
    await watched.leave()
  }
  for (const after of ['', ' 4', '-1', '1.2', '1.2.3', '1.2.3.4.5', '01', '1e3', 'x', -1, 1.5, NaN, {}]) {
    const open = () => client.subscribe(id, { after: after as string })
    expect(open, JSON.stringify(after)).toThrow(expect.objectContaining({ code: 'INVALID_CURSOR' }))
  }
  expect(() => client.subscribe('no id')).toThrow(expect.objectContaining({ code: 'INVALID_SESSION_ID' }))
  expect((await client.transcript(id, { after: '2.1.1.9' })).entries).toHaveLength(2)
})

test('I7 · a session that was never there or is deleted ends its watchers; a revived one makes old cursors resync', async () => {
  const client = house.client()
  const id = house.sessionId()
  expect(await failure(client.subscribe('nobody').next())).toMatchObject({ code: 'SESSION_NOT_FOUND' })
  await house.worker(() => 'done')
  await client.enqueue(id, 'x')
  const watched = watch(house.client(), id)
  const reply = await watched.until(isEntry('reply'))
  await client.delete(id)
  expect(await failure(watched.over)).toMatchObject({ code: 'SESSION_NOT_FOUND' })
  expect(await failure(client.subscribe(id).next())).toMatchObject({ code: 'SESSION_NOT_FOUND' })
  await client.enqueue(id, 'y')
  const revived = watch(client, id, { after: reply.cursor })
  const fresh = watch(client, id)
  const [first] = await Promise.all([revived.until(isEntry('reply')), fresh.until(isEntry('reply'))])
  expect(first.entry.seq).toBe(2)
  expect(story(revived.events)[0]).toMatch(/^resync/)
  expect(story(revived.events).slice(1, 4)).toEqual(story(fresh.events).slice(0, 3))
  await Promise.all([revived.leave(), fresh.leave()])
})

test('I7 · entries that were pruned are told by a resync, and a newcomer begins behind them', async () => {
  const client = house.client()
  const id = house.sessionId()
  await house.worker(() => 'done')
  for (const text of ['x', 'y']) await client.enqueue(id, text)
  await house.settled(client, id)
  await house.mysql.db
    .deleteFrom('butler_entries')
    .where('session_id', '=', id)
    .where('entry_seq', '<=', 6)
    .execute()
  const rest = ['#7 reply', '#8 turn_ended']
  for (const [after, expected] of [
    [0, rest],
    [3, ['resync 8', ...rest]],
    [6, rest],
  ] as const) {
    const watched = watch(client, id, { after })
    await watched.until(isEntry('turn_ended', 2))
    expect(story(watched.events)).toEqual(expected)
    await watched.leave()
  }
  await house.mysql.db.deleteFrom('butler_entries').where('session_id', '=', id).execute()
  const none = watch(client, id, { after: 2 })
  await none.until(({ type }) => type === 'resync')
  await none.leave()
})

test('leaving, a signal and a closed client end a watcher at once, also while it waits, and nothing stays behind (SS-14)', async () => {
  const client = house.client()
  const id = house.sessionId()
  const hears = async () => Number((await house.redis.pubsub('NUMSUB', house.keys.sessionChannel(id)))[1])
  await client.enqueue(id, 'x')
  const left = client.subscribe(id)
  await left.next()
  const waiting = left.next()
  await expect.poll(hears).toBe(1)
  await left.return?.()
  expect(await waiting).toEqual({ done: true, value: undefined })
  await expect.poll(hears).toBe(0)
  const controller = new AbortController()
  const signalled = watch(client, id, { signal: controller.signal })
  await signalled.until(({ type }) => type === 'state')
  controller.abort()
  await signalled.over
  await expect.poll(hears).toBe(0)
  expect(await client.subscribe(id, { signal: controller.signal }).next()).toMatchObject({ done: true })
  const closed = watch(client, id)
  await closed.until(({ type }) => type === 'state')
  await client.close()
  expect(await failure(closed.over)).toMatchObject({ code: 'CLOSED' })
  expect(() => client.subscribe(id)).toThrow(expect.objectContaining({ code: 'CLOSED' }))
})

test('a watcher that takes nothing is cut off, and goes on from the cursor it is told (SS-08)', async () => {
  const writer = house.client()
  const id = house.sessionId()
  const options = { watchMaxEvents: 100 }
  const client = house.client(options)
  const go = signal()
  await house.worker(async (turn) => {
    await go.promise
    for (let n = 1; n <= 300; n += 1) turn.emit(n)
    return 'done'
  })
  await writer.enqueue(id, 'x')
  const lazy = client.subscribe(id)
  const taken = [await lazy.next(), await lazy.next()].map(({ value }) => value as WatchEvent)
  const keen = watch(client, id)
  await keen.until(({ type }) => type === 'state')
  go.resolve()
  await keen.until(isEntry('turn_ended'))
  const error = await failure(lazy.next())
  expect(error).toMatchObject({ name: 'CutOffError', code: 'WATCHER_CUT_OFF', cursor: taken[1]!.cursor })
  expect(await lazy.next()).toEqual({ done: true, value: undefined })
  const again = watch(client, id, { after: (error as { cursor: string }).cursor })
  await again.until(isEntry('turn_ended'))
  // A cursor that says more about the deltas of the attempt is as good.
  const entries = (events: readonly WatchEvent[]) =>
    events.flatMap((event) => (event.type === 'entry' ? [event.entry] : []))
  expect([...entries(taken), ...entries(again.events)]).toEqual(entries(keen.events))
  expect(keen.events.filter(({ type }) => type === 'delta')).toHaveLength(300)
  await Promise.all([keen.leave(), again.leave()])
})

test('deltas beyond the limits are cut from the oldest, and a newcomer is told so', async () => {
  const client = house.client()
  const id = house.sessionId()
  const go = signal()
  const limits = { liveMaxDeltas: 50 }
  await house.worker(async (turn) => {
    for (let n = 1; n <= 500; n += 1) turn.emit(n)
    await go.promise
  }, limits)
  await client.enqueue(id, 'x')
  const first = watch(house.client(limits), id)
  await first.until((event) => event.type === 'delta' && event.index === 500)
  const second = watch(house.client(limits), id)
  await second.until((event) => event.type === 'delta' && event.index === 500)
  const [gap] = second.events.filter(({ type }) => type === 'gap')
  expect(gap).toMatchObject({ from: 1, seq: 1, attempt: 1 })
  expect(second.events.filter(({ type }) => type === 'delta').length).toBeLessThanOrEqual(100)
  expectConsistent(second.events)
  go.resolve()
  await Promise.all([first.leave(), second.leave()])
})

test('well-formed whatever is emitted: characters cut in two come together again (PE-02)', async () => {
  const client = house.client()
  const id = house.sessionId()
  const go = signal()
  const text = 'a👨‍👩‍👧\u0000\n\r\u2028z'
  await house.worker(async (turn) => {
    for (const unit of text.split('')) turn.emit(unit)
    await go.promise
  })
  await client.enqueue(id, 'x')
  const watched = watch(client, id)
  await watched.until((event) => event.type === 'delta' && event.delta === 'z')
  expect(
    watched.events.map((event) => (event.type === 'delta' ? String(event.delta as string) : '')).join(''),
  ).toBe(text)
  go.resolve()
  await watched.leave()
})

test('I7 · a hundred thousand deltas in one turn come in order, and stay within what is kept (PE-07)', async () => {
  const client = house.client()
  const id = house.sessionId()
  const gates = [signal(), signal(), signal()]
  const half = 50_000
  await house.worker(async (turn) => {
    await gates[2]!.promise
    for (let n = 1; n <= half; n += 1) turn.emit(n)
    await gates[0]!.promise
    for (let n = half + 1; n <= 2 * half; n += 1) turn.emit(n)
    await gates[1]!.promise
  })
  await client.enqueue(id, 'x')
  const isDelta = (index: number) => (event: WatchEvent) => event.type === 'delta' && event.index === index
  const first = watch(client, id)
  await first.until(isEntry('message'))
  gates[2]!.resolve()
  await first.until(isDelta(half))
  const second = watch(house.client(), id)
  await second.until(isDelta(half))
  gates[0]!.resolve()
  const third = watch(house.client(), id)
  for (const one of [first, second, third]) await one.until(isDelta(2 * half))
  expectConsistent(first.events)
  expect(first.events.filter(({ type }) => type === 'delta')).toHaveLength(2 * half)
  for (const one of [second, third]) {
    expectConsistent(one.events)
    const told = one.events.reduce(
      (sum, event) =>
        sum + (event.type === 'delta' ? 1 : event.type === 'gap' ? event.to - event.from + 1 : 0),
      0,
    )
    expect(told).toBe(2 * half)
  }
  expect(Number(await house.redis.memory('USAGE', house.keys.live(id)))).toBeLessThan(2 * 2 ** 20)
  gates[1]!.resolve()
  for (const one of [first, second, third]) await one.leave()
}, 60_000)
