import { expect, test } from 'vitest'
import { Keys } from '../../src/redis/keys.ts'

test('every name carries the prefix, and a session’s names share its hash tag (RD-09)', () => {
  const keys = new Keys('shop:chat')
  expect([keys.lock('a:1'), keys.queue('a:1'), keys.processing('a:1'), keys.live('a:1')]).toEqual([
    'shop:chat:{a:1}:lock',
    'shop:chat:{a:1}:queue',
    'shop:chat:{a:1}:processing',
    'shop:chat:{a:1}:live',
  ])
  const names = [
    keys.processes,
    keys.wakeChannel,
    keys.process('P1'),
    keys.tick('sweep'),
    keys.processChannel('P1'),
    keys.sessionChannel('a:1'),
  ]
  for (const name of names) expect(name).toMatch(/^shop:chat:/)
  expect(new Set(names).size).toBe(names.length)
})
