/**
 * Servers finds the Redis and the MySQL that `butler dev`, the demo and the tests need, or starts them: from the
 * environment, else local programs, else Docker, else (when asked to) from Debian's packages.
 *
 * What was found is used as it is and never ended; what was started here is ended by `stop`, and nothing else is.
 */
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { fromEnvironment } from './environment.ts'
import { findBinary, run, startMysql, startRedis, type Kind, type Server } from './private-servers.ts'
import { freePort, mysqlAnswers, redisAnswers, until } from './probes.ts'

export { startMysql, startRedis, type Server } from './private-servers.ts'
export { ensureDatabase } from './probes.ts'

type Env = NodeJS.ProcessEnv
type Log = (line: string) => void

const KINDS = ['redis', 'mysql'] as const
const DEBIAN_PACKAGES = { redis: 'redis-server', mysql: 'mariadb-server' }
const COMPOSE_FILE = fileURLToPath(new URL('../../docker-compose.yml', import.meta.url))

export async function findOrStart(options: {
  /** Where private servers keep their data and logs. */
  folder: string
  env: Env
  /** Whether packages may be installed. */
  install: boolean
  log: Log
}): Promise<{ redis: Server; mysql: Server; how: Record<Kind, string>; stop: () => Promise<void> }> {
  const { folder, env, install, log } = options
  const found: Partial<Record<Kind, Server>> = {}
  const how = { redis: '', mysql: '' }
  const missing = () => KINDS.filter((kind) => !found[kind])
  const take = (server: Server, from: string) => {
    found[server.kind] = server
    how[server.kind] = from
    log(`${server.kind}: ${from}`)
  }
  const stop = async () => void (await Promise.all(Object.values(found).map((server) => server.stop())))
  const startLocal = async () => {
    for (const kind of missing()) {
      const binary = findBinary(kind, env)
      if (!binary) continue
      const server = await (kind === 'redis' ? startRedis : startMysql)({ folder, binary })
      take(server, `${binary} on port ${server.port}, data in ${folder}`)
    }
  }
  try {
    for (const kind of KINDS) {
      const named = fromEnvironment(kind, env)
      if (named) take(foreign(kind, named.value), `from ${named.from}`)
    }
    await startLocal()
    if (missing().length > 0) await startCompose(missing(), env, log, take)
    if (missing().length > 0 && install && (await installPackages(missing(), env, log))) await startLocal()
    const { redis, mysql } = found
    if (!redis || !mysql) throw new Error(advice(missing(), env))
    return { redis, mysql, how, stop }
  } catch (error) {
    await stop()
    throw error
  }
}

/** A server that is not our process: used as it is. */
function foreign(kind: Kind, url: string, stop: () => Promise<void> = () => Promise.resolve()): Server {
  // A Sentinel URL names several hosts, which to `URL` is none.
  const port = Number(URL.canParse(url) && new URL(url).port) || (kind === 'redis' ? 6379 : 3306)
  const refuse = () => {
    throw new Error(`The ${kind} on port ${port} is not ours to kill or restart; only a private server is.`)
  }
  return { kind, url, port, stop, kill: refuse, restart: async () => refuse() }
}

/** Starts what is missing from docker-compose.yml, if there is a Docker that runs. */
async function startCompose(
  kinds: Kind[],
  env: Env,
  log: Log,
  take: (server: Server, from: string) => void,
): Promise<void> {
  const compose = await findCompose(env)
  if (!compose) return
  const runs = (await compose('ps', '--services', '--filter', 'status=running')).split('\n')
  log(`docker: starting ${kinds.join(' and ')}; the first time this downloads images`)
  for (const kind of kinds) {
    // Containers that exist keep the port they were made with, hence the question afterwards.
    await compose('up', '-d', '--no-recreate', kind)
    const port = (await compose('port', kind, kind === 'redis' ? '6379' : '3306')).trim().split(':').pop()
    const url = kind === 'redis' ? `redis://127.0.0.1:${port}` : `mysql://root@127.0.0.1:${port}/butler`
    const stop = async () => void (await compose('stop', kind))
    take(foreign(kind, url, runs.includes(kind) ? undefined : stop), `Docker on port ${port}`)
    const answers = () => (kind === 'redis' ? redisAnswers(Number(port)) : mysqlAnswers(url))
    if (!(await until(answers, 120_000)))
      throw new Error(`${kind} in Docker does not answer on port ${port}.`)
  }
}

async function findCompose(env: Env): Promise<((...args: string[]) => Promise<string>) | undefined> {
  const ports = { BUTLER_REDIS_PORT: `${await freePort()}`, BUTLER_MYSQL_PORT: `${await freePort()}` }
  const project = ['--project-name', 'butler-dev', '--file', COMPOSE_FILE]
  for (const [program, ...first] of [['docker', 'compose'], ['docker-compose']] as const) {
    const compose = async (...args: string[]) =>
      (await run(program, [...first, ...project, ...args], { env: { ...ports, ...env } })).stdout
    try {
      await compose('ps') // fails without the program, without the plugin, and without an engine that runs
      return compose
    } catch {
      continue
    }
  }
  return undefined
}

/**
 * Private servers only need the programs, so the packages are kept from starting services. A shell does it, because it
 * outlives us: a policy left behind by whoever was interrupted would forbid the machine every service from then on.
 * A fresh machine may be busy with upgrades of its own, hence the waiting for the lock.
 */
const INSTALL = `
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap 'rm -f $policy' EXIT
  trap 'exit 130' HUP INT TERM
  printf '#!/bin/sh\\nexit 101\\n' > $policy && chmod 755 $policy
fi
apt-get update
apt-get -o DPkg::Lock::Timeout=300 install "$@"
`

/** On Debian as root; false elsewhere. */
export async function installPackages(kinds: Kind[], env: Env, log: Log): Promise<boolean> {
  if (!existsSync('/etc/debian_version') || process.getuid?.() !== 0) return false
  const args = aptArguments(kinds)
  log(`running: apt-get update; apt-get install ${args.join(' ')}`)
  await run('/bin/sh', ['-c', INSTALL, 'sh', ...args], {
    env: { ...env, DEBIAN_FRONTEND: 'noninteractive' },
    maxBuffer: 64 * 1024 ** 2,
  }).catch(({ stderr }: { stderr: string }) => {
    throw new Error(`apt-get failed:\n${stderr}\n${advice(kinds, env)}`)
  })
  return true
}

const aptArguments = (kinds: Kind[]): string[] => [
  '-y',
  '--no-install-recommends',
  ...kinds.map((kind) => DEBIAN_PACKAGES[kind]),
]

/** How to get what is missing. */
export function advice(kinds: Kind[], env: Env): string {
  const broken = [env.BUTLER_REDIS_BIN, env.BUTLER_MYSQLD_BIN].filter((path) => path)
  const urls = { redis: 'redis://127.0.0.1:6379', mysql: 'mysql://root@127.0.0.1:3306/butler' }
  const exports = kinds.map((kind) => `export ${kind.toUpperCase()}_URL=${urls[kind]}`)
  return [
    `No ${kinds.map((kind) => (kind === 'redis' ? 'Redis' : 'MySQL or MariaDB')).join(' and no ')} was found.`,
    ...(broken.length > 0 ? [`(BUTLER_REDIS_BIN and BUTLER_MYSQLD_BIN name: ${broken.join(', ')})`] : []),
    'Any one of these will do:',
    `  Debian, Ubuntu:  sudo apt-get update && sudo apt-get install ${aptArguments(kinds).join(' ')}`,
    `  macOS:           brew install ${kinds.map((kind) => (kind === 'redis' ? 'redis' : 'mariadb')).join(' ')}`,
    `  Docker:          docker compose -f ${COMPOSE_FILE} up -d   (then the exports below)`,
    `  your own:        ${exports.join('; ')}`,
  ].join('\n')
}
