// What a stop answers: which turns it covers, what became of each message, and when it is quiet.
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { Client, StopReceipt } from '../../src/index.ts'
import { freshPrefix } from '../support/services.ts'
import { aborted, eventually, failure, listen, openHouse, outcomes, signal } from './house.ts'

const house = openHouse()
const PATIENT = { waitMs: 20_000 }
/** Only notices can be in time. */
const RARE = { lookMs: 300_000, lookFastMs: 60_000, sweepMs: 300_000 }
const result = ({ outcomes: list }: StopReceipt) => list.map(({ seq, outcome }) => [seq, outcome])

/** A worker whose turns wait for their signal, or for `go` if they are deaf to it; resolves when `seq` runs. */
async function runner(options: Parameters<typeof house.worker>[1] = {}) {
  const [begun, go] = [new Map<number, ReturnType<typeof signal<void>>>(), signal()]
  const at = (seq: number) => {
    const known = begun.get(seq) ?? signal()
    begun.set(seq, known)
    return known
  }
  const fired: number[] = []
  const worker = await house.worker(async (turn) => {
    const { message, signal: on } = turn
    on.addEventListener('abort', () => fired.push(message.seq))
    at(message.seq).resolve()
    if (message.payload === 'fail') throw new Error('no luck')
    if (message.payload === 'deaf') await go.promise
    if (message.payload === 'wait') await Promise.race([aborted(on), go.promise])
  }, options)
  return { worker, fired, go, runs: (seq: number) => at(seq).promise }
}

async function send(client: Client, id: string, ...texts: string[]): Promise<void> {
  for (const text of texts) await client.enqueue(id, text)
}

test('I5 · at once, a stop says what never starts and what is being stopped; with patience, that it was', async () => {
  const client = house.client()
  const id = house.sessionId()
  const { runs } = await runner(RARE)
  await send(client, id, 'wait', 'wait', 'wait')
  await runs(1)
  await client.withdraw(id, 3)
  const receipt = await client.stop(id)
  expect(receipt).toMatchObject({ through: 3, running: 1, quiet: false })
  expect(result(receipt)).toEqual([
    [1, 'stopping'],
    [2, 'never-started'],
    [3, 'already-done'],
  ])
  await house.settled(client, id)
  await send(client, id, 'wait', 'echo')
  await runs(4)
  const patient = await client.stop(id, PATIENT)
  expect(patient).toMatchObject({ through: 5, running: 4, quiet: true })
  expect(result(patient)).toEqual([
    [4, 'aborted'],
    [5, 'never-started'],
  ])
  await house.settled(client, id)
  expect(await client.stop(id, PATIENT)).toMatchObject({ through: 5, quiet: true, outcomes: [] })
})

test('I5 · what waits is quiet at once, although no worker is there to record it', async () => {
  const client = house.client()
  const id = house.sessionId()
  await send(client, id, 'wait', 'wait')
  const receipt = await client.stop(id, PATIENT)
  expect(receipt).toMatchObject({ through: 2, running: null, quiet: true })
  expect(result(receipt)).toEqual([
    [1, 'never-started'],
    [2, 'never-started'],
  ])
})

test('I5 · one turn is stopped and what waits behind it runs; a finished one is done, and spares the one that runs', async () => {
  const client = house.client()
  const id = house.sessionId()
  const { runs, fired, go } = await runner(RARE)
  await send(client, id, 'wait', 'wait')
  await runs(1)
  const receipt = await client.stop(id, { turn: 'running', ...PATIENT })
  expect(receipt).toMatchObject({ through: 1, running: 1, quiet: true })
  expect(result(receipt)).toEqual([[1, 'aborted']])
  await runs(2)
  const late = await client.stop(id, { turn: 1, ...PATIENT })
  expect([late.through, late.running, late.quiet, result(late)]).toEqual([
    1,
    null,
    true,
    [[1, 'already-done']],
  ])
  expect(fired).toEqual([1])
  go.resolve()
  await house.settled(client, id)
  expect(await client.stop(id, { turn: 'running' })).toMatchObject({ through: 1, quiet: true, outcomes: [] })
  expect(await house.status(id)).toEqual(['stopped', null])
})

test('I5 · a turn that has not begun is refused, one of nobody is unknown, and two scopes at once are a mistake', async () => {
  const client = house.client()
  const id = house.sessionId()
  await send(client, id, 'wait')
  const before = await house.everything()
  const codes = [
    [{ turn: 1 }, 'NOT_RUNNING'],
    [{ turn: 2 }, 'MESSAGE_NOT_FOUND'],
    [{ turn: 0 }, 'INVALID_ARGUMENT'],
    [{ turn: 'all' as 'running' }, 'INVALID_ARGUMENT'],
    [{ turn: 1, through: 1 }, 'INVALID_OPTIONS'],
    [{ waitMs: -1 }, 'INVALID_ARGUMENT'],
    [{ waitMs: 3_600_001 }, 'INVALID_ARGUMENT'],
    [{ signal: {} as AbortSignal }, 'INVALID_ARGUMENT'],
  ] as const
  for (const [options, code] of codes)
    expect(await failure(client.stop(id, options)), JSON.stringify(options)).toMatchObject({ code })
  expect(await failure(client.stop('nobody', { turn: 1 }))).toMatchObject({ code: 'SESSION_NOT_FOUND' })
  expect(await house.everything()).toEqual(before)
  expect(await client.inspect(id)).toMatchObject({ stopSeq: 0, state: 'waiting' })
})

test('I5 · a message between two attempts is stopped like one that runs, and its handler has returned', async () => {
  const client = house.client()
  const id = house.sessionId()
  const { worker } = await runner({ ...RARE, retryDelaysMs: [600_000] })
  const retrying = listen(worker, 'turn.retrying')
  await send(client, id, 'fail')
  await eventually(() => expect(retrying).toHaveLength(1))
  const receipt = await client.stop(id, { turn: 'running' })
  expect(receipt).toMatchObject({ running: null, quiet: true })
  expect(result(receipt)).toEqual([[1, 'aborted']])
  await house.settled(client, id)
  expect(outcomes(await house.transcript(client, id))).toEqual(['retrying', 'stopped'])
})

test('I5 · a handler that ignores its signal is fenced: quiet, but not obedient', async () => {
  const client = house.client()
  const id = house.sessionId()
  const { runs, go, worker } = await runner({ ...RARE, stopGraceMs: 100 })
  const stopped = listen(worker, 'turn.stopped')
  await send(client, id, 'deaf')
  await runs(1)
  const receipt = await client.stop(id, PATIENT)
  expect([receipt.quiet, result(receipt)]).toEqual([true, [[1, 'fenced']]])
  expect(worker.stats().detached).toBe(1)
  await eventually(() => expect(stopped).toHaveLength(1))
  expect(stopped[0]?.afterMs).toBeGreaterThanOrEqual(99)
  go.resolve()
})

test('I5 · twenty stops at the same moment agree, and spare what is sent afterwards', async () => {
  const clients = [house.client(), house.client()]
  const [client] = clients as [Client, Client]
  const id = house.sessionId()
  const { runs, fired } = await runner(RARE)
  await send(client, id, 'wait', 'echo', 'echo')
  await runs(1)
  const receipts = await Promise.all(
    Array.from({ length: 20 }, (_, n) => clients[n % 2]!.stop(id, n % 4 < 3 ? PATIENT : {})),
  )
  const last = await client.enqueue(id, 'echo')
  for (const [n, receipt] of receipts.entries()) {
    expect([n, receipt.through]).toEqual([n, 3])
    // Whoever came when it was over already had nothing left to stop.
    for (const { seq, outcome } of receipt.outcomes)
      expect([n, seq, outcome]).toEqual([
        n,
        seq,
        seq > 1 ? 'never-started' : n % 4 < 3 ? 'aborted' : 'stopping',
      ])
  }
  expect(receipts.filter(({ running }) => running === 1).length).toBeGreaterThan(0)
  await house.settled(client, id)
  expect(fired).toEqual([1])
  expect(outcomes(await house.transcript(client, id))).toEqual(['stopped', 'stopped', 'stopped', 'completed'])
  expect(last.seq).toBe(4)
})

test('I5 · a stop within five milliseconds of the end says what the transcript says, whoever came first', async () => {
  const client = house.client()
  const started = new Map<string, ReturnType<typeof signal<void>>>()
  await house.worker(async (turn) => {
    started.get(turn.sessionId)?.resolve()
    await sleep(10, undefined, { signal: turn.signal }).catch(() => undefined)
  })
  const play = async (round: number) => {
    const id = house.sessionId()
    const begun = signal()
    started.set(id, begun)
    await client.enqueue(id, 'hello')
    await begun.promise
    await sleep((round % 11) * 2)
    const receipt = await client.stop(id, PATIENT)
    const said = receipt.outcomes[0]?.outcome ?? 'nothing to stop'
    await house.settled(client, id)
    return [said, receipt.quiet, ...outcomes(await house.transcript(client, id))]
  }
  for (let batch = 0; batch < 4; batch++) {
    const told = await Promise.all(Array.from({ length: 15 }, (_, n) => play(batch * 15 + n)))
    for (const [said, ...rest] of told) {
      expect(['aborted', 'already-done', 'nothing to stop']).toContain(said)
      expect([said, ...rest]).toEqual([said, true, said === 'aborted' ? 'stopped' : 'completed'])
    }
  }
})

test('I5 · a hundred messages behind the running one are stopped with it, and listed', async () => {
  const client = house.client()
  const id = house.sessionId()
  const { runs } = await runner(RARE)
  await send(client, id, 'wait')
  await runs(1)
  await client.enqueueMany(Array.from({ length: 100 }, () => ({ sessionId: id, message: 'echo' })))
  const receipt = await client.stop(id, PATIENT)
  expect(receipt).toMatchObject({ through: 101, quiet: true })
  expect(result(receipt)).toEqual([
    [1, 'aborted'],
    ...Array.from({ length: 100 }, (_, n) => [n + 2, 'never-started']),
  ])
})

test('a list of outcomes ends with its thousandth', async () => {
  const client = house.client({ queueMax: 2000 })
  const id = house.sessionId()
  const items = Array.from({ length: 1002 }, () => ({ sessionId: id, message: 'echo' }))
  await client.enqueueMany(items)
  const receipt = await client.stop(id)
  expect([receipt.through, receipt.quiet, receipt.outcomes.length]).toEqual([1002, true, 1000])
})

test.each(['its time', 'its signal', 'a signal that had fired before'])(
  'I5 · the waiting ends with %s, the stop does not',
  async (what) => {
    const client = house.client()
    const id = house.sessionId()
    const { runs, go, fired } = await runner({ ...RARE, stopGraceMs: 600_000 })
    await send(client, id, 'deaf', 'echo')
    await runs(1)
    const end = new AbortController()
    if (what === 'a signal that had fired before') end.abort()
    const stopping = client.stop(id, { waitMs: what === 'its time' ? 100 : 600_000, signal: end.signal })
    if (what === 'its signal') {
      await eventually(() => expect(fired).toEqual([1]))
      end.abort()
    }
    const receipt = await stopping
    expect([receipt.quiet, result(receipt)]).toEqual([
      false,
      [
        [1, 'stopping'],
        [2, 'never-started'],
      ],
    ])
    // Nobody waits any more: nothing is left of the look-out.
    await eventually(async () => {
      expect(await house.redis.pubsub('NUMSUB', house.keys.sessionChannel(id))).toEqual([
        house.keys.sessionChannel(id),
        0,
      ])
    })
    await eventually(() => expect(fired).toEqual([1]))
    go.resolve()
    await house.settled(client, id)
    expect(await house.status(id)).toEqual(['stopped', 'stopped'])
  },
)

test('I5 · a client that is closed while it waits says so, and the stop stands', async () => {
  const [client, other] = [house.client(), house.client()]
  const id = house.sessionId()
  const { runs, go, fired } = await runner({ ...RARE, stopGraceMs: 600_000 })
  await send(client, id, 'deaf')
  await runs(1)
  const stopping = failure(client.stop(id, { waitMs: 600_000 }))
  await eventually(() => expect(fired).toEqual([1]))
  await client.close()
  expect(await stopping).toMatchObject({ code: 'CLOSED' })
  go.resolve()
  await house.settled(other, id)
  expect(await house.status(id)).toEqual(['stopped'])
})

test('I5 · with every notice lost, both ways, a stop is found by the looks at the row', async () => {
  // Under another prefix nothing that one side publishes is heard by the other.
  const client = house.client()
  const deaf = house.client({ prefix: freshPrefix(), lookMs: 300_000 })
  const id = house.sessionId()
  const { runs } = await runner()
  await send(client, id, 'wait', 'echo')
  await runs(1)
  const receipt = await deaf.stop(id, PATIENT)
  expect([receipt.quiet, result(receipt)]).toEqual([
    true,
    [
      [1, 'aborted'],
      [2, 'never-started'],
    ],
  ])
})

test('I5 · without Redis a stop works, and says when it is quiet', async () => {
  const client = house.client()
  const cutOff = house.client({ redis: 'redis://127.0.0.1:1' })
  const id = house.sessionId()
  const { runs } = await runner()
  await send(client, id, 'wait', 'echo')
  await runs(1)
  const receipt = await cutOff.stop(id, PATIENT)
  expect(receipt).toMatchObject({ through: 2, running: 1, quiet: true })
  expect(result(receipt)).toEqual([
    [1, 'aborted'],
    [2, 'never-started'],
  ])
})

test('I5 · a session that is deleted while somebody waits for its quiet is fenced', async () => {
  const client = house.client()
  const id = house.sessionId()
  const { runs, go, fired } = await runner({ ...RARE, stopGraceMs: 600_000 })
  await send(client, id, 'deaf')
  await runs(1)
  const stopping = client.stop(id, { waitMs: 600_000 })
  await eventually(() => expect(fired).toEqual([1]))
  await client.delete(id)
  const receipt = await stopping
  expect([receipt.quiet, result(receipt)]).toEqual([true, [[1, 'fenced']]])
  go.resolve()
})

test('a message’s position counts those before it that are not over', async () => {
  const client = house.client()
  const id = house.sessionId()
  const options = { idempotencyKey: 'first' }
  expect(await client.enqueue(id, 'wait', options)).toMatchObject({ seq: 1, position: 0 })
  expect(await client.enqueue(id, 'echo')).toMatchObject({ seq: 2, position: 1 })
  expect(await client.enqueueMany([{ sessionId: id, message: 'echo' }])).toMatchObject([{ position: 2 }])
  const { runs, go } = await runner()
  await runs(1)
  expect(await client.enqueue(id, 'echo')).toMatchObject({ seq: 4, position: 3 })
  go.resolve()
  await house.settled(client, id)
  expect(await client.enqueue(id, 'wait', options)).toMatchObject({ seq: 1, duplicate: true, position: 0 })
  expect(await client.enqueue(id, 'echo')).toMatchObject({ seq: 5, position: 0 })
})
