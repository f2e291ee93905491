import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { createConnection, type RowDataPacket } from 'mysql2/promise'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { redisAnswers, until } from '../../src/cli/probes.ts'
import { ensureDatabase, findOrStart, startMysql, startRedis, type Server } from '../../src/cli/servers.ts'
import { freshDatabase, ownMysql, ownRedis, seedFolder } from '../support/services.ts'

const isAlive = (pid: number | undefined): boolean => {
  try {
    return pid !== undefined && process.kill(pid, 0)
  } catch {
    return false
  }
}

async function query(url: string, sql: string): Promise<RowDataPacket[]> {
  const connection = await createConnection({ uri: url })
  try {
    return (await connection.query<RowDataPacket[]>(sql))[0]
  } finally {
    await connection.end()
  }
}

async function redisDo(url: string, command: string, ...args: string[]): Promise<unknown> {
  const redis = new Redis(url)
  try {
    return await redis.call(command, ...args)
  } finally {
    redis.disconnect()
  }
}

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'butler-servers-'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

describe('a private Redis', () => {
  it('comes back on its port after a SIGKILL, as an empty server', async () => {
    const redis = await ownRedis()
    const { port, pid } = redis
    await redisDo(redis.url, 'SET', 'greeting', 'hello')
    redis.kill('SIGKILL')
    await redis.restart()
    expect(redis.port).toBe(port)
    expect(redis.pid).not.toBe(pid)
    expect(await redisDo(redis.url, 'GET', 'greeting')).toBeNull()
    await redis.stop()
    await redis.stop()
    expect(redis.pid).toBeUndefined()
    expect(isAlive(pid)).toBe(false)
  })

  it('keeps its data over a restart when its arguments make it durable, unless it is to be empty', async () => {
    const redis = await ownRedis(['--appendonly', 'yes', '--appendfsync', 'always'])
    await redisDo(redis.url, 'SET', 'greeting', 'hello')
    redis.kill('SIGKILL')
    await redis.restart()
    expect(await redisDo(redis.url, 'GET', 'greeting')).toBe('hello')
    await redis.restart({ empty: true })
    expect(await redisDo(redis.url, 'GET', 'greeting')).toBeNull()
    await redis.stop()
  })

  it('is stopped although it is frozen', async () => {
    const redis = await ownRedis()
    redis.kill('SIGSTOP')
    expect(await redisAnswers(redis.port)).toBe(false)
    await redis.stop()
    expect(redis.pid).toBeUndefined()
  })

  it('does not start on a port that somebody has, and says what a bad argument was', async () => {
    const redis = await ownRedis()
    await expect(startRedis({ folder: join(folder, 'second'), port: redis.port })).rejects.toThrow('in use')
    await expect(ownRedis(['--no-such-option', '1'])).rejects.toThrow('no-such-option')
    await redis.stop()
  })

  it('ends with the process that started it, even by SIGKILL', async () => {
    const parent = spawn(
      process.execPath,
      ['--import', 'tsx', 'test/support/start-redis.ts', join(folder, 'orphan')],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    )
    const [line] = (await once(parent.stdout, 'data')) as [Buffer]
    const { pid, port } = JSON.parse(line.toString()) as { pid: number; port: number }
    expect(await redisAnswers(port)).toBe(true)
    parent.kill('SIGKILL')
    expect(await until(() => Promise.resolve(!isAlive(pid)), 10_000)).toBe(true)
  })
})

describe('a private MySQL or MariaDB', () => {
  let mysql: Server
  beforeAll(async () => {
    mysql = await ownMysql()
  })
  afterAll(() => mysql.stop())

  it('is also set up with a temporary folder of its own, out of which no other server deletes files', async () => {
    const before = process.env.TMPDIR
    process.env.TMPDIR = join(folder, 'nowhere')
    try {
      const own = await startMysql({ folder: join(folder, 'set-up') })
      await own.stop()
    } finally {
      if (before === undefined) delete process.env.TMPDIR
      else process.env.TMPDIR = before
    }
  }, 120_000)

  it('has an empty utf8mb4 database and commits durably', async () => {
    expect(mysql.url).toMatch(/^mysql:\/\/root@127\.0\.0\.1:\d+\/butler$/)
    const [row] = await query(
      mysql.url,
      'SELECT @@character_set_database AS cs, @@innodb_flush_log_at_trx_commit AS f',
    )
    expect(row).toEqual({ cs: 'utf8mb4', f: 1 })
  })

  it('keeps committed rows over a SIGKILL and a restart on the same port; not when it is to be empty', async () => {
    await query(mysql.url, 'CREATE TABLE notes (id INT PRIMARY KEY)')
    await query(mysql.url, 'INSERT INTO notes VALUES (7)')
    const { port } = mysql
    mysql.kill('SIGKILL')
    await mysql.restart()
    expect(mysql.port).toBe(port)
    expect(await query(mysql.url, 'SELECT id FROM notes')).toEqual([{ id: 7 }])
    await mysql.restart({ empty: true })
    expect(await query(mysql.url, 'SHOW TABLES')).toEqual([])
  })

  it('creates a database only if there is none, and drops only its own', async () => {
    const { url, drop } = await freshDatabase(mysql.url)
    await query(url, 'CREATE TABLE notes (id INT PRIMARY KEY)')
    await ensureDatabase(url)
    expect(await query(url, 'SHOW TABLES')).toHaveLength(1)
    await drop()
    await expect(query(url, 'SELECT 1')).rejects.toThrow('Unknown database')
    await expect(ensureDatabase('mysql://root@127.0.0.1:1/')).rejects.toThrow('names no database')
  })

  it('starts again on the data of an earlier run in the same folder', async () => {
    const options = { folder: join(folder, 'again'), seedFolder: seedFolder() }
    const first = await startMysql(options)
    await query(first.url, 'CREATE TABLE notes (id INT PRIMARY KEY)')
    await first.stop()
    const second = await startMysql(options)
    expect(await query(second.url, 'SHOW TABLES')).toHaveLength(1)
    await second.stop()
    expect((await readdir(options.folder)).sort()).toEqual(['mysql', 'mysql-tmp', 'mysql.log'])
  })
})

describe('findOrStart', () => {
  const log = () => {}

  it('takes what the environment names, leaves it running, and starts only the rest', async () => {
    const theirs = await ownRedis()
    const env = { PATH: process.env.PATH, REDIS_URL: theirs.url, DATABASE_URL: 'postgres://elsewhere/db' }
    const lines: string[] = []
    const servers = await findOrStart({
      folder: join(folder, 'rest'),
      env,
      install: false,
      log: (line) => lines.push(line),
    })
    expect(servers.redis.url).toBe(theirs.url)
    expect(servers.how.redis).toBe('from REDIS_URL')
    expect(() => servers.redis.kill('SIGKILL')).toThrow('not ours')
    await expect(servers.redis.restart({ empty: true })).rejects.toThrow('not ours')
    const { pid } = servers.mysql
    expect(isAlive(pid)).toBe(true)
    expect(lines).toHaveLength(2)
    await servers.stop()
    expect(isAlive(pid)).toBe(false)
    expect(isAlive(theirs.pid)).toBe(true)
    await theirs.stop()
  })

  it('says how to get the servers when there are none', async () => {
    const env = { PATH: '/nowhere', BUTLER_REDIS_BIN: '/nowhere/redis', BUTLER_MYSQLD_BIN: '/nowhere/mysqld' }
    const attempt = findOrStart({ folder: join(folder, 'none'), env, install: false, log })
    await expect(attempt).rejects.toThrow(
      /apt-get install -y --no-install-recommends redis-server mariadb-server/,
    )
  })
})
