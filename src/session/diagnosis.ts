/**
 * Judges whether two servers are fit for us: each check with what was found and how to mend it. For `doctor` and for
 * start-up checks of applications. Only looks; changes nothing in either store.
 */
import { DEFAULTS, resolveTunables } from '../base/options.ts'
import { connectMysql } from '../mysql/connect.ts'
import { examineMysql, type MysqlFacts } from '../mysql/diagnosis.ts'
import { connectRedis } from '../redis/connect.ts'
import { examineRedis, type RedisFacts } from '../redis/diagnosis.ts'
import { Keys } from '../redis/keys.ts'
import type { Connections } from './stores.ts'

export interface Check {
  /** What was looked at, such as `redis eviction`. Stable. */
  readonly name: string
  /** `fail`: it will not work or loses work. `warn`: it works, but worse than it could. */
  readonly status: 'ok' | 'warn' | 'fail'
  readonly found: string
  /** What to do; null when nothing is to be done. */
  readonly fix: string | null
}

export interface Diagnosis {
  /** No check failed. */
  readonly ok: boolean
  /** Both servers answered. */
  readonly reachable: boolean
  readonly checks: readonly Check[]
}

/** Longest wait for an answer of either server. */
const PATIENCE_MS = 3000
/** A clock that differs more confuses people who compare logs with rows; the protocol reads the database's only. */
const CLOCK_MAX_MS = 1000

/**
 * Looks at both servers, those that the same options give to a client. Resolves also when one cannot be reached: that is a failed check.
 * @throws InvalidInputError INVALID_OPTIONS for a URL or prefix that cannot be meant.
 */
export async function diagnose(options: Connections): Promise<Diagnosis> {
  const { redis: redisSource, mysql: mysqlSource, logger: _, ...tunables } = Object(options) as Connections
  const { prefix } = resolveTunables(tunables)
  let redisTrouble: Error | undefined
  const mysql = connectMysql(mysqlSource, { poolSize: 2, timeoutMs: PATIENCE_MS })
  const redis = connectRedis(redisSource, {
    timeoutMs: PATIENCE_MS,
    onTrouble: (error) => (redisTrouble = error),
    onReady: () => (redisTrouble = undefined),
  })
  try {
    const [redisChecks, mysqlChecks] = await Promise.all([
      examineRedis(redis.commands, new Keys(prefix)).then(judgeRedis, (error: unknown) => [
        // ioredis only says that it gave up; why, it told before.
        unreachable('redis', redisTrouble ?? error),
      ]),
      examineMysql(mysql.db).then(judgeMysql, (error: unknown) => [unreachable('mysql', error)]),
    ])
    const checks = [...redisChecks, ...mysqlChecks]
    return {
      ok: checks.every(({ status }) => status !== 'fail'),
      reachable: checks.every(({ name, status }) => status !== 'fail' || !name.endsWith('connection')),
      checks,
    }
  } finally {
    await Promise.all([redis.close(), mysql.close()])
  }
}

function judgeRedis(facts: RedisFacts): Check[] {
  const { version, relative, role, clustered, clusterClient, maxmemory, maxmemoryPolicy, processes } = facts
  const taking = processes.filter(({ heartbeat }) => !heartbeat.draining)
  const free = taking.reduce((sum, { heartbeat }) => sum + heartbeat.free, 0)
  return [
    ok('redis connection', relative ?? `Redis ${version}`),
    verdict('redis version', relative ?? version, atLeast(version, [6, 2]), {
      fix: 'Use Redis 6.2 or newer, or Valkey: LMOVE is needed.',
    }),
    verdict('redis role', role, role !== 'slave' && role !== 'replica', {
      fix: 'This is a replica (READONLY): use the address of the primary, or a redis+sentinel:// URL.',
    }),
    verdict('redis cluster', clustered ? 'cluster' : 'single server', !clustered || clusterClient, {
      fix: 'This server is part of a cluster: give the library an ioredis Cluster, not a URL.',
    }),
    verdict(
      'redis eviction',
      `${maxmemoryPolicy}, maxmemory ${maxmemory}`,
      maxmemoryPolicy === 'noeviction',
      {
        fix: 'CONFIG SET maxmemory-policy noeviction (and in redis.conf): a full Redis must refuse, not forget locks.',
        otherwise: maxmemory > 0 ? 'fail' : 'warn',
      },
    ),
    verdict('workers', `${processes.length} alive, ${free} free slots`, taking.length > 0, {
      fix: 'No process takes turns: start one with `npx session-butler work ./handler.js`.',
      otherwise: 'warn',
    }),
  ]
}

function judgeMysql(facts: MysqlFacts): Check[] {
  const { version, family, variables, pending, altered, clockAheadMs, offsetS } = facts
  const packet = Number(variables.max_allowed_packet)
  const needed = DEFAULTS.entryMaxBytes * 2
  const flush = variables.innodb_flush_log_at_trx_commit ?? 'unknown'
  const applied = pending.length === 0
  return [
    ok('mysql connection', `${family} ${version}`),
    verdict('mysql version', version, atLeast(version, family === 'MariaDB' ? [10, 6] : [8, 0]), {
      fix: 'Use MySQL 8.0 or newer, or MariaDB 10.6 or newer: SKIP LOCKED is needed.',
    }),
    verdict('mysql role', isOn(variables.read_only) ? 'read only' : 'writable', !isOn(variables.read_only), {
      fix: 'This server is read only, perhaps a replica: use the address of the primary.',
    }),
    verdict('mysql migrations', applied ? 'up to date' : `pending: ${pending.join(', ')}`, applied, {
      fix: 'Run `npx session-butler migrate up`.',
    }),
    ...judgeSession(facts),
    verdict('mysql tables', altered.join(', ') || 'collations and engine as migrated', altered.length === 0, {
      fix: 'Restore the collations (ascii_bin, utf8mb4_bin) and ENGINE=InnoDB that migrations/*.sql give.',
    }),
    verdict('mysql max_allowed_packet', bytes(packet), packet >= needed, {
      fix: `SET GLOBAL max_allowed_packet = 67108864 (and in my.cnf): the largest entries need ${bytes(needed)}.`,
    }),
    verdict('mysql durability', `innodb_flush_log_at_trx_commit = ${flush}`, flush === '1', {
      fix: 'SET GLOBAL innodb_flush_log_at_trx_commit = 1: otherwise a crash may lose accepted messages.',
      otherwise: 'warn',
    }),
    verdict(
      'clock',
      `the database is ${describeAhead(clockAheadMs)}`,
      Math.abs(clockAheadMs) <= CLOCK_MAX_MS,
      {
        fix: 'Synchronise both hosts (NTP). Decisions use the database clock only; logs will not match rows.',
        otherwise: 'warn',
      },
    ),
    verdict('mysql time zone', `session offset ${offsetS} s`, offsetS === 0, {
      fix: "The pool's sessions are not in UTC; ours would be. Harmless: times are written by utc_timestamp().",
      otherwise: 'warn',
    }),
  ]
}

/** What a session of ours, or of the caller's pool, is set to. */
function judgeSession({ variables }: MysqlFacts): Check[] {
  const mode = variables.sql_mode ?? ''
  const isolation = variables.transaction_isolation ?? variables.tx_isolation ?? 'unknown'
  const format = variables.binlog_format ?? 'ROW'
  const refusesReads = isOn(variables.log_bin) && format === 'STATEMENT'
  const charset = variables.character_set_client ?? 'unknown'
  const strict = /STRICT_(TRANS|ALL)_TABLES/.test(mode)
  return [
    verdict('mysql sql_mode', mode || 'empty', !mode.includes('NO_BACKSLASH_ESCAPES') && strict, {
      fix: 'Remove NO_BACKSLASH_ESCAPES (the driver does not quote for it) and add STRICT_TRANS_TABLES.',
      otherwise: mode.includes('NO_BACKSLASH_ESCAPES') ? 'fail' : 'warn',
    }),
    verdict('mysql charset', charset, charset === 'utf8mb4', {
      fix: "Open the pool with charset 'utf8mb4'.",
    }),
    verdict(
      'mysql isolation',
      `${isolation}, binlog ${isOn(variables.log_bin) ? format : 'off'}`,
      !refusesReads,
      {
        fix: 'SET GLOBAL binlog_format = ROW: READ COMMITTED cannot be written to a STATEMENT binary log.',
      },
    ),
  ]
}

const ok = (name: string, found: string): Check => ({ name, status: 'ok', found, fix: null })

function verdict(
  name: string,
  found: string,
  isGood: boolean,
  { fix, otherwise = 'fail' }: { fix: string; otherwise?: 'warn' | 'fail' },
): Check {
  return isGood ? ok(name, found) : { name, status: otherwise, found, fix }
}

function unreachable(which: 'redis' | 'mysql', error: unknown): Check {
  let cause = error
  while (cause instanceof Error && cause.cause instanceof Error) cause = cause.cause
  const found = cause instanceof Error ? cause.message : String(cause)
  const fix = `Is the server up, and is the URL right? BUTLER_${which.toUpperCase()}_URL or --${which} names it.`
  return { name: `${which} connection`, status: 'fail', found, fix }
}

/** Compares the leading numbers of a version such as `10.11.14-MariaDB-0+deb12u2`. */
function atLeast(version: string, [major, minor]: readonly [number, number]): boolean {
  const [, first, second] = /^(\d+)\.(\d+)/.exec(version) ?? []
  return Number(first) > major || (Number(first) === major && Number(second) >= minor)
}

const isOn = (value: string | undefined): boolean => value !== undefined && /^(1|ON)$/i.test(value)

const bytes = (count: number): string => `${Math.round(count / 1024 ** 2)} MiB`

const describeAhead = (ms: number): string => `${Math.abs(ms)} ms ${ms < 0 ? 'behind' : 'ahead of'} this host`
