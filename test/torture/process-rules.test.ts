// Each rule is seen to find what it is there to find in a made-up history, and nothing when all is well or excused.
import { describe, expect, test } from 'vitest'
import { fault, good, line, problemsOf, rig, SECOND, sent, world } from './made-up.ts'
import * as rules from './process-rules.ts'

const ends = problemsOf(rules.ends)
const leftovers = problemsOf(rules.leftovers)

describe('I10 · processes', () => {
  const ended = (name: string, asked?: string, script = 'echo') => {
    const fields = { process: 'P', asked, log: 'its last words' }
    const history = [line('start', 1, 1, 10), { ...rig, what: 'ended', name, ns: 11 * SECOND, fields }]
    return ends(world({ ...good, history, scripts: [['a', script]] }))
  }

  test('a worker that ends by itself', () => {
    for (const end of ['1', '0', 'SIGSEGV', 'SIGABRT'])
      expect(ended(end)[0]).toContain(`ended by itself (${end}): its last words`)
    expect(ended('SIGABRT', undefined, 'bomb')).toEqual([])
    expect(ended('1', undefined, 'bomb')).toHaveLength(1)
    expect(ended('SIGKILL', 'kill')).toEqual([])
    expect(ended('0', 'terminate')).toEqual([])
    expect(ended('1', 'terminate')).toHaveLength(1)
  })

  test('a server whose grace was over, while nothing kept it from the stores', () => {
    const fields = { process: 'P', asked: 'terminate', log: '' }
    const drain = fault('worker-drain', 7, 12, { process: 'P', costs: 'handover' })
    const left = [...drain, { ...rig, what: 'ended', name: '1', ns: 11 * SECOND, fields }]
    expect(ends(world({ ...good, history: left }))).toHaveLength(1)
    for (const about of [
      fault('mysql-freeze', 8, 10),
      fault('line-hole', 8, 10, { process: 'P', costs: 'target' }),
    ])
      expect(ends(world({ ...good, history: [...about, ...left] }))).toEqual([])
    const other = fault('line-hole', 8, 10, { process: 'Q', costs: 'target' })
    expect(ends(world({ ...good, history: [...other, ...left] }))).toHaveLength(1)
  })

  test('a producer that died', () => {
    const crashed = { ...rig, what: 'crashed', reason: 'producer ended 1', ns: 0 }
    expect(ends(world({ ...good, history: [crashed] }))).toEqual([': I10: producer ended 1'])
  })

  test('a worker that had to be killed, or did not start, while nothing was broken', () => {
    const notes = [
      { ...rig, what: 'overdue', ns: 40 * SECOND, fields: { process: 'P', ms: 20_000 } },
      { ...rig, what: 'unstarted', reason: 'no', ns: 40 * SECOND, fields: { ms: 10_000 } },
    ]
    expect(ends(world({ ...good, history: notes }))).toHaveLength(2)
    expect(ends(world({ ...good, history: [...notes, ...fault('mysql-kill', 30, 35)] }))).toEqual([])
    const own = fault('worker-drain', 20, 40, { process: 'P' })
    expect(ends(world({ ...good, history: [...notes, ...own] }))).toHaveLength(2)
  })
})

test('I9 · a reference that stays although nothing had been broken', () => {
  const stays = {
    ...rig,
    session: 'chat',
    what: 'stays',
    name: '1:m-1',
    fields: { list: 'queue' },
    ns: 40 * SECOND,
  }
  const without = world({ ...good, history: [...good.history, stays, stays] })
  expect(leftovers(without)).toEqual(['chat: I9: its queue still holds 1:m-1, and nothing had been broken'])
  const history = [...good.history, ...fault('redis-kill', 10.1, 10.2), stays]
  expect(leftovers(world({ ...good, history }))).toEqual([])
  const late = [...good.history, ...fault('redis-kill', 11, 12), stays]
  expect(leftovers(world({ ...good, history: late }))).toHaveLength(1)
  const taken = { ...stays, fields: { list: 'processing' } }
  for (const [name, fields, problems] of [
    ['redis-freeze', {}, 0],
    ['worker-clock', { gentle: true }, 1],
    ['lock-deleted', { session: 'other' }, 1],
  ] as const) {
    const about = [...good.history, ...fault(name, 10.1, 10.2, fields), taken]
    expect(leftovers(world({ ...good, history: about }))).toHaveLength(problems)
  }
  const repeat = sent('a', 11.5, 1, { duplicate: true })
  expect(leftovers(world({ ...good, history: [...late, ...repeat] }))).toEqual([])
  expect(leftovers(world({ ...good, history: [...good.history, ...repeat, stays] }))).toHaveLength(1)
})
