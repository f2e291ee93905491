// The rules together: what is true breaks none, how much they judged is counted, and a violation has its story.
import { expect, test } from 'vitest'
import { fault, good, rig, SECOND, world } from './made-up.ts'
import { applyRules } from './rules.ts'
import { taleOf } from './tale.ts'

test('a history in which everything went right breaks no rule', () => {
  const { problems, judged } = applyRules(world(good))
  expect(problems).toEqual([])
  expect(judged['completions']).toEqual({ judged: 1, of: 1 })
})

test('the story of a violation tells its session, the messages around it and the faults of that time', () => {
  const history = [
    ...good.history,
    ...fault('redis-flush', 10.25, 10.25),
    ...fault('worker-kill', 500, 501),
    { ...rig, what: 'start', session: 'chat', seq: 1, attempt: 1, ns: 10.22 * SECOND },
    { ...rig, what: 'start', session: 'other', seq: 1, attempt: 1, ns: 10.22 * SECOND },
  ]
  const tale = taleOf('chat: I8: message 1 waited', world({ ...good, history }))
  expect(tale.split('\n').map((line) => line.replace(/^ *[\d:.]+ {2}/, ''))).toEqual([
    'chat: I8: message 1 waited',
    expect.stringContaining('a enqueue ok'),
    'entry 1: 1.1 epoch 1 turn_started {"process":"P"}',
    expect.stringContaining('rig start 1.1'),
    expect.stringContaining('fault redis-flush'),
    'entry 2: 1.1 epoch 1 reply',
    'entry 3: 1.1 epoch 1 turn_ended {"outcome":"completed"}',
    expect.stringContaining('P end 1.1'),
  ])
})
