// The checker finds what it is there to find: one true story, and each way of it having gone wrong.
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { check } from './checker.ts'
import { type Line, monotonicNs } from './history.ts'
import { beginStory, endStories, type Story } from './story.ts'

const TABLES = ['butler_sessions', 'butler_messages', 'butler_entries']

let story: Story

beforeAll(async () => {
  story = await beginStory()
  await story.local()
  await story.send('chat', { do: 'fail', times: 1 }, { idempotencyKey: 'one' })
  await story.send('chat', { do: 'tool' })
  await story.send('chat', { do: 'steps', count: 2 })
  await story.settled()
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
  ['', 'a result without a call', "update butler_entries set call_id = 'other' where type = 'tool_call'"],
  ['', 'an open tool call', "update butler_entries set type = 'note' where type = 'tool_result'"],
])('it finds %s: %s', async (id, text, sql) => {
  await story.sql(sql)
  const problems = await verdict()
  expect(problems.find((problem) => problem.includes(text))).toContain(id)
})

test('it finds what handlers and producers noted down and the rows do not show', async () => {
  const history = [
    ...story.fleet.history(),
    line('start', { seq: 1, attempt: 1 }),
    line('start', { seq: 3, attempt: 2 }),
    line('effect', { seq: 3, attempt: 2, step: 'step-0' }),
  ]
  const [first] = story.accepted
  const accepted = [...story.accepted, { ...first!, seq: 2 }, { sessionId: 'chat', seq: 4, id: 'm-4' }]
  const stops = [{ sessionId: 'chat', through: 3, head: 3 }]
  const problems = await verdict({ history, accepted, stops, noReruns: true })
  for (const text of [
    'called twice for 1.1',
    'whose start is not in the transcript',
    'repeated step-0',
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
