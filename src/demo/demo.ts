/**
 * `npm run demo [-- --seconds N]`: the whole main job, with real servers and real processes. Starts what it needs,
 * lets the play run, and ends with an account of what happened; exit code 1 if a promise was broken.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { createConnection } from 'mysql2/promise'
import { ensureDatabase, findOrStart } from '../cli/servers.ts'
import { createClient, migrate } from '../index.ts'
import { account, type Account } from './account.ts'
import { Board } from './board.ts'
import { Fleet } from './fleet.ts'
import { play, readTranscripts, SESSIONS } from './play.ts'

const SECONDS = { default: 60, min: 10, max: 3600 }
/** Shorter than a turn, so that a drain has something to hand over. */
const DRAIN_GRACE_MS = 500

/** A database and a prefix of its own, so that it may also use servers that belong to somebody. */
const run = `demo_${process.pid}_${Math.random().toString(36).slice(2, 8)}`

async function demo(seconds: number): Promise<Account> {
  const folder = await mkdtemp(join(tmpdir(), 'butler-demo-'))
  const log = (line: string) => console.log(line)
  const servers = await findOrStart({ folder, env: process.env, install: true, log })
  const mysql = new URL(servers.mysql.url)
  mysql.pathname = `/${run}`
  try {
    await ensureDatabase(mysql.href)
    await migrate(mysql.href)
    return await perform({ redis: servers.redis.url, mysql: mysql.href, prefix: run }, seconds)
  } finally {
    await drop(mysql.href).catch((error: unknown) => log(`database ${run} is left behind: ${String(error)}`))
    await servers.stop()
    await rm(folder, { recursive: true, force: true })
  }
}

async function perform(
  stores: { redis: string; mysql: string; prefix: string },
  seconds: number,
): Promise<Account> {
  const board = new Board(process.stdout, SESSIONS)
  const fleet = new Fleet({ ...stores, drainGraceMs: DRAIN_GRACE_MS }, (report, name) => {
    if (report.is === 'verdict')
      board.news(`${name} finds ${fleet.nameOf(report.process)} dead and takes over`)
    else if (report.is === 'trouble') board.news(`${name} has trouble: ${report.text}`)
    else board.see(report, name)
  })
  const client = createClient({ ...stores, logger: false })
  process.once('exit', () => fleet.killAll())
  board.open()
  try {
    const deeds = await Promise.race([play({ fleet, client, board, seconds }), interrupted])
    await fleet.end()
    return account(await readTranscripts(client), deeds)
  } finally {
    await board.close()
    await fleet.end()
    await client.close()
  }
}

async function drop(url: string): Promise<void> {
  const connection = await createConnection({ uri: url })
  await connection.query('DROP DATABASE ??', [run])
  await connection.end()
}

function readSeconds(): number {
  const { values } = parseArgs({ options: { seconds: { type: 'string', default: String(SECONDS.default) } } })
  const seconds = Number(values.seconds)
  if (seconds >= SECONDS.min && seconds <= SECONDS.max) return seconds
  console.error(`--seconds ${values.seconds}: use a number from ${SECONDS.min} to ${SECONDS.max}.`)
  process.exit(2)
}

/** The first signal brings everything to its end in order, a second one ends this process at once. */
const interrupted = new Promise<never>((_, reject) => {
  for (const [name, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const) {
    process.on(name, () => {
      if (process.exitCode !== undefined) process.exit(code)
      process.exitCode = code
      reject(new Error('Interrupted.'))
    })
  }
})
interrupted.catch(() => undefined)

const seconds = readSeconds()
try {
  const { lines, broken } = await demo(seconds)
  console.log(`\nWhat happened, from the transcripts:\n${lines.join('\n')}`)
  for (const line of broken) console.log(`BROKEN: ${line}`)
  if (broken.length === 0) console.log('Every promise was kept.')
  process.exit(broken.length === 0 ? 0 : 1)
} catch (error) {
  console.error(error instanceof Error ? error.message : error)
  process.exit(process.exitCode ?? 1)
}
