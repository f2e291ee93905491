// Traps of a stop's answer: what ends at the very moment, and what is repeated because an answer was lost.
import { afterEach, beforeEach, expect, test } from 'vitest'
import { TO_MYSQL } from './line.ts'
import { Stage } from './stage.ts'
import { eventually, openWorld, type World } from './world.ts'

let world: World
let stage: Stage
beforeEach(async () => {
  world = await openWorld()
  stage = new Stage()
})
afterEach(() => world.close())

test('I5 · trap: a turn that ends by itself after the tombstone was written is done, not aborted', async () => {
  const w1 = await world.worker(stage.handler, { mysqlTimeoutMs: 10_000 })
  await world.client.enqueue('s', 'deaf')
  await stage.began()
  const end = w1.toMysql.hold(TO_MYSQL.lockRows)
  stage.go()
  await end.seen
  const stopping = world.client.stop('s', { waitMs: 20_000 })
  await eventually(async () => (await world.row('s')).stop_seq === 1, 'the tombstone')
  end.release()
  expect(await stopping).toMatchObject({ running: 1, quiet: true, outcomes: [{ outcome: 'already-done' }] })
  expect((await world.story('s')).at(-1)).toBe('completed 1')
})

test('I5 · trap: a look from before the turn began is not taken for its end', async () => {
  const w1 = await world.worker(stage.handler, { mysqlTimeoutMs: 10_000 })
  const line = await world.newLine(world.mysqlUrl)
  // The look-out of this client knows the session from before, and is told nothing.
  const client = world.newClient({ lookMs: 30_000, lookFastMs: 20_000, prefix: 'elsewhere' }, line.url)
  await world.client.enqueue('s', 'hello')
  await world.done('s')
  const watching = client.subscribe('s', { after: 3 })
  await watching.next()
  await world.client.enqueue('s', 'wait')
  await stage.began(2)
  const look = line.hold(TO_MYSQL.looks)
  let receipt: object | undefined
  const stopping = client.stop('s', { waitMs: 20_000 }).then((one) => (receipt = one))
  await look.seen
  expect(receipt).toBeUndefined()
  await w1.says('turn.stopped')
  look.release()
  await stopping
  expect(receipt).toMatchObject({ running: 2, quiet: true, outcomes: [{ seq: 2, outcome: 'aborted' }] })
  await watching.return?.()
})

test.each([{ turn: 'running' }, {}] as const)(
  'I5 · trap: a stop whose answer was lost stops nothing more when it is repeated: %s',
  async (options) => {
    await world.worker(stage.handler, { lookMs: 200 })
    const line = await world.newLine(world.mysqlUrl)
    const client = world.newClient({}, line.url)
    await world.client.enqueue('s', 'wait')
    await stage.began()
    const lost = line.loseAnswer(TO_MYSQL.commit)
    const stopping = client.stop('s', options)
    await lost
    line.down()
    await world.client.enqueue('s', 'wait')
    await stage.began(2)
    line.up()
    expect(await stopping).toMatchObject({ through: 1 })
    expect(await world.row('s')).toMatchObject({ stop_seq: 1, running_seq: 2 })
    expect(stage.turn(2).signal.aborted).toBe(false)
    stage.go()
    await world.done('s')
    expect((await world.story('s')).at(-1)).toBe('completed 2')
  },
)
