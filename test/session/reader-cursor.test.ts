// Where readers are: kept for any process and any time, moving on only, in one life of the session.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { formatCursor, parseCursor } from '../../src/protocol/cursor.ts'
import { until } from '../support/eventually.ts'
import { openWorld, type World } from '../traps/world.ts'

let world: World
beforeAll(async () => {
  world = await openWorld()
})
afterAll(() => world.close())

let made = 0
/** A session with so many entries, which are not looked at here. */
async function session(entries: number): Promise<string> {
  const id = `read-${(made += 1)}`
  await world.client.enqueue(id, 'hello')
  await write(id, entries)
  return id
}
const write = (id: string, entries: number) =>
  world.run('update butler_sessions set entry_seq = ? where id = ?', [entries, id])
const rowsOf = (id: string) =>
  world.rows<{ reader: string; seen: string | null }>(
    'select reader, seen, acknowledged from butler_cursors where session_id = ? order by reader',
    [id],
  )
const NONE = { read: null, acknowledged: null, updatedAt: null }

test('a position is kept for whoever asks, and only moves on', async () => {
  const id = await session(9)
  const { client } = world
  expect(await client.cursor(id, 'phone')).toEqual({ reader: 'phone', ...NONE })
  expect(await client.moveCursor(id, 'phone', { read: '3' })).toMatchObject({ read: '3', acknowledged: null })
  expect(await client.moveCursor(id, 'phone', { read: 2, acknowledged: 2 })).toMatchObject({
    read: '3',
    acknowledged: '2',
  })
  expect(await client.moveCursor(id, 'phone', { read: '3.1.1.7' })).toMatchObject({ read: '3.1.1.7' })
  expect(await client.moveCursor(id, 'phone', { read: '3.1.1.6' })).toMatchObject({ read: '3.1.1.7' })
  // What was dealt with was read.
  const moved = await client.moveCursor(id, 'phone', { acknowledged: '9' })
  expect(moved).toEqual({
    reader: 'phone',
    read: '9',
    acknowledged: '9',
    updatedAt: expect.any(String) as string,
  })
  expect(await client.moveCursor(id, 'phone', { read: 1 })).toEqual(moved)
  expect(await world.newClient().cursor(id, 'phone')).toEqual(moved)
  // Readers are names, and compare as such.
  for (const other of ['Phone', 'phone:2', '@', 'x'.repeat(128)])
    expect(await client.cursor(id, other)).toMatchObject(NONE)
})

test('what lies beyond the end, or is no position, is refused and writes nothing', async () => {
  const id = await session(5)
  const { client } = world
  const INVALID = { name: 'InvalidInputError' }
  for (const cursor of ['6', 6, '6.1.1.1', '-1', '', 'head', '1.5', '05', null, {}, NaN]) {
    for (const name of ['read', 'acknowledged'] as const)
      await expect(client.moveCursor(id, 'tab', { [name]: cursor as string })).rejects.toMatchObject({
        code: 'INVALID_CURSOR',
      })
  }
  await expect(client.moveCursor(id, 'tab', { read: '5', acknowledged: '6' })).rejects.toMatchObject(INVALID)
  for (const move of [{}, { read: undefined }, { seen: '1' }, null, undefined, '3'])
    await expect(client.moveCursor(id, 'tab', move as object)).rejects.toMatchObject(INVALID)
  for (const reader of ['', 'a b', 'a/b', '..', 'ü', 'x'.repeat(129), undefined, 7]) {
    await expect(client.cursor(id, reader as string)).rejects.toMatchObject(INVALID)
    await expect(client.moveCursor(id, reader as string, { read: 1 })).rejects.toMatchObject(INVALID)
  }
  expect(await rowsOf(id)).toEqual([])
  const NOT_FOUND = { code: 'SESSION_NOT_FOUND' }
  await expect(client.cursor('nobody', 'tab')).rejects.toMatchObject(NOT_FOUND)
  await expect(client.moveCursor('nobody', 'tab', { read: 0 })).rejects.toMatchObject(NOT_FOUND)
  expect(await rowsOf('nobody')).toEqual([])
})

test('two tabs at once: the one that is behind waits for the other and changes nothing', async () => {
  const id = await session(9)
  const line = await world.newLine(world.mysqlUrl)
  const slow = world.newClient({ mysqlTimeoutMs: 20_000, enqueueTimeoutMs: 20_000 }, line.url)
  const fast = world.newClient({ mysqlTimeoutMs: 20_000, enqueueTimeoutMs: 20_000 })
  await fast.moveCursor(id, 'tab', { read: '1', acknowledged: '1' })
  await slow.cursor(id, 'tab')
  for (const [behind, ahead] of [
    ['2', '5'],
    ['5.1.1.3', '5.1.1.30'],
    ['6', '8'],
  ] as const) {
    // It has decided on what it read, and has not written yet.
    const held = line.hold(/update `butler_cursors`/i)
    const [first, second] = [slow.moveCursor(id, 'tab', { acknowledged: behind }), held.seen]
    await second
    const other = fast.moveCursor(id, 'tab', { acknowledged: ahead })
    await world.lockWait('butler_cursors')
    held.release()
    expect(await first).toMatchObject({ acknowledged: behind })
    expect(await other).toMatchObject({ read: ahead, acknowledged: ahead })
    expect(await fast.cursor(id, 'tab')).toMatchObject({ read: ahead, acknowledged: ahead })
  }
})

test('many tabs on many servers, in any order: nobody is ever told an older position than its own', async () => {
  const id = await session(500)
  const clients = [world.newClient(), world.newClient(), world.newClient()]
  const moves = Array.from({ length: 120 }, (_, n) => {
    const entry = (n * 77) % 400
    return {
      at: n,
      cursor: formatCursor(n % 3 ? { entry } : { entry, delta: { seq: 1, attempt: 1, index: n + 1 } }),
    }
  })
  const told = await Promise.all(
    moves.map(({ at, cursor }) => clients[at % 3]!.moveCursor(id, `tab-${at % 2}`, { read: cursor })),
  )
  for (const [at, { read }] of told.entries())
    expect(orderOf(read!)).toBeGreaterThanOrEqual(orderOf(moves[at]!.cursor))
  for (const tab of [0, 1]) {
    const furthest = Math.max(
      ...moves.filter(({ at }) => at % 2 === tab).map(({ cursor }) => orderOf(cursor)),
    )
    expect(orderOf((await world.client.cursor(id, `tab-${tab}`)).read!)).toBe(furthest)
  }
})

const orderOf = (cursor: string) => {
  const { entry, delta } = parseCursor(cursor)
  return entry * 1000 + (delta?.index ?? 0)
}

test('a reader that is new to all its tabs is made once, also when who made it takes that back', async () => {
  const id = await session(9)
  const clients = [1, 2, 3, 4].map(() =>
    world.newClient({ mysqlTimeoutMs: 20_000, enqueueTimeoutMs: 20_000 }),
  )
  const maker = await world.admin.getConnection()
  await maker.beginTransaction()
  await maker.query('insert into butler_cursors (session_id, reader, updated_at) values (?, ?, now(3))', [
    id,
    'tab',
  ])
  // All of them wait for that row, and each wants to make it when it is gone: that is a deadlock.
  const moves = clients.map((client, n) => client.moveCursor(id, 'tab', { read: n + 1 }))
  await until(
    async () => {
      const waiting = await world.rows(
        "select 1 from information_schema.innodb_trx where trx_state = 'LOCK WAIT' and trx_query like '%butler_cursors%'",
      )
      return waiting.length === 4
    },
    { everyMs: 150, what: 'four that wait' },
  )
  await maker.rollback()
  maker.release()
  const told = await Promise.all(moves)
  for (const [n, { read }] of told.entries()) expect(Number(read)).toBeGreaterThanOrEqual(n + 1)
  expect(await rowsOf(id)).toEqual([{ reader: 'tab', seen: '4', acknowledged: null }])
})

test('a deleted session has no readers, and its next life inherits none', async () => {
  const id = await session(5)
  const { client } = world
  await client.moveCursor(id, 'old', { read: '5', acknowledged: '4' })
  await client.moveCursor(id, 'both', { read: '3' })
  await client.delete(id)
  await expect(client.cursor(id, 'old')).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' })
  await expect(client.moveCursor(id, 'old', { read: '5' })).rejects.toMatchObject({
    code: 'SESSION_NOT_FOUND',
  })
  await client.enqueue(id, 'again')
  expect(await client.cursor(id, 'old')).toEqual({ reader: 'old', ...NONE })
  // A position in what is gone is none, though the number is there.
  expect(await client.moveCursor(id, 'old', { read: '5' })).toEqual({ reader: 'old', ...NONE })
  expect(await client.moveCursor(id, 'new', { read: '4', acknowledged: '4' })).toMatchObject(NONE)
  await write(id, 9)
  expect(await client.moveCursor(id, 'both', { read: '8' })).toMatchObject({ read: '8', acknowledged: null })
  // What is pruned is the former life's alone, however long ago both were.
  await world.run('update butler_cursors set updated_at = updated_at - interval 1 day where session_id = ?', [
    id,
  ])
  await world.run('update butler_sessions set deleted_at = deleted_at - interval 1 day where id = ?', [id])
  await client.prune({ deletedMs: 0 })
  expect(await rowsOf(id)).toEqual([{ reader: 'both', seen: '8', acknowledged: null }])
  expect(await client.cursor(id, 'both')).toMatchObject({ read: '8' })
  await client.delete(id)
  await client.prune({ deletedMs: 0 })
  expect(await rowsOf(id)).toEqual([])
})

test('a session that is deleted while its reader moves keeps no position', async () => {
  const id = await session(5)
  const line = await world.newLine(world.mysqlUrl)
  const client = world.newClient({}, line.url)
  await client.cursor(id, 'tab')
  const held = line.hold(/update `butler_cursors`/i)
  const moving = client.moveCursor(id, 'tab', { read: '5' }).catch((error: unknown) => error)
  await held.seen
  await world.client.delete(id)
  held.release()
  expect(await moving).toMatchObject({ code: 'SESSION_NOT_FOUND' })
  await world.client.enqueue(id, 'again')
  expect(await world.client.cursor(id, 'tab')).toMatchObject(NONE)
})
