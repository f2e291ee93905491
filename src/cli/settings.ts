/**
 * Where the servers are and under which prefix: flag, else environment, else default; and which of them it was. Called by
 * every command that talks to a store, so that all of them agree.
 */
import { type Command, Option } from 'commander'
import { createLogger, type Logger } from '../index.ts'
import { fromEnvironment, type Setting, type SettingName } from './environment.ts'

const LEVELS = ['error', 'warn', 'info', 'debug', 'silent'] as const
export type LogLevel = (typeof LEVELS)[number]

/** Flags that commands which talk to a store have in common. */
export interface StoreFlags {
  redis?: string
  mysql?: string
  prefix?: string
  logLevel?: LogLevel
}

export interface Settings {
  readonly redis: Setting
  readonly mysql: Setting
  readonly prefix: Setting
}

const DEFAULT_VALUES = {
  redis: 'redis://127.0.0.1:6379',
  mysql: 'mysql://root@127.0.0.1:3306/butler',
  prefix: 'butler',
}

export function readSettings(flags: StoreFlags, env: NodeJS.ProcessEnv = process.env): Settings {
  const pick = (name: SettingName): Setting => {
    const flag = flags[name]
    if (flag !== undefined) return { value: flag, from: `--${name}` }
    return fromEnvironment(name, env) ?? { value: DEFAULT_VALUES[name], from: 'default' }
  }
  return { redis: pick('redis'), mysql: pick('mysql'), prefix: pick('prefix') }
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
  url.replace(/(:\/\/[^:@/]*):.*@/, '$1:***@').replace(/(password=)[^&]*/gi, '$1***')
