// A memory that many share: one question for all who ask at once, and no more of them than it may hold.
import { afterEach, expect, test, vi } from 'vitest'
import { ShortMemory } from '../../src/base/short-memory.ts'

let clock = 0
vi.spyOn(performance, 'now').mockImplementation(() => clock)
afterEach(() => (clock = 0))

test('all who ask at once share one answer, for as long as it is remembered', async () => {
  const memory = new ShortMemory<number>({ ms: 3000, max: 10 })
  let asked = 0
  const ask = () => memory.recall('a', () => Promise.resolve((asked += 1)))
  expect(await Promise.all([ask(), ask(), ask()])).toEqual([1, 1, 1])
  clock = 2999
  expect(await ask()).toBe(1)
  clock = 3000
  expect(await ask()).toBe(2)
  memory.forget()
  expect(await ask()).toBe(3)
})

test('an answer is as old as its question, however long it took', async () => {
  const memory = new ShortMemory<string>({ ms: 3000, max: 10 })
  let answer = (_: string): void => undefined
  const first = memory.recall('a', () => new Promise((resolve) => (answer = resolve)))
  clock = 2000
  answer('old')
  expect(await first).toBe('old')
  clock = 3500
  expect(await memory.recall('a', () => Promise.resolve('new'))).toBe('new')
})

test('failures are not remembered, and one that comes late takes nothing along', async () => {
  const memory = new ShortMemory<string>({ ms: 3000, max: 10 })
  let fail = (_: Error): void => undefined
  const late = memory.recall('a', () => new Promise((_, reject) => (fail = reject)))
  clock = 4000
  await memory.recall('a', () => Promise.resolve('good'))
  fail(new Error('late'))
  await expect(late).rejects.toThrow('late')
  expect(await memory.recall('a', () => Promise.resolve('other'))).toBe('good')
  await expect(memory.recall('b', () => Promise.reject(new Error('away')))).rejects.toThrow('away')
  expect(await memory.recall('b', () => Promise.resolve('back'))).toBe('back')
})

test('it holds no more than it may: the oldest go first', async () => {
  const memory = new ShortMemory<number>({ ms: 3000, max: 3 })
  const ask = (key: string, value: number) => memory.recall(key, () => Promise.resolve(value))
  for (let n = 0; n < 1000; n++) {
    await ask(`made up ${n}`, n)
    expect(memory.size).toBeLessThanOrEqual(3)
  }
  await ask('mine', 1)
  await ask('x', 0)
  await ask('y', 0)
  expect(await ask('mine', 2)).toBe(1)
  // Asked for anew it is the youngest.
  clock = 4000
  await ask('mine', 3)
  await ask('x', 0)
  await ask('z', 0)
  expect(await ask('mine', 4)).toBe(3)
  await ask('w', 0)
  expect(await ask('mine', 5)).toBe(5)
})
