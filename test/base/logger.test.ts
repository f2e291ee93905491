// The logger we make when the caller brings none: standard error, written at once, never fatal.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { createLogger } from '../../src/base/telemetry.ts'

describe('createLogger', () => {
  /** Runs a program that logs, with the logger of this package. */
  function run(program: string) {
    const source = new URL('../../src/base/telemetry.ts', import.meta.url).href
    const code = `import { createLogger, Telemetry } from ${JSON.stringify(source)}\n${program}`
    const tsx = import.meta.resolve('tsx')
    return spawn(process.execPath, ['--import', tsx, '--input-type=module', '-e', code], { stdio: 'pipe' })
  }

  it('writes to standard error, at once, info and above', async () => {
    const child = run(`
      const telemetry = new Telemetry(createLogger())
      telemetry.emit('turn.started', { session: 's', seq: 1, epoch: 1, attempt: 1 })
      telemetry.emit('worker.stopped', { process: 'P' })
      process.kill(process.pid, 'SIGKILL')
    `)
    const [out, err] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')])
    expect(out).toBe('')
    expect(
      err
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as unknown),
    ).toStrictEqual([expect.objectContaining({ level: 30, event: 'worker.stopped', process: 'P' })])
  })

  it('survives a standard error that nobody reads any more', async () => {
    const child = run(`
      process.stdin.once('data', () => {
        const telemetry = new Telemetry(createLogger({ level: 'debug' }))
        for (let i = 0; i < 1000; i++) telemetry.emit('worker.stopped', { process: 'P' })
        setImmediate(() => console.log('alive'))
        process.stdin.destroy()
      })
      console.log('ready')
    `)
    const output = text(child.stdout)
    await once(child.stdout, 'readable')
    child.stderr.destroy()
    child.stdin.write('go\n')
    const [code] = (await once(child, 'exit')) as [number | null]
    expect(await output).toBe('ready\nalive\n')
    expect(code).toBe(0)
  })

  it('can be silent', () => {
    expect(createLogger({ level: 'silent' }).isLevelEnabled('error')).toBe(false)
    expect(createLogger().level).toBe('info')
  })
})
