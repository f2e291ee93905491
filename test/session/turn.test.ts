// What a handler may rely on: memoised steps, checked entries, an end that is an end.
import { expect, test } from 'vitest'
import type { Turn } from '../../src/index.ts'
import { aborted, listen, openHouse, outcomes, signal, types } from './house.ts'

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

test('I3 · what is written or emitted after the end is refused, and a promise nobody waits for harms nobody (EL-08)', async () => {
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
    { type: 'x', text: 'beside the payload' },
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
