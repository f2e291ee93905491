// What happens to MySQL itself.
import { freeze } from '../support/freeze.ts'
import type { Fault } from './fault.ts'

export const mysqlFaults: readonly Fault[] = [
  {
    name: 'mysql-kill',
    weight: 1,
    lasts: [0.05, 1],
    costs: 'none',
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
      for (const { id } of threads)
        if (dice.chance(0.5)) await servers.sql('kill ?', [id]).catch(() => undefined)
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
      const connection = await servers.sqlConnection(database)
      await connection.query('begin')
      await connection.query({
        sql: 'select id from butler_sessions where id in (?) order by id for update',
        values: [held],
        timeout: 3000,
      })
      return () => connection.destroy()
    },
  },
  {
    // What a backup does: for a while nobody may write.
    name: 'mysql-lock',
    weight: 1,
    lasts: [0.05, 1],
    costs: 'none',
    begin: async ({ options: { servers } }) => {
      const connection = await servers.sqlConnection()
      await connection.query({ sql: 'flush tables with read lock', timeout: 3000 })
      return () => connection.destroy()
    },
  },
]
