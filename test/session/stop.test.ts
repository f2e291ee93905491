// Stop, withdraw, retry and what waits, as a producer sees them.
import { expect, test } from 'vitest'
import { aborted, eventually, listen, openHouse, outcomes, signal } from './house.ts'

const house = openHouse()
/** Only notices can be in time. */
const RARE = { lookMs: 300_000, sweepMs: 300_000 }

test('I5 · a stop fires the signal of what runs, keeps what waits from starting, and covers nothing sent later', async () => {
  const client = house.client()
  const id = house.sessionId()
  const running = signal<AbortSignal>()
  const ran: number[] = []
  await house.worker(async (turn) => {
    ran.push(turn.message.seq)
    if (turn.message.seq !== 1) return 'ran'
    running.resolve(turn.signal)
    await aborted(turn.signal)
    return 'too late to count'
  }, RARE)
  await client.enqueue(id, '1')
  const on = await running.promise
  await client.enqueue(id, '2')
  expect(await client.stop(id)).toMatchObject({ through: 2, running: 1 })
  await client.enqueue(id, '3')
  await house.settled(client, id)
  expect(on.reason).toMatchObject({ name: 'TurnAbortedError', code: 'TURN_STOPPED', reason: 'stopped' })
  expect(ran).toEqual([1, 3])
  expect(outcomes(await house.transcript(client, id))).toEqual(['stopped', 'stopped', 'completed'])
  expect(await house.status(id)).toEqual(['stopped', 'stopped', null])
})

test('I5 · stopping through a message leaves the later ones; beyond the last it covers nothing that is to come', async () => {
  const client = house.client()
  const id = house.sessionId()
  for (const text of ['1', '2', '3', '4']) await client.enqueue(id, text)
  expect(await client.stop(id, { through: 2 })).toMatchObject({ through: 2, running: null })
  expect(await client.stop(id, { through: 1 })).toMatchObject({ through: 2, running: null })
  expect((await client.queue(id)).map(({ seq }) => seq)).toEqual([3, 4])
  expect(await client.stop(id, { through: 99 })).toMatchObject({ through: 4, running: null })
  await client.enqueue(id, '5')
  const ran: number[] = []
  await house.worker((turn) => void ran.push(turn.message.seq))
  await house.settled(client, id)
  expect(ran).toEqual([5])
})

test('I5 · a stop repeated, by two people at once, or of an idle session, is harmless', async () => {
  const [one, two] = [house.client(), house.client()]
  const id = house.sessionId()
  await one.enqueue(id, '1')
  const receipts = await Promise.all([one, two, one, two].map((client) => client.stop(id)))
  expect(receipts).toMatchObject(receipts.map(() => ({ through: 1, running: null })))
  const ran: number[] = []
  await house.worker((turn) => void ran.push(turn.message.seq))
  await house.settled(one, id)
  expect(await two.stop(id)).toMatchObject({ through: 1, running: null })
  await one.enqueue(id, '2')
  await house.settled(one, id)
  expect(ran).toEqual([2])
})

test('I5 · a handler that ignores its signal is left behind, and nothing it does is kept (ST-07)', async () => {
  const client = house.client()
  const id = house.sessionId()
  const [running, end] = [signal(), signal()]
  const late: unknown[] = []
  const worker = await house.worker(
    async (turn) => {
      if (turn.message.seq !== 1) return 'next'
      await turn.append({ type: 'tool_call', callId: 'c', payload: 1 })
      running.resolve()
      await end.promise
      late.push(await turn.append({ type: 'late' }).catch((error: unknown) => error))
      return 'late'
    },
    { stopGraceMs: 50 },
  )
  const detached = listen(worker, 'turn.detached')
  await client.enqueue(id, '1')
  await running.promise
  await client.stop(id)
  await client.enqueue(id, '2')
  await house.settled(client, id)
  expect([detached.length, worker.stats().detached]).toEqual([1, 1])
  end.resolve()
  await eventually(() => expect(worker.stats().detached).toBe(0))
  expect(late).toMatchObject([{ code: 'TURN_STOPPED' }])
  const entries = await house.transcript(client, id)
  expect(outcomes(entries)).toEqual(['stopped', 'completed'])
  expect(entries.filter(({ type }) => type === 'tool_result').map(({ payload }) => payload)).toEqual([
    { interrupted: true },
  ])
})

test('I5 · a withdrawn message never starts; repeating the call is harmless whenever it comes', async () => {
  const client = house.client()
  const id = house.sessionId()
  for (const text of ['1', '2', '3']) await client.enqueue(id, text)
  await Promise.all([client.withdraw(id, 2), client.withdraw(id, 2)])
  expect((await client.queue(id)).map(({ seq }) => seq)).toEqual([1, 3])
  const ran: number[] = []
  const worker = await house.worker((turn) => void ran.push(turn.message.seq))
  const passed = listen(worker, 'message.withdrawn')
  await house.settled(client, id)
  await client.withdraw(id, 2)
  expect(ran).toEqual([1, 3])
  expect(passed).toMatchObject([{ session: id, seq: 2 }])
  expect(await house.status(id)).toEqual([null, 'withdrawn', null])
  expect(outcomes(await house.transcript(client, id))).toEqual(['completed', 'withdrawn', 'completed'])
})

test('a message that is next and taken back makes nobody busy, although no worker has passed over it', async () => {
  const client = house.client()
  const id = house.sessionId()
  await client.enqueue(id, '1')
  await client.enqueue(id, '2')
  const reject = () => client.enqueue(id, 'again', { whenBusy: 'reject' })
  await client.withdraw(id, 1)
  await expect(reject()).rejects.toMatchObject({ code: 'SESSION_BUSY' })
  await Promise.all([client.withdraw(id, 2), client.withdraw(id, 2)])
  await client.withdraw(id, 1)
  expect(await client.inspect(id)).toMatchObject({ state: 'idle', doneSeq: 2, queueDepth: 0 })
  expect(await reject()).toMatchObject({ seq: 3 })
  await house.worker(() => {})
  await house.settled(client, id)
  expect(await house.status(id)).toEqual(['withdrawn', 'withdrawn', null])
  expect(outcomes(await house.transcript(client, id))).toEqual(['withdrawn', 'withdrawn', 'completed'])
})

test('a message that has started, is done, or does not exist cannot be withdrawn', async () => {
  const client = house.client()
  const id = house.sessionId()
  const [running, go] = [signal(), signal()]
  await house.worker(async () => {
    running.resolve()
    await go.promise
  })
  await client.enqueue(id, '1')
  await running.promise
  await expect(client.withdraw(id, 1)).rejects.toMatchObject({ code: 'NOT_WITHDRAWABLE' })
  await expect(client.withdraw(id, 2)).rejects.toMatchObject({ code: 'MESSAGE_NOT_FOUND' })
  go.resolve()
  await house.settled(client, id)
  await expect(client.withdraw(id, 1)).rejects.toMatchObject({ code: 'NOT_WITHDRAWABLE' })
  expect(await house.status(id)).toEqual([null])
})

test('what waits is listed in order, in pages, without what runs, is stopped or withdrawn', async () => {
  const client = house.client()
  const id = house.sessionId()
  const [running, go] = [signal(), signal()]
  await house.worker(async (turn) => {
    if (turn.message.seq !== 1) return
    running.resolve()
    await go.promise
  })
  await client.enqueue(id, { kind: 'note', payload: { n: 1 } }, { source: 'agent' })
  await running.promise
  for (let n = 2; n <= 6; n++) await client.enqueue(id, { kind: 'note', payload: { n } }, { source: 'agent' })
  await client.withdraw(id, 4)
  expect(await client.queue(id, { limit: 1 })).toMatchObject([
    { seq: 2, kind: 'note', source: 'agent', payload: { n: 2 } },
  ])
  expect((await client.queue(id)).map(({ seq }) => seq)).toEqual([2, 3, 5, 6])
  expect((await client.queue(id, { after: 3, limit: 2 })).map(({ seq }) => seq)).toEqual([5, 6])
  await client.stop(id, { through: 2 })
  expect((await client.queue(id)).map(({ seq }) => seq)).toEqual([3, 5, 6])
  go.resolve()
  await house.settled(client, id)
  expect(await client.queue(id)).toEqual([])
})

test('a failed or stopped message can be sent again as a new one; others cannot', async () => {
  const client = house.client()
  const id = house.sessionId()
  const seen: unknown[] = []
  await client.enqueue(id, { kind: 'note', payload: 'stop me' }, { source: 'automation' })
  await client.stop(id)
  await client.enqueue(id, 'withdraw me')
  await client.withdraw(id, 2)
  await client.enqueue(id, 'fail')
  await expect(client.retry(id, 3)).rejects.toMatchObject({ code: 'NOT_RETRYABLE' })
  await house.worker(
    (turn) => {
      seen.push([turn.message.kind, turn.message.source, turn.message.payload, turn.attempt])
      if (turn.message.seq === 3) throw new Error('no luck')
    },
    { maxFailures: 1 },
  )
  await house.settled(client, id)
  expect(await client.retry(id, 1)).toMatchObject({ seq: 4, duplicate: false })
  expect(await client.retry(id, 3)).toMatchObject({ seq: 5 })
  await house.settled(client, id)
  expect(seen).toEqual([
    ['message', 'user', 'fail', 1],
    ['note', 'automation', 'stop me', 1],
    ['message', 'user', 'fail', 1],
  ])
  expect(await house.status(id)).toEqual(['stopped', 'withdrawn', 'failed', null, null])
  await expect(client.retry(id, 2)).rejects.toMatchObject({ code: 'NOT_RETRYABLE' })
  await expect(client.retry(id, 5)).rejects.toMatchObject({ code: 'NOT_RETRYABLE' })
  await expect(client.retry(id, 9)).rejects.toMatchObject({ code: 'MESSAGE_NOT_FOUND' })
})
