import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import type { Server } from '../../src/cli/servers.ts'
import { connectRedis, type RedisConnection } from '../../src/redis/connect.ts'
import { script } from '../../src/redis/script.ts'
import { freshPrefix, ownRedis } from '../support/services.ts'

let server: Server
let connection: RedisConnection
let key: string

const add = script({
  keys: ['counter'],
  args: ['by', 'label'],
  lua: `
    return {redis.call('INCRBY', counter, by), label}
  `,
  reply: (value) => {
    const [sum, label] = value as [number, string]
    if (sum === 666) throw new Error('a bad number')
    return `${label}=${sum}`
  },
})

beforeAll(async () => {
  server = await ownRedis()
  connection = connectRedis(server.url, {
    timeoutMs: 2_000,
    onTrouble: () => undefined,
    onReady: () => undefined,
  })
})
afterAll(async () => {
  await connection.close()
  await server.stop()
})
beforeEach(() => {
  key = freshPrefix()
})

test('inputs arrive under their names and the reply is decoded', async () => {
  expect(await add(connection.commands, { label: 'n', by: 2, counter: key })).toBe('n=2')
  expect(await add(connection.commands, { label: 'n', by: 3, counter: key })).toBe('n=5')
})

test('a flushed script cache goes unnoticed, alone and in a pipeline', async () => {
  const { commands } = connection
  await commands.script('FLUSH')
  expect(await add(commands, { counter: key, by: 1, label: 'a' })).toBe('a=1')
  await commands.script('FLUSH')
  const inputs = [1, 1, 1].map((by) => ({ counter: key, by, label: 'b' }))
  expect(await add.many(commands, inputs)).toEqual(['b=2', 'b=3', 'b=4'])
})

test('an element that fails is an error in its place and touches no other', async () => {
  const { commands } = connection
  await commands.lpush(`${key}-list`, 'x')
  const replies = await add.many(commands, [
    { counter: key, by: 1, label: 'a' },
    { counter: `${key}-list`, by: 1, label: 'b' },
    { counter: key, by: 665, label: 'c' },
    { counter: key, by: 1, label: 'd' },
  ])
  expect(replies).toEqual(['a=1', expect.any(Error), new Error('a bad number'), 'd=667'])
  expect(String(replies[1])).toContain('WRONGTYPE')
  expect(await add.many(commands, [])).toEqual([])
})

test('without a connection every element is an error', async () => {
  const own = await ownRedis()
  const lost = connectRedis(own.url, { timeoutMs: 500, onTrouble: () => undefined, onReady: () => undefined })
  await lost.commands.ping()
  await own.stop()
  const replies = await add.many(lost.commands, [
    { counter: key, by: 1, label: 'a' },
    { counter: key, by: 1, label: 'b' },
  ])
  expect(replies).toEqual([expect.any(Error), expect.any(Error)])
  await expect(add(lost.commands, { counter: key, by: 1, label: 'a' })).rejects.toThrow()
  await lost.close()
})

test('a name that Lua could not bind is refused when the script is declared', () => {
  const declare = (name: string) => () => script({ keys: [name], lua: '', reply: () => null })
  expect(declare('end')).toThrow('cannot name')
  expect(declare('a-b')).toThrow('cannot name')
  expect(declare('redis')).toThrow('cannot name')
  expect(declare('lock')).not.toThrow()
})
