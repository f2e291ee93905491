// Deleting a session ends its present life and no other: numbers go on, what ran can write nothing, rows go with a prune.
import { expect, test } from 'vitest'
import { aborted, eventually, failure, openHouse, outcomes, signal } from './house.ts'

const house = openHouse()
const NOT_FOUND = { code: 'SESSION_NOT_FOUND' }

test('I3 · a running turn of a deleted session is aborted and writes nothing more', async () => {
  const client = house.client()
  const id = house.sessionId()
  const running = signal()
  const late = signal<unknown>()
  const ran: number[] = []
  await house.worker(async (turn) => {
    ran.push(turn.message.seq)
    if (turn.message.payload !== 'wait') return
    running.resolve()
    await aborted(turn.signal)
    late.resolve(await failure(turn.append({ type: 'late' })))
  })
  await client.enqueue(id, 'wait')
  await running.promise
  await client.enqueue(id, 'never')
  await client.delete(id)
  const calls = [
    client.transcript(id),
    client.inspect(id),
    client.queue(id),
    client.stop(id),
    client.delete(id),
  ]
  expect(await Promise.all(calls.map(failure))).toMatchObject(calls.map(() => NOT_FOUND))
  expect(await late.promise).toMatchObject({ name: 'TurnAbortedError' })
  expect(await client.sessions()).toEqual([])
  // Its next life counts on, and sees nothing of the last one.
  expect(await client.enqueue(id, 'again')).toMatchObject({ seq: 3 })
  await house.settled(client, id)
  expect(ran).toEqual([1, 3])
  const entries = await house.transcript(client, id)
  expect(outcomes(entries)).toEqual(['completed'])
  expect(entries.every(({ seq }) => seq === 3)).toBe(true)
  expect((await client.transcript(id, { after: 1 })).entries).toEqual(entries)
})

test('I2 · a revived session is a new conversation for its handler, with continuing numbers, also after a prune', async () => {
  const client = house.client()
  const id = house.sessionId()
  const histories: unknown[] = []
  await house.worker(async (turn) => {
    histories.push((await turn.history()).map(({ payload }) => Object(payload).payload))
    return 'reply'
  })
  for (const life of [1, 2, 3]) {
    const sent = await client.enqueue(id, `life ${life}`)
    expect(sent).toMatchObject({ seq: life, duplicate: false })
    const view = await house.settled(client, id)
    await client.delete(id)
    if (life === 2) {
      await eventually(async () => expect((await client.prune({ deletedMs: 0 })).messages).toBe(2))
      expect(view.entrySeq).toBe(8)
    }
  }
  expect(histories).toEqual([['life 1'], ['life 2'], ['life 3']])
})

test('a message of a deleted life can be neither withdrawn nor sent again (PI-09)', async () => {
  const client = house.client()
  const id = house.sessionId()
  await client.enqueue(id, '1')
  await client.delete(id)
  await client.enqueue(id, '2')
  await expect(client.withdraw(id, 1)).rejects.toMatchObject({ code: 'MESSAGE_NOT_FOUND' })
  await expect(client.retry(id, 1)).rejects.toMatchObject({ code: 'MESSAGE_NOT_FOUND' })
  expect((await client.queue(id)).map(({ seq }) => seq)).toEqual([2])
})

test('deleting while producers send leaves a session that works', async () => {
  const client = house.client()
  const id = house.sessionId()
  await house.worker(() => undefined)
  await client.enqueue(id, 'first')
  const sends = Array.from({ length: 20 }, (_, n) => client.enqueue(id, `${n}`))
  const deletes = [1, 2, 3].map(() =>
    client.delete(id).catch((error: unknown) => expect(error).toMatchObject(NOT_FOUND)),
  )
  const seqs = (await Promise.all(sends)).map(({ seq }) => seq).sort((a, b) => a - b)
  await Promise.all(deletes)
  expect(seqs).toEqual(Array.from({ length: 20 }, (_, n) => n + 2))
  expect(await client.enqueue(id, 'last')).toMatchObject({ seq: 22 })
  await house.settled(client, id)
})
