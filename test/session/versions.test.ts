// Two versions side by side during a deploy: messages of a newer form are left to the processes that understand it, and
// the tables change under those that run.
import { sql } from 'kysely'
import { expect, test } from 'vitest'
import type { Client, Handler, Turn } from '../../src/index.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
import { Worker } from '../../src/session/worker.ts'
import { eventually, FAST, listen, openHouse, outcomes, signal } from './house.ts'

const house = openHouse()

/** A process of the next version. */
async function newerWorker(handler: Handler): Promise<Worker> {
  const { redisUrl: redis, url: mysql, prefix } = house
  const worker = new Worker({ redis, mysql, prefix, ...FAST, handler }, 2)
  await worker.start()
  return worker
}

/** What the next version's producers write; without a notification when it is to be found by a sweep. */
async function enqueueNewer(client: Client, id: string, options = { tell: true }): Promise<void> {
  const notify = await house.mysql.db.transaction().execute(async (trx) => {
    const accepted = await client.enqueue(id, 'newer', { trx })
    const { seq } = accepted
    await sql`update butler_messages set version = 2 where session_id = ${id} and seq = ${seq}`.execute(trx)
    return () => accepted.notify()
  })
  if (options.tell) await notify()
}

const ran = (list: string[], who: string) => (turn: Turn) =>
  void list.push(`${who} ${turn.message.seq} ${turn.message.payload as string}`)

test('I1 · an old process leaves a newer message untouched, says so, and the new one runs it (SD-08)', async () => {
  const client = house.client()
  const id = house.sessionId()
  const turns: string[] = []
  const old = await house.worker(ran(turns, 'old'))
  const reported = listen(old, 'message.unrunnable')
  await client.enqueue(id, 'first')
  await enqueueNewer(client, id)
  await client.enqueue(id, 'last')
  const asReported = expect.objectContaining({ session: id, kind: 'message', version: 2 })
  await eventually(() => expect(reported).toContainEqual(asReported))
  // Not even counted out: those limits are for whoever understands it.
  await sql`update butler_sessions set crashes = 2, starts = 19 where id = ${id}`.execute(house.mysql.db)
  const before = reported.length
  await eventually(() => expect(reported.length).toBeGreaterThan(before + 2))
  expect(await client.inspect(id)).toMatchObject({ state: 'waiting', doneSeq: 1, runningSeq: null })
  expect(await house.status(id)).toEqual([null, null, null])
  const newer = await newerWorker(ran(turns, 'new'))
  try {
    await house.settled(client, id)
    expect(turns.slice(0, 2)).toEqual(['old 1 first', 'new 2 newer'])
    expect(turns[2]).toMatch(/ 3 last$/)
    expect(turns).toHaveLength(3)
    expect(outcomes(await house.transcript(client, id))).toEqual(['completed', 'completed', 'completed'])
  } finally {
    await newer.stop({ graceMs: 0 })
  }
})

test('an old process does not give up what is counted out in its own eyes only (SD-08)', async () => {
  const client = house.client()
  const id = house.sessionId()
  await enqueueNewer(client, id, { tell: false })
  await sql`update butler_sessions set crashes = 9, starts = 99 where id = ${id}`.execute(house.mysql.db)
  const old = await house.worker(() => undefined)
  const reported = listen(old, 'message.unrunnable')
  await eventually(() => expect(reported.length).toBeGreaterThan(2))
  expect(await client.inspect(id)).toMatchObject({ state: 'waiting', doneSeq: 0, crashes: 9 })
  // Stop and retry need not understand it.
  await client.stop(id)
  await house.settled(client, id)
  expect(await house.status(id)).toEqual(['stopped'])
  await expect(client.retry(id, 1)).rejects.toMatchObject({ code: 'NOT_RETRYABLE' })
})

test('I8 · a sweep gives a newer message to a process that understands it, and to no other (SD-08)', async () => {
  const client = house.client()
  const turns: string[] = []
  const old = await house.worker(ran(turns, 'old'))
  const newer = await newerWorker(ran(turns, 'new'))
  try {
    const acquired = listen(old, 'session.acquired')
    const reported = [listen(old, 'message.unrunnable'), listen(newer, 'message.unrunnable')]
    const ids = [1, 2, 3, 4, 5].map(() => house.sessionId())
    for (const id of ids) await enqueueNewer(client, id, { tell: false })
    for (const id of ids) await house.settled(client, id)
    expect(turns).toEqual(Array(5).fill('new 1 newer'))
    expect(acquired).toEqual([])
    expect(reported.flat()).toEqual([])
  } finally {
    await newer.stop({ graceMs: 0 })
  }
})

test('an old process that is woken for a newer message passes it on at once (SD-08)', async () => {
  const client = house.client()
  const id = house.sessionId()
  const turns: string[] = []
  // Nothing but the passing on can bring it there in time.
  const old = await house.worker(ran(turns, 'old'), { sweepMs: 60_000 })
  await client.enqueue(id, 'first')
  await house.settled(client, id)
  const newer = await newerWorker(ran(turns, 'new'))
  try {
    await eventually(async () =>
      expect(await house.redis.exists(house.keys.process(newer.processId))).toBe(1),
    )
    // Its idle lock names the old process, so that is who is told.
    await enqueueNewer(client, id)
    await house.settled(client, id)
    expect(turns).toEqual(['old 1 first', 'new 2 newer'])
    expect(old.stats().state).toBe('running')
  } finally {
    await newer.stop({ graceMs: 0 })
  }
})

test('the tables of the next version may come while processes of this one work (SD-08)', async () => {
  const client = house.client()
  const ids = [1, 2, 3].map(() => house.sessionId())
  const [atWork, goOn] = [signal(), signal()]
  const worker = await house.worker(async (turn) => {
    if (turn.message.payload === 'hold') atWork.resolve()
    if (turn.message.payload === 'hold') await goOn.promise
    await turn.append({ type: 'reply', payload: 'done' })
  })
  const trouble = [listen(worker, 'background.error'), listen(worker, 'mysql.trouble')]
  const holding = house.sessionId()
  await client.enqueue(holding, 'hold')
  await atWork.promise
  let isOver = false
  const sending = ids.map(async (id) => {
    let sent = 0
    for (; !isOver; sent++) await client.enqueue(id, 'more')
    return sent
  })
  // What the next version adds, as the rule for migrations allows it; then its own migrator, which finds it is behind.
  for (const table of ['butler_sessions', 'butler_messages', 'butler_entries'])
    await sql`alter table ${sql.table(table)} add column of_the_future int not null default 7`.execute(
      house.mysql.db,
    )
  await sql`insert into butler_migrations values ('9999_future', '2999-01-01T00:00:00.000Z')`.execute(
    house.mysql.db,
  )
  expect(await migrateUp(house.mysql.db)).toEqual({ applied: [] })
  isOver = true
  goOn.resolve()
  const sent = await Promise.all(sending)
  for (const [index, id] of ids.entries()) {
    await house.settled(client, id)
    const ends = outcomes(await house.transcript(client, id))
    expect(ends).toEqual(Array(sent[index]).fill('completed'))
  }
  await house.settled(client, holding)
  expect(outcomes(await house.transcript(client, holding))).toEqual(['completed'])
  expect(trouble.flat()).toEqual([])
  // A process of this version starts on them as well.
  await (await house.worker(() => undefined)).stop()
})

test('what a version without the column writes is of form 1 (SD-08)', async () => {
  const client = house.client()
  const id = house.sessionId()
  await client.enqueue(id, 'x')
  // As the version before wrote it: it knows no such column.
  await sql`insert into butler_messages
      (session_id, seq, id, idempotency_key, fingerprint, kind, source, payload, created_at)
    values (${id}, 2, 'm-2', 'm-2', ${'f'.repeat(43)}, 'message', 'user', '"old"', utc_timestamp(3))`.execute(
    house.mysql.db,
  )
  await sql`update butler_sessions set inbox_seq = 2 where id = ${id}`.execute(house.mysql.db)
  const turns: string[] = []
  await house.worker(ran(turns, 'this'))
  await house.settled(client, id)
  expect(turns).toEqual(['this 1 x', 'this 2 old'])
})
