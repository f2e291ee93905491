/** The two stores as a client or a worker uses them: opened together, closed together. Only wires. */
import { InvalidInputError } from '../base/errors.ts'
import { resolveTunables, type Tunables, type TunablesInput } from '../base/options.ts'
import { checkLogger, createLogger, type Logger, Telemetry } from '../base/telemetry.ts'
import { connectMysql, type Mysql, type MysqlSource } from '../mysql/connect.ts'
import { Inbox } from '../mysql/inbox.ts'
import { Ledger } from '../mysql/ledger.ts'
import { connectRedis, type RedisClient, type RedisConnection } from '../redis/connect.ts'
import { Keys } from '../redis/keys.ts'
import { Publisher } from '../redis/wake.ts'

/** What a client and a worker have in common. */
export interface Connections extends TunablesInput {
  /** `redis://`, `rediss://` or Sentinel URL, or an ioredis client, which is duplicated and left alone. */
  readonly redis: string | RedisClient
  /** `mysql://user:password@host:port/database`, or a mysql2 pool, which is used and never ended. */
  readonly mysql: MysqlSource
  /** A pino logger; `false` for none. Default: lines of level `warn` and above on stderr. */
  readonly logger?: Logger | false | undefined
}

export interface Stores {
  readonly tunables: Tunables
  readonly telemetry: Telemetry
  readonly mysql: Mysql
  readonly redis: RedisConnection
  readonly keys: Keys
  readonly ledger: Ledger
  readonly inbox: Inbox
  readonly publisher: Publisher
  close(): Promise<void>
}

/** Connects in the background. Throws InvalidInputError for options or URLs that cannot be meant. */
export function openStores(connections: Connections): Stores {
  if (typeof connections !== 'object' || connections === null) {
    throw new InvalidInputError('INVALID_OPTIONS', 'Options are an object: { redis, mysql, … }.')
  }
  const { redis: redisSource, mysql: mysqlSource, logger, ...rest } = connections
  checkLogger(logger)
  const tunables = resolveTunables(rest)
  const telemetry = new Telemetry(logger ?? createLogger({ level: 'warn' }))
  const mysqlTrouble = (error: unknown) => telemetry.emit('mysql.trouble', { error })
  const mysql = connectMysql(mysqlSource, {
    poolSize: tunables.mysqlPoolSize,
    timeoutMs: tunables.mysqlTimeoutMs,
    onTrouble: mysqlTrouble,
  })
  let redis: RedisConnection
  try {
    redis = connectRedis(redisSource, {
      timeoutMs: tunables.redisTimeoutMs,
      onTrouble: (error) => telemetry.emit('redis.trouble', { error }),
      onReady: () => telemetry.emit('redis.ready', {}),
    })
  } catch (error) {
    // Half open would keep the process alive.
    void mysql.close()
    throw error
  }
  const keys = new Keys(tunables.prefix)
  const publisher = new Publisher(redis.commands, keys)
  const onWritten = (ids: string[]) => {
    // A hint for whoever watches; what is lost here is found by the watchers' own looks.
    publisher.changed(ids).catch((error: unknown) => telemetry.emit('redis.trouble', { error }))
  }
  return {
    tunables,
    telemetry,
    mysql,
    redis,
    keys,
    ledger: new Ledger(mysql, { onTrouble: mysqlTrouble, onWritten }),
    inbox: new Inbox(mysql, { queueMax: tunables.queueMax, onTrouble: mysqlTrouble }),
    publisher,
    close: async () => {
      await Promise.all([redis.close(), mysql.close()])
    },
  }
}
