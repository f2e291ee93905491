/** Where the programs of the two servers are: named by the environment, else on PATH. For `private-servers.ts`. */
import { accessSync, constants, statSync } from 'node:fs'
import { dirname, join } from 'node:path'

export type Kind = 'redis' | 'mysql'

const BINARIES = {
  redis: { variable: 'BUTLER_REDIS_BIN', names: ['redis-server'] },
  mysql: { variable: 'BUTLER_MYSQLD_BIN', names: ['mariadbd', 'mysqld'] },
}

/** The server program named by the environment, else the first one on PATH. */
export function findBinary(kind: Kind, env: NodeJS.ProcessEnv = process.env): string | undefined {
  const { variable, names } = BINARIES[kind]
  const named = env[variable]
  if (named) return isProgram(named) ? named : undefined
  // mysqld lives in /usr/sbin, which is on root's PATH only.
  const folders = [...(env.PATH ?? '').split(':'), '/usr/sbin', '/usr/local/sbin']
  return names.flatMap((name) => folders.map((folder) => join(folder, name))).find(isProgram)
}

export function needBinary(kind: Kind): string {
  const binary = findBinary(kind)
  if (binary) return binary
  const { variable, names } = BINARIES[kind]
  throw new Error(`No ${names.join(' or ')} on PATH. Install one, or name it in ${variable}.`)
}

export function needInstaller(mariadbd: string): string {
  const folders = [dirname(mariadbd), ...(process.env.PATH ?? '').split(':')]
  const installer = folders.map((folder) => join(folder, 'mariadb-install-db')).find(isProgram)
  if (!installer) throw new Error(`mariadb-install-db, which belongs to ${mariadbd}, is not on PATH.`)
  return installer
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}
