// The demo as a reader runs it, in a short form, on the servers of this run.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, it } from 'vitest'
import { account } from '../src/demo/account.ts'
import type { Deeds } from '../src/demo/play.ts'
import type { Entry, Json } from '../src/index.ts'
import { services } from './support/services.ts'

const DEMO = fileURLToPath(new URL('../src/demo/demo.ts', import.meta.url))

function run(...args: string[]) {
  const { redisUrl, mysqlUrl } = services()
  const env = { ...process.env, BUTLER_REDIS_URL: redisUrl, BUTLER_MYSQL_URL: mysqlUrl }
  const child = spawn(process.execPath, ['--import', 'tsx', DEMO, ...args], { env })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (text += String(chunk)))
  return { child, output: () => text }
}

it('I1 I2 I4 I5 · the demo kills, drains and stops, and its account of the transcripts finds every promise kept', async () => {
  const { child, output } = run('--seconds', '12')
  const [code] = (await once(child, 'close')) as [number | null]
  const text = output()
  expect(text).toMatch(/kill -9 (\w+),/)
  expect(text).toMatch(/ finds \w+ dead and takes over/)
  expect(text).toMatch(/messages accepted +\d+: \d+ completed, [1-9]\d* stopped/)
  expect(text).toMatch(/\w+ killed +[1-9]\d* turns? started again elsewhere after \d+\.\d\d s/)
  expect(text).toMatch(/\w+ drained .* exit code 0/)
  expect(text).toMatch(/steps not repeated +[1-9]\d* finished before their worker went, 0 ran again/)
  for (const what of ['lost', 'doubled', 'out of order']) {
    expect(text).toMatch(new RegExp(`messages ${what} +0\\n`))
  }
  expect(text).toContain('Every promise was kept.')
  expect(code).toBe(0)
}, 240_000)

const start = (entry: number, seq: number, attempt = 1): Entry =>
  line(entry, seq, attempt, 'turn_started', { process: 'p' })
const message = (entry: number, seq: number): Entry => line(entry, seq, 1, 'message', { id: `m${seq}` })
const call = (entry: number, seq: number, attempt: number, callId: string): Entry => ({
  ...line(entry, seq, attempt, 'tool_call', { tool: 'rest', step: '1 rest' }),
  callId,
})
const result = (entry: number, seq: number, attempt: number, callId: string): Entry => ({
  ...line(entry, seq, attempt, 'tool_result', { restedMs: 1 }),
  callId,
})
const step = (entry: number, seq: number): Entry => ({
  ...line(entry, seq, 1, 'step', {}),
  stepKey: '1 rest',
})
const end = (entry: number, seq: number, outcome = 'completed'): Entry =>
  line(entry, seq, 1, 'turn_ended', { outcome })

function line(entry: number, seq: number, attempt: number, type: string, payload: Json): Entry {
  const createdAt = new Date(entry * 1000).toISOString()
  return { entry, seq, epoch: 1, attempt, type, callId: null, stepKey: null, payload, createdAt }
}

const GOOD = [start(1, 1), message(2, 1), end(3, 1), start(4, 2), message(5, 2), end(6, 2)]

it.each<[string, Entry[], RegExp | undefined]>([
  ['a message without a final state', GOOD.slice(0, 5), /messages lost: 1/],
  ['a message that is not in the transcript', GOOD.slice(0, 3), /messages lost: 1/],
  ['a message with two final states', [...GOOD, end(7, 2)], /messages doubled: 1/],
  ['a message that is there twice', [...GOOD.slice(0, 5), message(6, 2), end(7, 2)], /messages doubled: 1/],
  [
    'a turn before the end of the last one',
    [start(1, 1), message(2, 1), start(3, 2), message(4, 2), end(5, 1), end(6, 2)],
    /out of order: 1/,
  ],
  ['a hole', GOOD.map((one) => (one.entry < 6 ? one : { ...one, entry: 7 })), /out of order: 1/],
  [
    'a finished step that runs again',
    [
      start(1, 1),
      message(2, 1),
      call(3, 1, 1, 'a'),
      result(4, 1, 1, 'a'),
      step(5, 1),
      end(6, 1, 'lost'),
      start(7, 1, 2),
      call(8, 1, 2, 'b'),
      result(9, 1, 2, 'b'),
      end(10, 1),
      start(11, 2),
      message(12, 2),
      end(13, 2),
    ],
    /steps that ran again: 1/,
  ],
  [
    'a tool call without a result',
    [start(1, 1), message(2, 1), call(3, 1, 1, 'a'), end(4, 1), start(5, 2), message(6, 2), end(7, 2)],
    /without exactly one result: 1/,
  ],
  [
    'a start after Stop',
    GOOD.map((one) => ({ ...one, createdAt: new Date(one.entry * 1000 + 60_001).toISOString() })),
    /started after they were stopped: 2/,
  ],
  ['nothing wrong', GOOD, undefined],
])('I1 I2 I4 I5 · the account of the demo sees %s', (_, entries, broken) => {
  const deeds: Deeds = {
    sent: [1, 2].map((seq) => ({ session: 'parlour', seq, id: `m${seq}` })),
    kill: { name: 'Anna', process: 'a', atMs: 0 },
    drain: { name: 'Ben', process: 'b', tookMs: 0, exitCode: 0 },
    stop: { session: 'parlour', through: 2, atMs: 60_000, returnedAtMs: 60_000 },
  }
  const found = account(new Map([['parlour', entries]]), deeds).broken
  if (broken) expect(found).toEqual([expect.stringMatching(broken)])
  else expect(found).toEqual([])
})
