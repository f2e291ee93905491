// The servers of a campaign: two Redis, one following the other, and one MySQL, all private. They may be killed, frozen,
// emptied, made read-only and failed over; questions of the rig's own go straight to them, each over a connection of
// its own, so that no fault outlives in a connection of ours.
import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { createConnection, type RowDataPacket } from 'mysql2/promise'
import { startMysql, startRedis, type Server } from '../../src/cli/servers.ts'

const PATIENCE_MS = 3000

export class Servers {
  readonly mysql: Server
  #redis: readonly [leader: PairMember, follower: PairMember]

  private constructor(mysql: Server, redis: readonly [PairMember, PairMember]) {
    this.mysql = mysql
    this.#redis = redis
  }

  static async start(folder: string): Promise<Servers> {
    const member = async (name: string): Promise<PairMember> => {
      const data = join(folder, name)
      await mkdir(data, { recursive: true })
      const server = await startRedis({ folder: data, args: ['--repl-diskless-sync-delay', '0'] })
      return { server, snapshot: join(data, 'redis', 'dump.rdb') }
    }
    const started = await Promise.allSettled([startMysql({ folder }), member('one'), member('two')])
    const failed = started.find((one) => one.status === 'rejected')
    const [mysql, one, two] = started.map((each) => (each.status === 'fulfilled' ? each.value : undefined))
    if (failed || !mysql || !one || !two) {
      await Promise.all([(mysql as Server)?.stop(), (one as PairMember)?.server.stop()])
      throw new Error('The servers did not start.', { cause: failed?.reason })
    }
    const servers = new Servers(mysql as Server, [one as PairMember, two as PairMember])
    await servers.follow()
    // Whoever is root may write to a read-only server: the system under test is not.
    for (const host of ['%', 'localhost']) {
      await servers.sql(`create user if not exists 'butler'@'${host}'`)
      await servers.sql(`grant all on \`butler\\_%\`.* to 'butler'@'${host}'`)
    }
    return servers
  }

  get redis(): Server {
    return this.#redis[0].server
  }

  get follower(): Server {
    return this.#redis[1].server
  }

  get redisUrl(): string {
    return this.redis.url
  }

  /** As the system under test connects. */
  mysqlUrl(database: string): string {
    return `mysql://butler@127.0.0.1:${this.mysql.port}/${database}`
  }

  /** Asks the leading Redis. Rejects when it does not answer in time. */
  ask(...command: readonly (string | number)[]): Promise<unknown> {
    return askRedis(this.redis, command)
  }

  askFollower(...command: readonly (string | number)[]): Promise<unknown> {
    return askRedis(this.follower, command)
  }

  /** As root. Rejects when there is no answer in time. */
  async sql<Row = Record<string, unknown>>(text: string, values: unknown[] = []): Promise<Row[]> {
    const connection = await this.sqlConnection()
    try {
      const [rows] = await connection.query<RowDataPacket[]>({ sql: text, timeout: PATIENCE_MS }, values)
      return rows as unknown as Row[]
    } finally {
      connection.destroy()
    }
  }

  async sqlConnection(database?: string) {
    const connection = await createConnection({
      host: '127.0.0.1',
      port: this.mysql.port,
      user: 'root',
      connectTimeout: PATIENCE_MS,
      ...(database ? { database } : {}),
    })
    // Raised when its server is killed while it is idle.
    connection.on('error', () => undefined)
    return connection
  }

  /** The follower follows (again). */
  follow(): Promise<unknown> {
    return this.askFollower('REPLICAOF', '127.0.0.1', this.redis.port)
  }

  /** The follower leads from now on, and the leader follows as soon as it can. */
  async promote(): Promise<void> {
    await this.askFollower('REPLICAOF', 'NO', 'ONE')
    this.#redis = [this.#redis[1], this.#redis[0]]
  }

  /** What the leading Redis knows is kept, to come back with the next restart. */
  async snapshot(): Promise<void> {
    await this.ask('SAVE')
  }

  /** Kills the leading Redis; it comes back with its last snapshot if there is one, else with nothing. */
  async restartRedis(): Promise<void> {
    this.redis.kill('SIGKILL')
    await this.redis.restart()
    await rm(this.#redis[0].snapshot, { force: true })
  }

  async stop(): Promise<void> {
    await Promise.all([this.mysql.stop(), ...this.#redis.map(({ server }) => server.stop())])
  }
}

interface PairMember {
  readonly server: Server
  readonly snapshot: string
}

async function askRedis(
  server: Server,
  [name = '', ...args]: readonly (string | number)[],
): Promise<unknown> {
  const redis = new Redis(server.url, {
    connectTimeout: PATIENCE_MS,
    commandTimeout: PATIENCE_MS,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
  })
  redis.on('error', () => undefined)
  try {
    return await redis.call(String(name), ...args)
  } finally {
    redis.disconnect()
  }
}
