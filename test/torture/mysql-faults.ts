// What happens to MySQL itself.
import type { Connection, QueryOptions } from 'mysql2/promise'
import { freeze } from '../support/freeze.ts'
import type { Fault } from './fault.ts'

export const mysqlFaults: readonly Fault[] = [
  {
    name: 'mysql-kill',
    weight: 1,
    lasts: [0.05, 1],
    costs: 'none',
    silences: true,
    begin: ({ options: { servers } }) => {
      servers.mysql.kill('SIGKILL')
      return () => servers.mysql.restart()
    },
  },
  {
    name: 'mysql-freeze',
    weight: 2,
    lasts: [0.05, 1.5],
    costs: 'none',
    silences: true,
    begin: async ({ options: { servers } }) => {
      await freeze(servers.mysql)
      return () => servers.mysql.kill('SIGCONT')
    },
  },
  {
    name: 'mysql-readonly',
    weight: 1,
    lasts: [0.1, 1],
    costs: 'none',
    begin: async ({ options: { servers } }) => {
      await servers.sql('set global read_only = 1')
      return () => servers.sql('set global read_only = 0')
    },
  },
  {
    name: 'mysql-connections',
    weight: 2,
    lasts: [0, 0],
    costs: 'none',
    begin: async ({ options: { servers } }, dice) => {
      const threads = await servers.sql<{ id: number }>(
        "select id from information_schema.processlist where user = 'butler' order by id",
      )
      const kill = ({ id }: { id: number }) =>
        servers.sql('kill ?', [id]).then(
          () => true,
          () => false,
        )
      let killed = false
      for (const thread of threads) if (dice.chance(0.5)) killed = (await kill(thread)) || killed
      return killed ? undefined : false
    },
  },
  {
    // Somebody's transaction holds the rows of a few sessions.
    name: 'mysql-rows',
    weight: 2,
    lasts: [0.1, 2.5],
    costs: 'none',
    begin: async ({ database, options: { servers, sessions } }, dice) => {
      const held = Array.from({ length: 3 }, () => dice.pick(sessions))
      return holding(await servers.sqlConnection(database), [
        'begin',
        { sql: 'select id from butler_sessions where id in (?) order by id for update', values: [held] },
      ])
    },
  },
  {
    // What a backup does: for a while nobody may write.
    name: 'mysql-lock',
    weight: 1,
    lasts: [0.05, 1],
    costs: 'none',
    begin: async ({ options: { servers } }) => {
      return holding(await servers.sqlConnection(), ['flush tables with read lock'])
    },
  },
]

/** What the statements lock is locked until it is healed; not at all if they do not succeed in time. */
async function holding(connection: Connection, statements: readonly (string | QueryOptions)[]) {
  const heal = () => connection.destroy()
  try {
    for (const one of statements)
      await connection.query({ timeout: 3000, ...(typeof one === 'string' ? { sql: one } : one) })
    return heal
  } catch (error) {
    heal()
    throw error
  }
}
