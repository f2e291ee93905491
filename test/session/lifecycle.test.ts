// A worker's life: started, drained and stopped in any order, any number of times, and nothing of it is left.
import { expect, test } from 'vitest'
import { aborted, eventually, listen, openHouse, signal } from './house.ts'

const house = openHouse()

const closed = { name: 'ClosedError', code: 'CLOSED', message: expect.stringContaining('make a new one') }

test('a worker stopped or drained before its start never starts', async () => {
  const client = house.client()
  const id = house.sessionId()
  await client.enqueue(id, 'x')
  const ran: number[] = []
  for (const end of ['stop', 'drain'] as const) {
    const worker = house.newWorker((turn) => void ran.push(turn.message.seq))
    await worker[end]()
    await expect(worker.start()).rejects.toMatchObject(closed)
    expect(worker.stats().state).toBe('stopped')
    await Promise.all([worker.stop(), worker.stop()])
    expect(await worker.ended).toBe('stopped')
  }
  expect(ran).toEqual([])
  expect(await house.redis.exists(house.keys.processes)).toBe(0)
})

test('a worker that ran and was stopped or drained says that it cannot be started again', async () => {
  const worker = await house.worker(() => {})
  await worker.start()
  const drained = worker.drain()
  await expect(worker.start()).rejects.toMatchObject(closed)
  await drained
  await expect(worker.start()).rejects.toMatchObject(closed)
  const stopped = worker.stop()
  await expect(worker.start()).rejects.toMatchObject(closed)
  await stopped
  await expect(worker.start()).rejects.toMatchObject(closed)
})

test('a start that is overtaken by a stop resolves and serves nothing', async () => {
  const worker = house.newWorker(() => {})
  const started = listen(worker, 'worker.started')
  const [begun] = await Promise.all([worker.start(), worker.stop()])
  expect(begun).toBeUndefined()
  expect(worker.stats().state).toBe('stopped')
  expect(started).toEqual([])
})

test('a worker that was drained and then stopped has finished what ran', async () => {
  const client = house.client()
  const id = house.sessionId()
  const [running, go] = [signal(), signal()]
  const worker = await house.worker(async () => {
    running.resolve()
    await go.promise
    return 'kept'
  })
  await client.enqueue(id, '1')
  await running.promise
  const drained = worker.drain()
  await client.enqueue(id, '2')
  const stopped = worker.stop({ graceMs: 0 })
  go.resolve()
  await Promise.all([drained, stopped])
  expect(await client.inspect(id)).toMatchObject({ doneSeq: 1, runningSeq: null, state: 'waiting' })
  expect(worker.stats()).toMatchObject({ state: 'stopped', running: 0, sessions: 0 })
})

test('fifty starts and stops at the same time leave no process, no lock and no error behind', async () => {
  const client = house.client()
  const ran = new Set<string>()
  for (let round = 0; round < 10; round++) {
    const id = house.sessionId()
    const workers = Array.from({ length: 5 }, () => house.newWorker((turn) => void ran.add(turn.sessionId)))
    const sent = client.enqueue(id, 'x')
    await Promise.all(
      workers.flatMap((worker, n) => [
        worker.start(),
        ...(n % 2 ? [worker.start()] : []),
        Promise.resolve(n % 3 ? undefined : sent).then(() => worker.stop({ graceMs: 0 })),
        ...(n % 2 ? [worker.drain()] : []),
        Promise.resolve().then(() => worker.stop()),
      ]),
    )
    for (const worker of workers)
      expect(worker.stats()).toMatchObject({ state: 'stopped', running: 0, sessions: 0 })
  }
  const left = (await house.redisKeys()).filter((key) => key.endsWith(':lock') || key.includes(':proc'))
  expect(left).toEqual([])
  // Whatever they did not do is done by the next.
  await house.worker((turn) => void ran.add(turn.sessionId))
  await eventually(async () => expect(ran.size).toBe(10))
})

test('a worker whose handlers ignore their signals gives up by itself', async () => {
  const client = house.client()
  const end = signal()
  const worker = await house.worker(() => end.promise, { maxDetached: 2, stopGraceMs: 0 })
  for (const id of ['stuck-1', 'stuck-2']) {
    await client.enqueue(id, 'x')
    await eventually(async () => expect(await client.inspect(id)).toMatchObject({ state: 'running' }))
    await client.stop(id)
  }
  expect(await worker.ended).toBe('overloaded')
  await worker.stop()
  end.resolve()
})

test('I8 · a kind without handler waits, is reported, and runs when a worker comes that has one (SD-08)', async () => {
  const client = house.client()
  const id = house.sessionId()
  const ran: string[] = []
  const note = (who: string) => (turn: { message: { kind: string } }) =>
    void ran.push(`${who} ${turn.message.kind}`)
  const chats = await house.worker(undefined, { handlers: { message: note('chats') } })
  const reported = listen(chats, 'message.unrunnable')
  await client.enqueue(id, 'hello')
  await client.enqueue(id, { kind: 'report', payload: 1 })
  await client.enqueue(id, 'goodbye')
  await eventually(() =>
    expect(reported).toContainEqual(expect.objectContaining({ session: id, kind: 'report' })),
  )
  expect(await client.inspect(id)).toMatchObject({ doneSeq: 1, runningSeq: null, state: 'waiting' })
  await house.worker(undefined, { handlers: { report: note('reports') } })
  await house.settled(client, id)
  expect(ran).toEqual(['chats message', 'reports report', 'chats message'])
})

test('I8 · what is not to run asks for no handler: any worker passes over it (SD-08)', async () => {
  const client = house.client()
  const id = house.sessionId()
  await client.enqueue(id, { kind: 'report', payload: 1 })
  await client.enqueue(id, { kind: 'report', payload: 2 })
  await client.withdraw(id, 2)
  await client.stop(id)
  const chats = await house.worker(undefined, { handlers: { message: () => undefined } })
  const reported = listen(chats, 'message.unrunnable')
  await house.settled(client, id)
  expect(await house.status(id)).toEqual(['stopped', 'withdrawn'])
  expect(reported).toEqual([])
})

test('a handler by kind goes before the one for all kinds', async () => {
  const client = house.client()
  const id = house.sessionId()
  const ran: string[] = []
  await house.worker(() => void ran.push('any'), { handlers: { report: () => void ran.push('report') } })
  await client.enqueue(id, { kind: 'report', payload: 1 })
  await client.enqueue(id, { kind: 'toString', payload: 1 })
  await house.settled(client, id)
  expect(ran).toEqual(['report', 'any'])
})

test('I4 · messages that are one crash from being given up run one at a time, and hold up nobody else', async () => {
  const client = house.client()
  const suspects = [house.sessionId(), house.sessionId(), house.sessionId()]
  const bystander = house.sessionId()
  await client.enqueueMany([...suspects, bystander].map((sessionId) => ({ sessionId, message: 'x' })))
  await house.mysql.db
    .updateTable('butler_sessions')
    .set({ crashes: 2, starts: 2 })
    .where('id', 'in', suspects)
    .execute()
  const bystanderRan = signal()
  let [now, most] = [0, 0]
  await house.worker(async (turn) => {
    if (turn.sessionId === bystander) return bystanderRan.resolve()
    most = Math.max(most, (now += 1))
    await bystanderRan.promise
    await turn.append({ type: 'working' })
    now -= 1
  })
  for (const id of [...suspects, bystander]) await house.settled(client, id)
  expect(most).toBe(1)
})

test('I5 · a stop during a drain ends the turn as stopped, not as handed over', async () => {
  const client = house.client()
  const id = house.sessionId()
  const running = signal()
  const worker = await house.worker(async (turn) => {
    running.resolve()
    await aborted(turn.signal)
  })
  await client.enqueue(id, 'x')
  await running.promise
  const drained = worker.drain({ graceMs: 60_000 })
  await client.stop(id)
  await drained
  expect(await house.status(id)).toEqual(['stopped'])
})
