// What the points of one lane use one after the other: a database, emptied in between, and a connection to look at it.
import { createConnection, type Connection, type RowDataPacket } from 'mysql2/promise'
import { ensureDatabase } from '../../src/cli/servers.ts'
import { connectMysql } from '../../src/mysql/connect.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'

const TABLES = ['butler_entries', 'butler_messages', 'butler_sessions']

export class Ground {
  readonly redisUrl: string
  readonly mysqlUrl: string
  readonly #connection: Connection

  private constructor(redisUrl: string, mysqlUrl: string, connection: Connection) {
    this.redisUrl = redisUrl
    this.mysqlUrl = mysqlUrl
    this.#connection = connection
  }

  /** `database`: a name that nobody else uses. */
  static async prepare(servers: { redisUrl: string; mysqlUrl: string }, database: string): Promise<Ground> {
    const url = new URL(servers.mysqlUrl)
    url.pathname = `/${database}`
    await ensureDatabase(url.href)
    const mysql = connectMysql(url.href, { timeoutMs: 20_000 })
    await migrateUp(mysql.db)
    await mysql.close()
    return new Ground(servers.redisUrl, url.href, await createConnection({ uri: url.href }))
  }

  async sql<Row = Record<string, unknown>>(text: string, values: unknown[] = []): Promise<Row[]> {
    const [rows] = await this.#connection.query<RowDataPacket[]>(text, values)
    return rows as unknown as Row[]
  }

  async clear(): Promise<void> {
    for (const table of TABLES) await this.#connection.query('delete from ??', [table])
  }

  async close(): Promise<void> {
    await this.#connection.query('drop database ??', [new URL(this.mysqlUrl).pathname.slice(1)])
    await this.#connection.end()
  }
}
