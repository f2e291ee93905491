/**
 * Where the servers are and under which prefix: flag, else environment, else default; and which of them it was. Called by
 * every command that talks to a store, so that all of them agree.
 */
import { type Command, Option } from 'commander'
import { createLogger, type Logger } from '../index.ts'

const LEVELS = ['error', 'warn', 'info', 'debug', 'silent'] as const
export type LogLevel = (typeof LEVELS)[number]

/** Flags that commands which talk to a store have in common. */
export interface StoreFlags {
  redis?: string
  mysql?: string
  prefix?: string
  logLevel?: LogLevel
}

/** A value and what gave it: a flag, a variable, or `default`. */
export interface Setting {
  readonly value: string
  readonly from: string
}

export interface Settings {
  readonly redis: Setting
  readonly mysql: Setting
  readonly prefix: Setting
}

type Env = NodeJS.ProcessEnv

const VARIABLES = {
  redis: ['BUTLER_REDIS_URL', 'REDIS_URL'],
  mysql: ['BUTLER_MYSQL_URL', 'MYSQL_URL', 'DATABASE_URL'],
  prefix: ['BUTLER_PREFIX'],
}

const DEFAULT_VALUES = {
  redis: 'redis://127.0.0.1:6379',
  mysql: 'mysql://root@127.0.0.1:3306/butler',
  prefix: 'butler',
}

export type SettingName = keyof typeof VARIABLES

export function readSettings(flags: StoreFlags, env: Env = process.env): Settings {
  const pick = (name: SettingName): Setting => {
    const flag = flags[name]
    if (flag !== undefined) return { value: flag, from: `--${name}` }
    return fromEnvironment(name, env) ?? { value: DEFAULT_VALUES[name], from: 'default' }
  }
  return { redis: pick('redis'), mysql: pick('mysql'), prefix: pick('prefix') }
}

/** The first variable that is set. DATABASE_URL is everybody's and often names another kind of database. */
export function fromEnvironment(name: SettingName, env: Env): Setting | undefined {
  const variable = VARIABLES[name].find((candidate) => {
    const value = env[candidate] ?? ''
    return candidate === 'DATABASE_URL' ? /^(mysql|mariadb):/.test(value) : value !== ''
  })
  return variable === undefined ? undefined : { value: String(env[variable]), from: variable }
}

export function withStoreFlags(command: Command): Command {
  return command
    .option('--redis <url>', 'Redis; else BUTLER_REDIS_URL or REDIS_URL')
    .option('--mysql <url>', 'MySQL or MariaDB; else BUTLER_MYSQL_URL, MYSQL_URL or DATABASE_URL')
    .option('--prefix <prefix>', 'of keys and channels in Redis; else BUTLER_PREFIX')
    .addOption(new Option('--log-level <level>', 'of the log lines on stderr').choices(LEVELS))
}

/** Connections and a logger, as the library takes them. */
export function connectionsOf(
  flags: StoreFlags,
  defaultLevel: LogLevel = 'warn',
): { redis: string; mysql: string; prefix: string; logger: Logger } {
  const { redis, mysql, prefix } = readSettings(flags)
  const logger = createLogger({ level: flags.logLevel ?? defaultLevel })
  return { redis: redis.value, mysql: mysql.value, prefix: prefix.value, logger }
}

/** A URL without its password, also when it is malformed. */
export const withoutPassword = (url: string): string =>
  url
    .replace(/(:\/\/[^:@/]*):.*@/, '$1:***@')
    .replace(/(password=)[^&]*/gi, '$1***')
