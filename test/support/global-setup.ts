// One Redis and one MySQL-family server for the whole run: those that REDIS_URL and MYSQL_URL name, else private ones
// from local programs (installed first on a bare Debian as root), else containers (BUTLER_TEST_CONTAINERS=1 goes
// straight to those).
// Files share them and stay apart by freshDatabase() and freshPrefix() of services.ts.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { findBinary, type Kind } from '../../src/cli/private-servers.ts'
import { advice, installPackages, startMysql, startRedis } from '../../src/cli/servers.ts'
import { bundle } from './bundle.ts'
import { PROBE_WORKER } from './fleet.ts'

interface Running {
  url: string
  stop(): Promise<unknown>
}

declare module 'vitest' {
  export interface ProvidedContext {
    redisUrl: string
    mysqlUrl: string
    /** Where everything of this run lies; removed when it ends. */
    runFolder: string
    /** Where the programs of the tests are bundled; see bundle.ts. */
    code: string
  }
}

export default async function setup({ provide }: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(join(tmpdir(), 'butler-test-'))
  const started: Running[] = []
  const teardown = async () => {
    await Promise.all(started.map((server) => server.stop()))
    // Retries, because a server that a failed test left behind may still be ending.
    await rm(folder, { recursive: true, force: true, maxRetries: 10 })
  }
  const keep = (server: Running): string => {
    started.push(server)
    return server.url
  }
  const containers = process.env.BUTLER_TEST_CONTAINERS === '1'
  const isLocal = (kind: Kind) => !containers && findBinary(kind)
  try {
    if (!containers) await installMissing()
    const redisUrl =
      process.env.REDIS_URL || keep(isLocal('redis') ? await startRedis({ folder }) : await redisContainer())
    const mysqlUrl =
      process.env.MYSQL_URL ||
      keep(
        isLocal('mysql')
          ? await startMysql({ folder, seedFolder: join(folder, 'seed') })
          : await mysqlContainer(),
      )
    const code = join(folder, 'code')
    await bundle(code, [PROBE_WORKER])
    provide('code', code)
    provide('redisUrl', redisUrl)
    provide('mysqlUrl', mysqlUrl)
    provide('runFolder', folder)
    return teardown
  } catch (error) {
    await teardown()
    throw error
  }
}

/** What neither the environment nor this machine has: a package can bring it, or containers can stand in. */
async function installMissing(): Promise<void> {
  const { REDIS_URL, MYSQL_URL } = process.env
  const missing = [...(REDIS_URL ? [] : ['redis' as const]), ...(MYSQL_URL ? [] : ['mysql' as const])]
  const kinds = missing.filter((kind) => !findBinary(kind))
  const log = (line: string) => void process.stderr.write(`${line}\n`)
  if (kinds.length === 0 || (await installPackages(kinds, process.env, log))) return
  const { getContainerRuntimeClient } = await import('testcontainers')
  await getContainerRuntimeClient().catch(() => {
    throw new Error(advice(kinds, process.env))
  })
}

async function redisContainer(): Promise<Running> {
  const { GenericContainer } = await import('testcontainers')
  const container = await new GenericContainer('redis:8').withExposedPorts(6379).start()
  const url = `redis://${container.getHost()}:${container.getMappedPort(6379)}`
  return { url, stop: () => container.stop() }
}

async function mysqlContainer(): Promise<Running> {
  const { GenericContainer, Wait } = await import('testcontainers')
  const container = await new GenericContainer('mysql:9.7')
    .withEnvironment({ MYSQL_ALLOW_EMPTY_PASSWORD: 'yes', MYSQL_DATABASE: 'butler' })
    .withExposedPorts(3306)
    // By TCP: during its first start the image runs a server without a network that is not yet the real one.
    .withHealthCheck({
      test: ['CMD', 'mysqladmin', 'ping', '-h', '127.0.0.1', '-u', 'root'],
      interval: 1_000,
      timeout: 5_000,
      retries: 60,
    })
    .withWaitStrategy(Wait.forHealthCheck())
    .start()
  const url = `mysql://root@${container.getHost()}:${container.getMappedPort(3306)}/butler`
  return { url, stop: () => container.stop() }
}
