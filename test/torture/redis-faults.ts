// What happens to Redis itself.
import { freeze } from '../support/freeze.ts'
import type { Fault } from './fault.ts'
import type { Proxy } from '../support/proxy.ts'
import type { Stage } from './stage.ts'

export const redisFaults: readonly Fault[] = [
  {
    name: 'redis-kill',
    weight: 2,
    lasts: [0.05, 1.5],
    costs: 'none',
    silences: true,
    begin: ({ options: { servers } }) => {
      servers.redis.kill('SIGKILL')
      return () => servers.restartRedis()
    },
  },
  {
    // Everything it learnt since the fault's begin is forgotten when it is healed.
    name: 'redis-old',
    weight: 1,
    lasts: [0.3, 2],
    costs: 'none',
    begin: async ({ options: { servers } }) => {
      await servers.snapshot()
      return () => servers.restartRedis()
    },
  },
  {
    name: 'redis-freeze',
    weight: 2,
    lasts: [0.05, 2],
    costs: 'none',
    silences: true,
    begin: async ({ options: { servers } }) => {
      const server = servers.redis
      await freeze(server)
      return () => server.kill('SIGCONT')
    },
  },
  {
    name: 'redis-flush',
    weight: 2,
    lasts: [0, 0],
    costs: 'none',
    begin: async ({ options: { servers } }) => void (await servers.ask('FLUSHALL')),
  },
  {
    name: 'script-flush',
    weight: 1,
    lasts: [0, 0],
    costs: 'none',
    gentle: true,
    begin: async ({ options: { servers } }) => void (await servers.ask('SCRIPT', 'FLUSH')),
  },
  {
    name: 'redis-readonly',
    weight: 1,
    lasts: [0.1, 1.5],
    costs: 'none',
    silences: true,
    begin: async ({ options: { servers } }) => {
      // A replica of nobody: it answers and refuses every write.
      await servers.ask('REPLICAOF', '127.0.0.1', 1)
      return () => servers.ask('REPLICAOF', 'NO', 'ONE')
    },
  },
  {
    name: 'redis-full',
    weight: 1,
    lasts: [0.1, 1.5],
    costs: 'none',
    silences: true,
    begin: async ({ options: { servers } }) => {
      await servers.ask('CONFIG', 'SET', 'maxmemory', 1)
      return () => servers.ask('CONFIG', 'SET', 'maxmemory', 0)
    },
  },
  {
    // For a while some talk to the new leader and some to the old one, which is its follower by then.
    name: 'redis-failover',
    weight: 2,
    lasts: [0.05, 1],
    costs: 'all',
    silences: true,
    begin: async (stage, dice) => {
      const { servers } = stage.options
      await servers.promote()
      await servers.follow().catch(() => undefined)
      const later = stage.linesToRedis.filter((line) => dice.chance(0.5) || !turn(line, stage))
      return () => later.forEach((line) => turn(line, stage))
    },
  },
  {
    name: 'client-kill',
    weight: 1.5,
    lasts: [0, 0],
    costs: 'none',
    begin: async ({ options: { servers } }, dice) =>
      (await servers.ask('CLIENT', 'KILL', 'TYPE', dice.pick(['normal', 'pubsub']))) === 0
        ? false
        : undefined,
  },
]

function turn(line: Proxy, { options: { servers } }: Stage): true {
  line.aim(servers.redisUrl)
  line.cut()
  return true
}
