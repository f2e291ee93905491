// The README's requests are sent as they stand there, to a real server: by curl, and by Python without any library.
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openServed } from './served.ts'

const README = readFileSync(new URL('../../README.md', import.meta.url), 'utf8')
const block = (language: string) => new RegExp(`\`\`\`${language}\\n([^]*?)\`\`\``).exec(README)![1]!

let served: Awaited<ReturnType<typeof openServed>>
beforeAll(async () => {
  served = await openServed(1)
  await served.api.work()
})
afterAll(() => served.close())

const run = async (program: string, args: string[]) => {
  const env = { ...process.env, BUTLER: served.urls[0]!, KEY: served.key }
  return (
    await promisify(execFile)(program, args, { env }).catch(
      (error: { code: number; stdout: string }) => error,
    )
  ).stdout
}

test('curl sends, watches and stops', async () => {
  const lines = await run('sh', ['-c', block('sh')])
  expect(lines).toMatch(/^\{"session":"chat-1","seq":1,"id":"m-\w+","duplicate":false,"position":0\}/)
  expect(lines).toContain('event: entry\nid: 2\ndata: {"type":"entry"')
  expect(lines).toContain('"payload":"done How is the weather?"')
  expect(lines).toMatch(/\{"through":\d,.*"quiet":true/)
  expect(block('sh').trim().split('\n').length).toBeLessThanOrEqual(5)
})

test('Python sends', async () => {
  expect(await run('python3', ['-c', block('python')])).toMatch(
    /^\{'session': 'chat-1', 'seq': 2, .*'duplicate': False/,
  )
  expect(block('python').trim().split('\n')).toHaveLength(5)
})
