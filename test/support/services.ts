// What a test may use of the servers: a database and a key prefix of its own on the shared ones, or whole servers of its
// own, which it may kill, freeze, flush and empty. Nothing here ever touches what it has not made: the shared servers
// may be somebody's.
import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { createConnection } from 'mysql2/promise'
import { customAlphabet } from 'nanoid'
import { inject } from 'vitest'
import { isFree } from '../../src/cli/probes.ts'
import { ensureDatabase, startMysql, startRedis, type Server } from '../../src/cli/servers.ts'

export { freeze } from './freeze.ts'

/** Lower case only: it goes into database names, which some file systems fold. */
const random = customAlphabet('0123456789abcdefghijklmnopqrstuvwxyz', 12)

/** The servers this run shares. */
export function services(): { redisUrl: string; mysqlUrl: string } {
  return { redisUrl: inject('redisUrl'), mysqlUrl: inject('mysqlUrl') }
}

/** Where everything of this run lies; removed when it ends. */
export const runFolder = (): string => inject('runFolder')

/** An empty database of our own on the shared MySQL (or on `serverUrl`). */
export async function freshDatabase(
  serverUrl: string = services().mysqlUrl,
): Promise<{ url: string; drop: () => Promise<void> }> {
  const name = `butler_test_${random()}`
  const url = new URL(serverUrl)
  url.pathname = `/${name}`
  await ensureDatabase(url.href)
  const drop = async () => {
    const connection = await createConnection({ uri: url.href })
    try {
      await connection.query('DROP DATABASE IF EXISTS ??', [name])
    } finally {
      await connection.end()
    }
  }
  return { url: url.href, drop }
}

/** A prefix no other test uses, for keys and channels on the shared Redis. */
export const freshPrefix = (): string => `test-${random()}`

let lastPort = 0

/** From a range of this test process: nobody is to take the port of a server that is down for now. */
async function ownPort(): Promise<number> {
  for (;;) {
    const port = 20_000 + (Number(process.env.VITEST_POOL_ID) % 4) * 3_000 + (lastPort++ % 3_000)
    if (await isFree(port)) return port
  }
}

/** A Redis that only this test uses. Stop it in the end; should the test not get that far, it ends with the process. */
export const ownRedis = (args: string[] = []): Promise<Server> =>
  inOwnFolder(async (folder) => startRedis({ folder, args, port: await ownPort() }))

/** An initialised data folder to copy, made by whoever starts a MySQL first. */
export const seedFolder = (): string => join(runFolder(), 'seed')

/** A MySQL or MariaDB that only this test uses; see ownRedis. */
export const ownMysql = (args: string[] = []): Promise<Server> =>
  inOwnFolder(async (folder) => startMysql({ folder, args, seedFolder: seedFolder(), port: await ownPort() }))

async function inOwnFolder(start: (folder: string) => Promise<Server>): Promise<Server> {
  const folder = await mkdtemp(join(runFolder(), 'own-'))
  const remove = () => rm(folder, { recursive: true, force: true })
  try {
    const server = await start(folder)
    const stop = server.stop.bind(server)
    server.stop = async () => {
      await stop()
      await remove()
    }
    return server
  } catch (error) {
    await remove()
    throw error
  }
}
