// However a turn ends, its transcript is valid, and each message gets one final state.
import { expect, test } from 'vitest'
import type { Turn, Worker } from '../../src/index.ts'
import { aborted, eventually, listen, openHouse, outcomes } from './house.ts'

const house = openHouse()

type How = (at: { worker: Worker; stop: () => Promise<unknown>; turn: Turn }) => unknown
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

test.each(ENDS)('I4 · each tool call has one result when the turn %s (ST-08)', async (_what, how, ends) => {
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
  await eventually(() => expect(timedOut).toMatchObject([{ session: silent, seq: 1 }]))
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
  'I1 · a message whose handler always throws %s has failed after three tries, and the session goes on (EL-08)',
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
