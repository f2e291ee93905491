import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createConnection } from 'mysql2/promise'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readRecording } from '../../src/cli/recording.ts'
import { migrate } from '../../src/index.ts'
import { until } from '../support/eventually.ts'
import { freshDatabase, freshPrefix, services } from '../support/services.ts'
import { build, butler, endPrograms, jsonLines, Program } from './program.ts'

const { redisUrl } = services()
const TIMEOUT = 120_000
const SESSIONS = 20
const MESSAGES = 300
let database: Awaited<ReturnType<typeof freshDatabase>>
let folder: string
let file: string
let env: Record<string, string>

async function sql(statement: string): Promise<unknown> {
  const connection = await createConnection({ uri: database.url })
  try {
    return (await connection.query(statement))[0]
  } finally {
    await connection.end()
  }
}

async function summaryOf(...flags: string[]) {
  const { code, stdout, stderr } = await butler(['replay', file, '--json', ...flags], env)
  const [summary] = jsonLines(stdout)
  return { code, stderr, summary }
}

beforeAll(async () => {
  await build()
  folder = await mkdtemp(join(tmpdir(), 'butler-replay-'))
  file = join(folder, 'talk.jsonl')
  const lines = Array.from({ length: MESSAGES }, (_, n) =>
    JSON.stringify({ session: `talk-${(n * 7) % SESSIONS}`, at: n / 10, text: `Line ${n}, “quoted” \\ 😀` }),
  )
  await writeFile(file, `${lines.join('\n')}\n`)
  database = await freshDatabase()
  await migrate(database.url)
  env = { BUTLER_REDIS_URL: redisUrl, BUTLER_MYSQL_URL: database.url, BUTLER_PREFIX: freshPrefix() }
}, TIMEOUT)

afterAll(async () => {
  await database.drop()
  await rm(folder, { recursive: true })
})
endPrograms()

describe('replay', () => {
  it(
    'I6 · an interrupted replay goes on where it ended, and everything is served once',
    { timeout: TIMEOUT },
    async () => {
      // Nobody serves yet, so this one cannot come to its end.
      const first = new Program(['replay', file], env)
      await until(async () => {
        const [row] = (await sql('SELECT COUNT(*) AS sent FROM butler_messages')) as { sent: number }[]
        return row?.sent === MESSAGES
      })
      first.child.kill('SIGINT')
      expect(await first.ended).toMatchObject({
        code: 130,
        stderr: expect.stringContaining('repeat the command') as string,
      })

      const worker = new Program(['work', 'test/cli/handlers.ts'], env)
      await worker.says('worker.started')
      const { code, summary } = await summaryOf('--check')
      worker.child.kill('SIGTERM')
      expect((await worker.ended).code).toBe(0)
      const none = { lost: 0, doubled: 0, outOfOrder: 0, altered: 0, notCompleted: 0, gap: 0, epoch: 0 }
      expect(summary).toMatchObject({
        ok: true,
        checked: true,
        messages: MESSAGES,
        sessions: SESSIONS,
        accepted: MESSAGES,
        duplicates: MESSAGES,
        done: MESSAGES,
        counts: none,
        ackMs: null,
        doneMs: { p50: expect.any(Number) as number },
        problems: [],
      })
      expect(code).toBe(0)
    },
  )

  it('I1 · a transcript that was tampered with is found out', { timeout: TIMEOUT }, async () => {
    // No worker is needed: every message is there and done, so these only look.
    await sql(
      "DELETE FROM butler_entries WHERE session_id = 'talk-3' AND type = 'reply' ORDER BY entry_seq LIMIT 1",
    )
    await sql(`INSERT INTO butler_entries SELECT session_id, entry_seq + 1000, seq, epoch, attempt, type, step_key, call_id,
      payload, created_at FROM butler_entries WHERE session_id = 'talk-5' AND type = 'turn_ended' AND seq = 2`)
    await sql("UPDATE butler_sessions SET entry_seq = entry_seq + 1000 WHERE id = 'talk-5'")
    const { code, stderr, summary } = await summaryOf('--check')
    expect(summary).toMatchObject({ ok: false, counts: { lost: 1, doubled: 1 } })
    expect(stderr).toMatch(/^lost: talk-3 \(line \d+\): message 1 has no reply$/m)
    expect(stderr).toMatch(/^doubled: talk-5 \(line \d+\): message 2 was ended 2 times$/m)
    expect(code).toBe(1)
    // Without --check only the numbers of the sessions are looked at, which are right.
    const unchecked = await butler(['replay', file, '--limit', '10'], env)
    expect(unchecked.stdout).toContain('not checked')
    expect(unchecked.stdout).toContain('10 (10 had been sent before)')
    expect(unchecked.code).toBe(0)
  })

  it('I2 · a fresh replay at a recorded pace measures both latencies', { timeout: TIMEOUT }, async () => {
    const worker = new Program(['work', 'test/cli/handlers.ts', '--log-level', 'debug'], env)
    await worker.says('worker.started')
    const flags = ['--limit', '100', '--speed', '20', '--prefix-id', 'again']
    const { code, summary } = await summaryOf(...flags)
    worker.child.kill('SIGTERM')
    await worker.ended
    const spread = { p50: expect.any(Number) as number, p99: expect.any(Number) as number }
    expect(summary).toMatchObject({
      ok: true,
      accepted: 100,
      duplicates: 0,
      done: 100,
      ackMs: spread,
      doneMs: spread,
    })
    // 9.9 recorded seconds, 20 times as fast.
    expect(summary?.seconds).toBeGreaterThanOrEqual(0.49)
    expect(code).toBe(0)
  })

  it(
    'exits 2 for a line that is no message, by its number, and sends nothing',
    { timeout: TIMEOUT },
    async () => {
      const bad = join(folder, 'bad.jsonl')
      const good = '{"session": "bad-file", "at": 0, "text": "x"}'
      await writeFile(bad, `${good}\n${good}\n{"session": "bad-file"\n`)
      const ended = await butler(['replay', bad], env)
      expect(ended.stderr).toContain('line 3: is not JSON')
      expect(ended.code).toBe(2)
      expect(await sql("SELECT id FROM butler_sessions WHERE id = 'bad-file'")).toEqual([])
    },
  )

  it.each([
    { line: '{"session": "a b", "at": 1, "text": "x"}', says: 'line 1: Session id "a b" is not allowed' },
    { line: '{"session": "talk-1", "at": "1", "text": "x"}', says: 'line 1: has no "at"' },
    { line: '{"session": "talk-1", "at": -1, "text": "x"}', says: 'line 1: has no "at"' },
    { line: '{"session": "talk-1", "at": 1}', says: 'line 1: has no "text"' },
    {
      line: `{"session": "talk-1", "at": 1, "text": "${'x'.repeat(2 ** 20)}"}`,
      says: 'line 1: has a text of more',
    },
    { line: 'null', says: 'line 1: has no "text"' },
  ])('takes no line like $says', async ({ line, says }) => {
    const bad = join(folder, 'bad-line.jsonl')
    await writeFile(bad, line)
    await expect(readRecording(bad)).rejects.toThrow(says)
  })

  it('exits 2 for a file that is not there, or empty', { timeout: TIMEOUT }, async () => {
    await expect(readRecording(join(folder, 'none.jsonl'))).rejects.toThrow('Cannot read')
    const empty = join(folder, 'empty.jsonl')
    await writeFile(empty, '\n')
    expect(await butler(['replay', empty], env)).toMatchObject({ code: 2 })
  })
})
