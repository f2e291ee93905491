// The checker finds what it is there to find: one true story, and each way of it having gone wrong.
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { check } from './checker.ts'
import { type Line, monotonicNs } from './history.ts'
import { beginStory, endStories, type Story } from './story.ts'

const TABLES = ['butler_sessions', 'butler_messages', 'butler_entries']

let story: Story

beforeAll(async () => {
  story = await beginStory()
  const worker = await story.local()
  await story.send('chat', { do: 'fail', times: 1 }, { idempotencyKey: 'one' })
  await story.send('chat', { do: 'tool' })
  await story.send('chat', { do: 'steps', count: 2 })
  await story.settled()
  // It would mend what is bent here: a row that names it for a turn that it does not run.
  await worker.stop()
  for (const table of TABLES) await story.sql(`create table saved_${table} as select * from ${table}`)
})
afterAll(endStories)

beforeEach(async () => {
  for (const table of TABLES) await story.sql(`delete from ${table}`)
  const [row] = await story.sql('select * from saved_butler_sessions')
  const columns = Object.keys(row ?? {})
    .filter((name) => name !== 'running_by')
    .join(', ')
  await story.sql(`insert into butler_sessions (${columns}) select ${columns} from saved_butler_sessions`)
  for (const table of TABLES.slice(1)) await story.sql(`insert into ${table} select * from saved_${table}`)
})

const verdict = (evidence = {}) => {
  const { mysqlUrl, accepted } = story
  return check({ mysqlUrl, accepted, history: story.fleet.history(), ...evidence })
}

const line = (what: string, more: Partial<Line>): Line => {
  return { what, pid: 1, process: 'P', ns: monotonicNs(), session: 'chat', ...more }
}

test('nothing is wrong with a story in which everything went right', async () => {
  expect(await verdict()).toEqual([])
})

/** Columns that a copy of an entry takes over as they are. */
const COPIED = 'session_id, seq, epoch, attempt, type, step_key, call_id, created_at'

/** The same entry once more, as the last one, perhaps changed. */
async function repeat(where: string, change = 'payload'): Promise<void> {
  await story.sql(
    `insert into butler_entries (entry_seq, payload, ${COPIED})
     select (select entry_seq + 1 from butler_sessions), ${change}, ${COPIED} from saved_butler_entries
     where ${where} order by entry_seq limit 1`,
  )
  await story.sql('update butler_sessions set entry_seq = entry_seq + 1')
}

const endOf = (seq: number) => `type = 'turn_ended' and seq = ${seq} and payload like '%completed%'`

test.each([
  ['I1', 'no final state (done_seq 2)', 'update butler_sessions set done_seq = 2'],
  ['I1', 'still runs', 'update butler_sessions set running_seq = 3'],
  ['I1', 'final states', `update butler_entries set type = 'note' where ${endOf(2)}`],
  ['I1', 'no row', 'delete from butler_messages where seq = 2'],
  ['I1', 'its status is failed', "update butler_messages set status = 'failed' where seq = 2"],
  ['I1', 'not the accepted', "update butler_messages set id = 'other' where seq = 2"],
  ['I2', 'started when', "update butler_entries set seq = 3 where type = 'turn_started' and seq = 2"],
  ['I2', 'within turn', `update butler_entries set type = 'note' where ${endOf(2)}`],
  ['I3', 'stands at place', "delete from butler_entries where type = 'tool_result'"],
  ['I3', 'epoch falls', 'update butler_entries set epoch = 9 where entry_seq = 3'],
  ['I3', 'lies within turn', "update butler_entries set attempt = 7 where type = 'reply' and seq = 2"],
  [
    'I4',
    'was run again after completed',
    `update butler_entries set payload = '{"outcome":"completed"}' where type = 'turn_ended' and seq = 1 and attempt = 1`,
  ],
  ['I1', 'with 0 replies', "update butler_entries set type = 'note' where type = 'reply' and seq = 2"],
  ['I1', 'with 2 replies', "update butler_entries set type = 'reply' where type = 'tool_result'"],
  ['I2', 'epoch 1, ended within', `update butler_entries set attempt = 7 where ${endOf(2)}`],
  ['I2', 'epoch 0, ended within', `update butler_entries set epoch = 0 where ${endOf(2)}`],
  [
    'I1',
    'nobody had deleted it',
    `update butler_entries set payload = '{"outcome":"missing"}' where ${endOf(2)}`,
  ],
  ['I1', 'still counted', 'update butler_sessions set starts = 1'],
  ['I1', 'still counted', 'update butler_sessions set failures = 1'],
  ['I1', 'still counted', 'update butler_sessions set crashes = 1'],
  ['I1', 'still counted', 'update butler_sessions set retry_at = now(6)'],
  ['I1', '2 was the last number', 'update butler_sessions set inbox_seq = 2'],
  ['', 'a result without a call', "update butler_entries set call_id = 'other' where type = 'tool_call'"],
  ['', 'an open tool call', "update butler_entries set type = 'note' where type = 'tool_result'"],
])('it finds %s: %s', async (id, text, sql) => {
  await story.sql(sql)
  const problems = await verdict()
  expect(problems.find((problem) => problem.includes(text))).toContain(id)
})

test('it finds an end, an error and a message behind the end', async () => {
  await repeat("type = 'turn_ended' and seq = 1")
  expect((await verdict()).join()).toContain('turn 1.1 ended as retrying (entry')
  await repeat("type = 'error'")
  await repeat("type = 'message' and seq = 3")
  const problems = (await verdict()).join()
  for (const type of ['error', 'message']) expect(problems).toMatch(new RegExp(`\\(${type}\\) of .* outside`))
})

test('it finds a completed turn whose handler was never called, or threw', async () => {
  const history = story.fleet.history()
  const without = history.filter(({ seq, attempt }) => !(seq === 1 && attempt === 2))
  const threw = history.map((one) => (one.seq === 2 && one.what === 'end' ? { ...one, what: 'threw' } : one))
  expect(await verdict({ history: without })).toEqual([
    'chat: I1: turn 1.2 is completed, but its handler never returned',
  ])
  expect(await verdict({ history: threw })).toEqual([
    'chat: I1: turn 2.1 is completed, but its handler never returned',
  ])
})

test('it finds what handlers and producers noted down and the rows do not show', async () => {
  const history = [
    ...story.fleet.history(),
    line('start', { seq: 1, attempt: 1 }),
    line('start', { seq: 3, attempt: 2 }),
    line('effect', { seq: 3, attempt: 2, step: 'step-0' }),
    line('effect', { seq: 3, attempt: 1, step: 'step-1' }),
  ]
  const [first] = story.accepted
  const accepted = [...story.accepted, { ...first!, seq: 2 }, { sessionId: 'chat', seq: 4, id: 'm-4' }]
  const stops = [{ sessionId: 'chat', through: 3, head: 3 }]
  const problems = await verdict({ history, accepted, stops, noReruns: true })
  for (const text of [
    'called twice for 1.1',
    'whose start is not in the transcript',
    'repeated step-0',
    'step-1 of 3.1 took effect twice',
    'I6: key one is message 1 and 2',
    'accepted message 4 is not final',
    'I5: turn 3.1 started',
    'without need',
  ]) {
    expect(
      problems.find((problem) => problem.includes(text)),
      text,
    ).toBeDefined()
  }
})
