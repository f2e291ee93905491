// A private server for fault tests, with one table `things`, and the questions those tests ask. Call `faultServer` once
// per file, outside of tests.
import { sql, type Kysely } from 'kysely'
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest'
import { connectMysql, type Mysql, type MysqlOptions } from '../../src/mysql/connect.ts'
import { ownMysql } from '../support/services.ts'

type Db = Pick<Kysely<never>, 'getExecutor'>

export function faultServer() {
  const opened: Mysql[] = []
  const at = {} as { server: Awaited<ReturnType<typeof ownMysql>>; admin: Mysql }

  beforeAll(async () => {
    at.server = await ownMysql(['--max-allowed-packet=1M'])
    at.admin = connectMysql(at.server.url, { timeoutMs: 20_000 })
    await sql`create table things (id int primary key, body longtext) engine = innodb`.execute(at.admin.db)
    const schema = sql.id(new URL(at.server.url).pathname.slice(1))
    for (const host of ['localhost', '%']) {
      const app = sql`app@${sql.lit(host)}`
      await sql`create user ${app} identified by ''`.execute(at.admin.db)
      await sql`grant select, insert, update, delete on ${schema}.* to ${app}`.execute(at.admin.db)
    }
  })
  beforeEach(() => sql`delete from things`.execute(at.admin.db))
  afterEach(() => Promise.all(opened.splice(0).map((mysql) => mysql.close())))
  afterAll(async () => {
    await at.admin.close()
    await at.server.stop()
  })

  return Object.assign(at, {
    /** One connection, so that the next user gets the same one unless it was dropped. */
    open(options: MysqlOptions = {}, url = at.server.url): Mysql {
      const mysql = connectMysql(url, { poolSize: 1, timeoutMs: 2000, ...options })
      opened.push(mysql)
      return mysql
    },
    async ids(): Promise<number[]> {
      const { rows } = await sql<{ id: number }>`select id from things order by id`.execute(at.admin.db)
      return rows.map(({ id }) => id)
    },
    kill: (id: number) => sql`kill ${sql.lit(id)}`.execute(at.admin.db),
  })
}

export const add = (db: Db, id: number, body = 'x') =>
  sql`insert into things values (${id}, ${body})`.execute(db as Kysely<never>)

export async function connectionId(db: Db): Promise<number> {
  const { rows } = await sql<{ id: number }>`select connection_id() as id`.execute(db as Kysely<never>)
  return rows[0]?.id ?? 0
}

export const failure = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => expect.unreachable('it should have failed'),
    (error: unknown) => error,
  )
