// What a handler may rely on: memoised steps, a transcript that is valid however the turn ends, an end that is an end.
import { expect, test } from 'vitest'
import type { Turn, Worker } from '../../src/index.ts'
import { aborted, eventually, listen, openHouse, outcomes, signal, types } from './house.ts'

const house = openHouse()

test('I4 · a finished step is not run again after a failure, and hands back the same value', async () => {
  const client = house.client()
  const id = house.sessionId()
  const ran: string[] = []
  const seen: unknown[] = []
  await house.worker(async (turn) => {
    const one = () =>
      turn.step('one', () => (ran.push(`one ${turn.attempt}`), { at: new Date(0), nothing: undefined }))
    seen.push(...(await Promise.all([one(), one()])))
    seen.push(await turn.step('none', () => undefined))
    await turn.step('two', () => {
      ran.push(`two ${turn.attempt}`)
      if (turn.attempt === 1) throw new Error('not yet')
    })
  })
  await client.enqueue(id, 'x')
  await house.settled(client, id)
  expect(ran).toEqual(['one 1', 'two 1', 'two 2'])
  const value = { at: '1970-01-01T00:00:00.000Z' }
  expect(seen).toEqual([value, value, null, value, value, null])
  const entries = await house.transcript(client, id)
  expect(
    entries.filter(({ type }) => type === 'step').map(({ stepKey, attempt }) => [stepKey, attempt]),
  ).toEqual([
    ['one', 1],
    ['none', 1],
    ['two', 2],
  ])
})

test('I4 · steps of one message are nothing to the next', async () => {
  const client = house.client()
  const id = house.sessionId()
  const ran: number[] = []
  await house.worker((turn) => turn.step('same', () => void ran.push(turn.message.seq)))
  await client.enqueue(id, '1')
  await client.enqueue(id, '2')
  await house.settled(client, id)
  expect(ran).toEqual([1, 2])
})

test('I3 · what is written or emitted after the end is refused, and a promise nobody waits for harms nobody', async () => {
  const client = house.client()
  const id = house.sessionId()
  let kept: Turn | undefined
  const floating: Promise<unknown>[] = []
  await house.worker((turn) => {
    kept = turn
    void turn.append({ type: 'floating' })
    void turn.append({ type: 'tool_result', callId: 'never opened' })
    void turn.step('bad key ', () => 1)
    void turn.step('throws', () => Promise.reject(new Error('x')))
    const circular: Record<string, unknown> = {}
    circular['self'] = circular
    for (const delta of [circular, 7n, undefined, () => 1, { toJSON: () => aborted(turn.signal) }])
      turn.emit(delta)
    floating.push(turn.append({ type: 'awaited' }))
    return 'done'
  })
  await client.enqueue(id, 'x')
  await house.settled(client, id)
  const ended = { name: 'TurnAbortedError', code: 'TURN_ENDED', reason: 'ended' }
  await expect(kept?.append({ type: 'late' })).rejects.toMatchObject(ended)
  await expect(kept?.step('late', () => 1)).rejects.toMatchObject(ended)
  kept?.emit('late')
  void kept?.append({ type: 'late' })
  await Promise.all(floating)
  const entries = await house.transcript(client, id)
  expect(types(entries)).toEqual(['turn_started', 'message', 'floating', 'awaited', 'reply', 'turn_ended'])
})

test('I3 · an entry that nobody may write, or that is none, is refused and fails the turn only if it is not caught', async () => {
  const client = house.client()
  const id = house.sessionId()
  const codes: unknown[] = []
  const bad = [
    { type: 'message' },
    { type: 'turn_ended' },
    { type: 'step' },
    { type: 'a b' },
    { type: '' },
    {},
    null,
    'text',
    7,
    { type: 'tool_call' },
    { type: 'tool_result', callId: 'never' },
    { type: 'x', callId: '' },
    { type: 'x', payload: 7n },
    { type: 'x', payload: 'y'.repeat(5 * 2 ** 20) },
  ]
  await house.worker(async (turn) => {
    for (const entry of bad) {
      codes.push(
        await turn.append(entry as never).then(
          () => 'written',
          (error: { code: string }) => error.code,
        ),
      )
    }
    return turn.attempt === 1 ? ([{ type: 'fine' }, { type: 'error' }] as never) : 'at last'
  })
  await client.enqueue(id, 'x')
  await house.settled(client, id)
  expect(new Set(codes)).toEqual(
    new Set(['INVALID_ENTRY', 'INVALID_MESSAGE', 'INVALID_KEY', 'PAYLOAD_NOT_JSON', 'PAYLOAD_TOO_LARGE']),
  )
  const entries = await house.transcript(client, id)
  expect(types(entries).filter((type) => type === 'fine' || type === 'reply')).toEqual(['reply'])
  expect(outcomes(entries)).toEqual(['retrying', 'completed'])
})

type How = (at: { worker: Worker; stop: () => Promise<unknown>; turn: Turn }) => Promise<unknown> | unknown
const fail: How = () => {
  throw new Error('no luck')
}
const ENDS: [string, How, unknown[]][] = [
  ['returns', () => undefined, ['completed']],
  ['throws', fail, ['retrying', 'completed']],
  ['is stopped', async ({ stop, turn }) => (await stop(), aborted(turn.signal)), ['stopped']],
  [
    'is stopped and throws',
    async ({ stop, turn }) => (await stop(), await aborted(turn.signal), fail(never())),
    ['stopped'],
  ],
  ['runs out of time', ({ turn }) => aborted(turn.signal), ['failed']],
  [
    'is handed over',
    ({ worker, turn }) => (void worker.drain({ graceMs: 0 }), aborted(turn.signal)),
    ['handed_over'],
  ],
]
const never = (): never => ({}) as never

test.each(ENDS)('I4 · each tool call has one result when the turn %s', async (_what, how, ends) => {
  const client = house.client()
  const id = house.sessionId()
  const worker = await house.worker(
    async (turn) => {
      await turn.append({ type: 'tool_call', callId: 'open', payload: 1 })
      await turn.append({ type: 'tool_call', callId: 'closed', payload: 1 })
      await turn.append({ type: 'tool_result', callId: 'closed', payload: 1 })
      await turn.append({ type: 'tool_call', callId: 'closed at the end', payload: 1 })
      if (turn.attempt === 1) await how({ worker, turn, stop: () => client.stop(id) })
      // Written with the end, if there is one that keeps it.
      return [
        { type: 'tool_result', callId: 'closed at the end', payload: 'fine' },
        { type: 'tool_call', callId: 'opened at the end' },
      ]
    },
    ends[0] === 'failed' ? { turnTimeoutMs: 3000 } : {},
  )
  await client.enqueue(id, 'x')
  await eventually(async () => expect(outcomes(await house.transcript(client, id))).toEqual(ends))
  const entries = await house.transcript(client, id)
  const results = entries.filter(({ type, attempt }) => type === 'tool_result' && attempt === 1)
  const interrupted = results
    .filter(({ payload }) => Object(payload).interrupted === true)
    .map(({ callId }) => callId)
  const isKept = ends[0] === 'completed'
  expect(interrupted).toEqual(isKept ? ['open', 'opened at the end'] : ['open', 'closed at the end'])
})

test('I4 · entries returned in vain do not count: a bad one among them leaves no call open and none without a call', async () => {
  const client = house.client()
  const id = house.sessionId()
  await house.worker(async (turn) => {
    await turn.append({ type: 'tool_call', callId: 'c' })
    if (turn.attempt > 1) return
    return [
      { type: 'tool_result', callId: 'c' },
      { type: 'tool_call', callId: 'd' },
      { type: 'x', payload: 7n },
    ]
  })
  await client.enqueue(id, 'x')
  await house.settled(client, id)
  const entries = await house.transcript(client, id)
  expect(outcomes(entries)).toEqual(['retrying', 'completed'])
  expect(entries.filter(({ callId }) => callId === 'd')).toEqual([])
})

test('I4 · a drain with no grace hands the turn over; the next worker goes on from its steps', async () => {
  const client = house.client()
  const id = house.sessionId()
  const ran: string[] = []
  const running = signal()
  const handler = async (turn: Turn) => {
    await turn.step('once', () => void ran.push('once'))
    ran.push(`attempt ${turn.attempt}`)
    running.resolve()
    if (turn.attempt === 1) await aborted(turn.signal)
    return JSON.stringify((await turn.history()).map(({ type }) => type))
  }
  const first = await house.worker(handler)
  const handedOver = listen(first, 'turn.handedOver')
  await client.enqueue(id, 'x')
  await running.promise
  await house.worker(handler)
  await first.drain({ graceMs: 0 })
  await house.settled(client, id)
  expect(ran).toEqual(['once', 'attempt 1', 'attempt 2'])
  expect(handedOver).toMatchObject([{ session: id, seq: 1, attempt: 1 }])
  const entries = await house.transcript(client, id)
  expect(outcomes(entries)).toEqual(['handed_over', 'completed'])
  expect(entries.find(({ type }) => type === 'reply')?.payload).toBe('["message","step"]')
})

test('I5 · a turn that makes no progress is ended, one that does is not', async () => {
  const client = house.client()
  const [silent, busy] = [house.sessionId(), house.sessionId()]
  const reasons: unknown[] = []
  const worker = await house.worker(
    async (turn) => {
      if (turn.message.payload === 'busy') {
        for (let n = 0; n < 8; n++) {
          await turn.append({ type: 'working' })
          await new Promise((resolve) => setTimeout(resolve, 300))
        }
        return
      }
      await aborted(turn.signal)
      reasons.push(turn.signal.reason)
    },
    { progressTimeoutMs: 2000 },
  )
  const timedOut = listen(worker, 'turn.timedOut')
  await client.enqueueMany([
    { sessionId: silent, message: 'silent' },
    { sessionId: busy, message: 'busy' },
  ])
  await Promise.all([house.settled(client, silent), house.settled(client, busy)])
  expect(await house.status(silent)).toEqual(['failed'])
  expect(await house.status(busy)).toEqual([null])
  expect(reasons).toMatchObject([{ code: 'TURN_TIMEOUT' }])
  expect(timedOut).toMatchObject([{ session: silent, seq: 1 }])
  // A timeout is final: somebody who wants another try says so.
  expect(await client.retry(silent, 1)).toMatchObject({ seq: 2 })
})

test.each([
  ['an error', new Error('no luck'), { name: 'Error', message: 'no luck' }],
  ['null', null, { message: 'The handler threw object: null' }],
  ['undefined', undefined, { message: 'The handler threw undefined: undefined' }],
  [
    'something that cannot be printed',
    { toString: () => fail(never()) },
    { message: expect.stringContaining('cannot be printed') },
  ],
])(
  'I1 · a message whose handler always throws %s has failed after three tries, and the session goes on',
  async (_what, thrown, error) => {
    const client = house.client()
    const id = house.sessionId()
    const attempts: number[] = []
    await house.worker((turn) => {
      if (turn.message.seq > 1) return
      attempts.push(turn.attempt)
      throw thrown
    })
    await client.enqueue(id, 'x')
    await client.enqueue(id, 'y')
    await house.settled(client, id)
    expect(attempts).toEqual([1, 2, 3])
    expect(await house.status(id)).toEqual(['failed', null])
    const entries = await house.transcript(client, id)
    expect(outcomes(entries)).toEqual(['retrying', 'retrying', 'failed', 'completed'])
    expect(entries.filter(({ type }) => type === 'error').map(({ payload }) => payload)).toMatchObject([
      error,
      error,
      error,
    ])
  },
)
