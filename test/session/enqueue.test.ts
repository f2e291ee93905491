// What a producer gets when it sends: dense numbers, one message per key, and what whenBusy and queueMax make of a busy
// session.
import { fork } from 'node:child_process'
import { expect, test } from 'vitest'
import { produce, type Sent } from './producers.ts'
import { aborted, eventually, openHouse, outcomes, signal, types } from './house.ts'

const house = openHouse()

test('I1 I2 · a message is accepted without a worker and runs when one comes, in order', async () => {
  const client = house.client()
  const id = house.sessionId()
  expect(await client.enqueue(id, 'one')).toMatchObject({ seq: 1, duplicate: false })
  expect(await client.enqueue(id, { kind: 'note', payload: { two: 2 } })).toMatchObject({ seq: 2 })
  const seen: unknown[] = []
  await house.worker((turn) => void seen.push(turn.message.payload))
  await house.settled(client, id)
  expect(seen).toEqual(['one', { two: 2 }])
  expect(outcomes(await house.transcript(client, id))).toEqual(['completed', 'completed'])
})

test('I2 · fifty producers at once, of three clients in two processes, leave no hole and no doubled number', async () => {
  const id = house.sessionId()
  const child = fork(new URL('producer.ts', import.meta.url), [house.redisUrl, house.url, house.prefix, id], {
    execArgv: ['--import', 'tsx'],
  })
  const [ready, answered] = [signal(), signal<Sent[]>()]
  child.on('message', (message) =>
    message === 'ready' ? ready.resolve() : answered.resolve(message as Sent[]),
  )
  await ready.promise
  child.send('go')
  const here = await Promise.all(
    [house.client(), house.client()].map((client, n) => produce(client, id, `here-${n}`)),
  )
  const all = [...here.flat(), ...(await answered.promise)]
  const fresh = all.filter(({ duplicate }) => !duplicate)
  expect(fresh.map(({ seq }) => seq).sort((a, b) => a - b)).toEqual(
    Array.from({ length: 155 }, (_, index) => index + 1),
  )
  // Five keys were used by all of them: one message each.
  const keyed = all.filter(({ key }) => key !== null)
  expect(new Set(keyed.map(({ seq, key }) => `${key} ${seq}`)).size).toBe(5)
  expect(keyed.filter(({ duplicate }) => !duplicate)).toHaveLength(5)
}, 60_000)

test('I6 · a key is one message: repeated, at the same time, in one batch, and from another client', async () => {
  const [one, two] = [house.client(), house.client()]
  const id = house.sessionId()
  const options = { idempotencyKey: 'order 7' }
  const first = await one.enqueue(id, 'x', options)
  const at = { sessionId: id, message: 'x', ...options }
  const again = await Promise.all([
    ...[1, 2, 3].map(() => one.enqueue(id, 'x', options)),
    ...[1, 2, 3].map(() => two.enqueue(id, 'x', { ...options, whenBusy: 'reject' })),
  ])
  expect(again).toEqual(again.map(() => ({ ...first, duplicate: true })))
  expect(await two.enqueueMany([at, at])).toEqual([0, 1].map(() => ({ ok: true, ...first, duplicate: true })))
  const other = house.sessionId()
  const fresh = await two.enqueueMany([
    { ...at, sessionId: other },
    { ...at, sessionId: other },
  ])
  expect(fresh).toMatchObject([
    { seq: 1, duplicate: false },
    { seq: 1, duplicate: true },
  ])
  expect(await house.status(id)).toHaveLength(1)
})

test.each([
  ['another payload', 'y', {}],
  ['another kind', { kind: 'note', payload: 'x' }, {}],
  ['another source', 'x', { source: 'agent' as const }],
])('I6 · a key used again with %s is a mistake that is told', async (_what, message, options) => {
  const client = house.client()
  const id = house.sessionId()
  await client.enqueue(id, 'x', { idempotencyKey: 'k' })
  const error = { code: 'IDEMPOTENCY_CONFLICT' }
  await expect(client.enqueue(id, message, { idempotencyKey: 'k', ...options })).rejects.toMatchObject(error)
  expect(await house.status(id)).toHaveLength(1)
})

test('I6 · enqueueMany answers for each message on its own, and all get their numbers in the order given', async () => {
  const client = house.client({ queueMax: 2 })
  const [a, b] = [house.sessionId(), house.sessionId()]
  await client.enqueue(b, 'first', { idempotencyKey: 'k' })
  const results = await client.enqueueMany([
    { sessionId: a, message: '1' },
    { sessionId: b, message: 'other', idempotencyKey: 'k' },
    { sessionId: a, message: '2' },
    { sessionId: b, message: 'x', whenBusy: 'reject' },
    { sessionId: a, message: '3' },
    { sessionId: b, message: 'first', idempotencyKey: 'k' },
  ])
  expect(results).toMatchObject([
    { ok: true, seq: 1 },
    { ok: false, error: { code: 'IDEMPOTENCY_CONFLICT' } },
    { ok: true, seq: 2 },
    { ok: false, error: { code: 'SESSION_BUSY' } },
    { ok: false, error: { code: 'QUEUE_FULL' } },
    { ok: true, seq: 1, duplicate: true },
  ])
  expect(await client.enqueueMany([])).toEqual([])
  // Holes are no messages, and must not shift the answers of others in the same batch.
  const [sparse, whole] = await Promise.allSettled([
    client.enqueueMany(Array(2) as never),
    client.enqueue(b, 'alone'),
  ])
  expect(sparse).toMatchObject({ status: 'rejected', reason: { code: 'INVALID_MESSAGE' } })
  expect(whole).toMatchObject({ status: 'fulfilled', value: { seq: 2 } })
})

test('a session is full with queueMax messages waiting, not counting the one that runs (QO-11)', async () => {
  const client = house.client({ queueMax: 2 })
  const id = house.sessionId()
  const [running, go] = [signal(), signal()]
  await house.worker(async () => {
    running.resolve()
    await go.promise
  })
  await client.enqueue(id, '1')
  await running.promise
  await client.enqueue(id, '2')
  await client.enqueue(id, '3')
  await expect(client.enqueue(id, '4')).rejects.toMatchObject({ code: 'QUEUE_FULL' })
  expect(await client.inspect(id)).toMatchObject({ queueDepth: 2, inboxSeq: 3 })
  go.resolve()
  await house.settled(client, id)
  expect(await client.enqueue(id, '4')).toMatchObject({ seq: 4 })
})

test('whenBusy reject refuses while a turn runs or a message waits, and accepts after that', async () => {
  const client = house.client()
  const id = house.sessionId()
  const [running, go] = [signal(), signal()]
  await client.enqueue(id, '1', { whenBusy: 'reject' })
  await expect(client.enqueue(id, '2', { whenBusy: 'reject' })).rejects.toMatchObject({
    code: 'SESSION_BUSY',
  })
  await house.worker(async () => {
    running.resolve()
    await go.promise
  })
  await running.promise
  await expect(client.enqueue(id, '2', { whenBusy: 'reject' })).rejects.toMatchObject({
    code: 'SESSION_BUSY',
  })
  go.resolve()
  await house.settled(client, id)
  expect(await client.enqueue(id, '2', { whenBusy: 'reject' })).toMatchObject({ seq: 2 })
})

test('I5 · whenBusy interrupt stops what runs and what waits, and runs itself', async () => {
  // Looks at the rows are too rare to help: only the notice can fire the signal in time.
  const rare = { lookMs: 300_000, sweepMs: 300_000 }
  const client = house.client()
  const id = house.sessionId()
  const running = signal()
  const ran: number[] = []
  await house.worker(async (turn) => {
    ran.push(turn.message.seq)
    if (turn.message.payload !== 'wait') return 'done'
    running.resolve()
    await aborted(turn.signal)
    return undefined
  }, rare)
  await client.enqueue(id, 'wait')
  await running.promise
  await client.enqueue(id, 'never')
  const sent = await client.enqueue(id, 'now', { whenBusy: 'interrupt', idempotencyKey: 'i' })
  await house.settled(client, id)
  expect(ran).toEqual([1, 3])
  expect(await house.status(id)).toEqual(['stopped', 'stopped', null])
  // Repeating it stops nothing that came later.
  await client.enqueue(id, 'wait')
  await eventually(() => expect(ran).toHaveLength(3))
  expect(await client.enqueue(id, 'now', { whenBusy: 'interrupt', idempotencyKey: 'i' })).toEqual({
    ...sent,
    duplicate: true,
    position: 0,
  })
  expect(await client.inspect(id)).toMatchObject({ state: 'running', stopSeq: 2 })
  await client.stop(id)
  await house.settled(client, id)
})

test('I5 · an interrupt ends a back-off at once', async () => {
  const client = house.client()
  const id = house.sessionId()
  const failed = signal()
  const worker = await house.worker(
    (turn) => {
      if (turn.message.payload === 'fail') throw new Error('no luck')
    },
    { retryDelaysMs: [3_600_000], lookMs: 300_000, sweepMs: 300_000 },
  )
  worker.on('turn.retrying', () => failed.resolve())
  await client.enqueue(id, 'fail')
  await failed.promise
  await eventually(async () => expect(await client.inspect(id)).toMatchObject({ state: 'retrying' }))
  await client.enqueue(id, 'now', { whenBusy: 'interrupt' })
  await house.settled(client, id)
  const entries = await house.transcript(client, id)
  expect(outcomes(entries)).toEqual(['retrying', 'stopped', 'completed'])
  expect(types(entries).filter((type) => type === 'message')).toHaveLength(2)
})
