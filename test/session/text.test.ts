// What goes in comes out: hard text and hard values, from the producer to the handler and to the transcript.
import { expect, test } from 'vitest'
import { openHouse } from './house.ts'

const house = openHouse()

const HARD: Record<string, unknown> = {
  emoji: '👩‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿 👍🏽',
  nul: 'a\u0000b',
  controls: Array.from({ length: 32 }, (_, code) => String.fromCharCode(code)).join(''),
  separators: 'a\u2028b\u2029c',
  rtl: 'שלום \u202Eabc\u202C مرحبا',
  combining: 'e\u0301 é Å Å',
  fourByte: '𝒜𓀀𠜎',
  quotes: `'"\`\\ \\' \\" '' "" %_ ? :x ${'${x}'}`,
  loneSurrogate: 'a\ud800b\udc00',
  bom: '\ufeffx',
  spaces: '  x\t\n',
  empty: '',
  zero: [0, -1.5, 1e-300, 0.1, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER],
  nested: { a: [{ b: null }, [], {}], __proto__key: 1, constructor: 'c' },
  keys: { '': 1, 'a.b': 2, '🔑': 3, "'; DROP TABLE butler_sessions; --": 4 },
  null: null,
}

test('PE-01 · hard text is the same in the queue, in the handler and in the transcript (HT-04, PE-06)', async () => {
  const client = house.client()
  const id = house.sessionId()
  for (const [name, value] of Object.entries(HARD)) await client.enqueue(id, { payload: { [name]: value } })
  const own = JSON.parse('{"__proto__": {"x": 1}}') as unknown
  await client.enqueue(id, { payload: own })
  const all = [...Object.entries(HARD).map(([name, value]) => ({ [name]: value })), own]
  expect((await client.queue(id)).map(({ payload }) => payload)).toEqual(all)
  const seen: unknown[] = []
  await house.worker(async (turn) => {
    seen.push(turn.message.payload)
    await turn.append({ type: 'echo', payload: turn.message.payload })
    expect(await turn.step('same', () => turn.message.payload)).toEqual(turn.message.payload)
  })
  await house.settled(client, id)
  expect(seen).toEqual(all)
  const entries = await house.transcript(client, id)
  const of = (type: string) => entries.filter((entry) => entry.type === type).map(({ payload }) => payload)
  expect(of('message')).toMatchObject(all.map((payload) => ({ payload })))
  expect(of('echo')).toEqual(all)
})

test('PE-01 · a payload as large as is allowed comes through, also when all of it has to be escaped (PE-04)', async () => {
  const client = house.client()
  const id = house.sessionId()
  const large = ['x'.repeat(1024 ** 2 - 2), '"'.repeat(2 ** 19 - 1), '€'.repeat(349_000)]
  for (const text of large) await client.enqueue(id, text)
  const seen: unknown[] = []
  await house.worker((turn) => {
    seen.push(turn.message.payload)
    return turn.message.payload as string
  })
  await house.settled(client, id)
  expect(seen).toEqual(large)
  const entries = await house.transcript(client, id)
  expect(entries.filter(({ type }) => type === 'reply').map(({ payload }) => payload)).toEqual(large)
})

test('I2 · ids that differ by case or by a mark only are sessions of their own (PE-08)', async () => {
  const client = house.client()
  const ids = [
    'Chat',
    'chat',
    'CHAT',
    'chat.',
    'chat-',
    'chat_',
    'chat:1',
    'chat@1',
    '-',
    `${'x'.repeat(127)}a`,
    `${'x'.repeat(127)}A`,
  ]
  for (const id of ids) expect(await client.enqueue(id, id)).toMatchObject({ seq: 1 })
  const seen: string[] = []
  await house.worker((turn) => void seen.push(`${turn.sessionId} ${String(turn.message.payload as string)}`))
  for (const id of ids) await house.settled(client, id)
  expect(seen.sort()).toEqual(ids.map((id) => `${id} ${id}`).sort())
  expect((await client.sessions()).map(({ id }) => id).sort()).toEqual([...ids].sort())
})

test('I10 · trace context and source reach the handler as they were sent', async () => {
  const client = house.client()
  const id = house.sessionId()
  const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`
  const sent = await client.enqueue(id, 'x', { traceparent, source: 'system' })
  const seen: unknown[] = []
  await house.worker((turn) => void seen.push(turn.message))
  await house.settled(client, id)
  expect(seen).toMatchObject([{ traceparent, source: 'system', seq: 1, id: sent.id, kind: 'message' }])
})
