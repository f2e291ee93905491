/** Which environment variables name the servers and the prefix, for everything in this folder. Imports nothing. */

export type SettingName = 'redis' | 'mysql' | 'prefix'

/** A value and what gave it: a flag, a variable, or `default`. */
export interface Setting {
  readonly value: string
  readonly from: string
}

const VARIABLES: Record<SettingName, readonly string[]> = {
  redis: ['BUTLER_REDIS_URL', 'REDIS_URL'],
  mysql: ['BUTLER_MYSQL_URL', 'MYSQL_URL', 'DATABASE_URL'],
  prefix: ['BUTLER_PREFIX'],
}

/** The first variable that is set. DATABASE_URL is everybody's and often names another kind of database. */
export function fromEnvironment(name: SettingName, env: NodeJS.ProcessEnv): Setting | undefined {
  const variable = VARIABLES[name].find((candidate) => {
    const value = env[candidate] ?? ''
    return candidate === 'DATABASE_URL' ? /^(mysql|mariadb):/.test(value) : value !== ''
  })
  return variable === undefined ? undefined : { value: String(env[variable]), from: variable }
}
