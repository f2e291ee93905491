// A worker is told to leave while a store is gone: it cannot let go of anything in order, and ends in time all the same
// (SD-05). What a frozen store does is in test/stories/shutdown.
import { afterEach, beforeEach, expect, test } from 'vitest'
import { eventually, Latch, openWorld, type World } from '../traps/world.ts'

let world: World

beforeEach(async () => {
  world = await openWorld()
})
afterEach(() => world.close())

const GRACE_MS = 300
/** The grace, five seconds to hand over, and what the stores' deadlines and a busy machine add. */
const IN_TIME_MS = 20_000

test.each([
  ['Redis', 'idle', ['toRedis']],
  ['Redis', 'in a turn', ['toRedis']],
  ['MySQL', 'idle', ['toMysql']],
  ['MySQL', 'in a turn', ['toMysql']],
  ['both', 'idle', ['toRedis', 'toMysql']],
  ['both', 'in a turn', ['toRedis', 'toMysql']],
] as const)('I8 · without %s a worker that is %s ends in time (SD-05)', async (_what, state, gone) => {
  const [atWork, goOn] = [new Latch('a turn'), new Latch('its end', 60_000)]
  const one = await world.worker(async (turn) => {
    atWork.open()
    if (state === 'in a turn' && turn.attempt === 1) await goOn.opened
  })
  await world.client.enqueue('chat', 'x')
  await atWork.opened
  if (state === 'idle') await world.done('chat')
  for (const line of gone) one[line].down()
  const since = performance.now()
  await one.worker.stop({ graceMs: GRACE_MS })
  expect(performance.now() - since).toBeLessThan(IN_TIME_MS)
  expect(await one.worker.ended).toBe('stopped')
  expect(one.worker.stats().state).toBe('stopped')
  goOn.open()
  // Nothing is lost by it: whoever comes next completes it. A lock that could not be given back is in the way for its
  // time only, which is long here.
  await world.redis.del(world.keys.lock('chat'))
  await world.worker(() => undefined)
  await world.done('chat')
  await eventually(async () => (await world.story('chat')).at(-1) === 'completed 1')
})
