// Other people's bytes under our keys and on our channels: reported, passed over, and never the end of a session.
import { expect, test } from 'vitest'
import { aborted, eventually, listen, openHouse, signal } from './house.ts'

const house = openHouse()

const JUNK = [
  'not json',
  '{}',
  Buffer.alloc(2 ** 20, 0xff),
  '99:',
  ':x',
  '0:m-1',
  '-1:m-1',
  '99999999999999999999:m-1',
  '',
  '1:m 1',
  '1:',
]

/** A worker that owns the session, idle, after one message. */
async function owned() {
  const client = house.client()
  const id = house.sessionId()
  const ran: number[] = []
  const worker = await house.worker((turn) => void ran.push(turn.message.seq))
  await client.enqueue(id, '1')
  await house.settled(client, id)
  return { client, id, ran, worker }
}

test('I10 · QO-09 · foreign bytes in the queue and in the processing list stop no session and are reported', async () => {
  const { client, id, ran, worker } = await owned()
  const foreign = listen(worker, 'queue.foreign')
  for (const junk of JUNK) await house.redis.lpush(house.keys.queue(id), junk)
  for (const junk of JUNK) await house.redis.rpush(house.keys.processing(id), junk)
  await client.enqueue(id, '2')
  await house.settled(client, id)
  // References to nothing: of a message that is done, and of one that is yet to come.
  await house.redis.lpush(house.keys.queue(id), '1:m-x', '7:m-x', '1:m-x')
  await client.enqueue(id, '3')
  await house.settled(client, id)
  await eventually(async () => expect(await house.redis.llen(house.keys.queue(id))).toBe(0))
  expect(ran).toEqual([1, 2, 3])
  expect(foreign.length).toBeGreaterThanOrEqual(JUNK.length)
  expect(JSON.stringify(foreign).length).toBeLessThan(10_000)
})

test('I10 · QO-10 · keys of another type are put right, whichever they are', async () => {
  const { client, id, ran, worker } = await owned()
  const foreign = listen(worker, 'queue.foreign')
  await house.redis.del(house.keys.queue(id), house.keys.processing(id), house.keys.live(id))
  await house.redis.set(house.keys.queue(id), 'junk')
  await house.redis.hset(house.keys.processing(id), 'a', 'b')
  await house.redis.sadd(house.keys.live(id), 'x')
  await client.enqueue(id, '2')
  await house.settled(client, id)
  expect(ran).toEqual([1, 2])
  await eventually(() => expect(foreign).not.toEqual([]))
})

test.each([
  ['a word', async (key: string) => void (await house.redis.set(key, 'junk'))],
  ['a list', async (key: string) => void (await house.redis.lpush(key, 'junk'))],
  [
    'the token of nobody',
    async (key: string) => void (await house.redis.set(key, 'Pabcdefghijk.abcdefghijklmnop')),
  ],
  [
    'the idle token of nobody',
    async (key: string) => void (await house.redis.set(key, 'Pabcdefghijk.abcdefghijklmnop/idle')),
  ],
])('I8 · a lock that holds %s ends by itself (CR-06)', async (_what, spoil) => {
  const client = house.client()
  const id = house.sessionId()
  await spoil(house.keys.lock(id))
  const ran: number[] = []
  await house.worker((turn) => void ran.push(turn.message.seq))
  await client.enqueue(id, '1')
  await house.settled(client, id)
  expect(ran).toEqual([1])
})

test('I8 · fleet keys of another type are put right', async () => {
  await house.redis.set(house.keys.processes, 'junk')
  const { client, id, ran, worker } = await owned()
  const heartbeat = house.keys.process(worker.processId)
  await house.redis.multi().del(heartbeat).lpush(heartbeat, 'junk').exec()
  await eventually(() => house.redis.sadd(house.keys.processes, 'not an id', '💥', 'Pdeadbeef0000'))
  await client.enqueue(id, '2')
  await house.settled(client, id)
  expect(ran).toEqual([1, 2])
})

test('I10 · PS-08 · junk on the channels is reported and stops nobody', async () => {
  const { client, id, ran, worker } = await owned()
  const junk = listen(worker, 'channel.junk')
  const own = house.keys.processChannel(worker.processId)
  const notices = [
    '',
    ' ',
    'wake',
    'wake  ',
    'wake ä{}',
    'stop',
    `stop ${id}`,
    `stop ${id} -1`,
    `stop ${id} 1e3`,
    `stop ${id} 99999999999999999999`,
    `retake ${id}`,
    `retake ${id} x`,
    'dance',
    'x'.repeat(2 ** 21),
    `wake ${'y'.repeat(300)}`,
  ]
  for (const channel of [house.keys.wakeChannel, own]) {
    for (const notice of notices) await house.redis.publish(channel, notice)
    await house.redis.publish(channel, Buffer.from([0xff, 0xfe, 0x00, 0xc0]))
  }
  await house.redis.publish(own, 'wake nobody-of-that-name')
  await house.redis.publish(own, `retake ${id} Pabcdefghijk.abcdefghijklmnop`)
  await client.enqueue(id, '2')
  await house.settled(client, id)
  expect(ran).toEqual([1, 2])
  expect(junk.length).toBeGreaterThan(10)
  expect(JSON.stringify(junk).length).toBeLessThan(20_000)
})

test('I5 · PS-08 · a forged or mistaken stop notice stops nothing that MySQL does not call stopped', async () => {
  const client = house.client()
  const id = house.sessionId()
  const [running, go] = [signal<AbortSignal>(), signal()]
  const worker = await house.worker(async (turn) => {
    if (turn.message.payload !== 'wait') return 'fine'
    running.resolve(turn.signal)
    await Promise.race([go.promise, aborted(turn.signal)])
    return 'fine'
  })
  const own = house.keys.processChannel(worker.processId)
  await client.enqueue(id, 'wait')
  const on = await running.promise
  await house.redis.publish(own, `stop ${id} 9`)
  await house.redis.publish(own, 'stop nobody-of-that-name 9')
  // Heard after the forged ones, on the same connection.
  const other = house.sessionId()
  await client.enqueue(other, 'x')
  await house.settled(client, other)
  expect(on.aborted).toBe(false)
  go.resolve()
  await client.enqueue(id, '2')
  await house.settled(client, id)
  expect(await house.status(id)).toEqual([null, null])
})
