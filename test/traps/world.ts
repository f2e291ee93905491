// What a trap is set in: a database and a prefix of its own, workers in this process (each behind its own lines), and
// the raw rows and keys to look at or to bend. Locks live for 30 s here while everything else is fast, so whatever only
// a lock's expiry would mend does not get mended within a test.
import { Redis } from 'ioredis'
import { createPool, type Pool, type ResultSetHeader, type RowDataPacket } from 'mysql2/promise'
import { CATALOGUE, type EventName } from '../../src/base/events.ts'
import { Alarm } from '../../src/base/timing.ts'
import {
  type Client,
  createClient,
  createWorker,
  type Handler,
  type TunablesInput,
  type Worker,
} from '../../src/index.ts'
import { connectMysql } from '../../src/mysql/connect.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
import { Keys } from '../../src/redis/keys.ts'
import { type Line, lineTo } from './line.ts'
import { until } from '../support/eventually.ts'
import { freshDatabase, freshPrefix, services } from '../support/services.ts'

export const PATIENT_LOCK = {
  lockTtlMs: 30_000,
  renewMs: 300,
  sweepMs: 300,
  heartbeatMs: 75,
  heartbeatTtlMs: 400,
  deadAfterMs: 400,
  hungAfterMs: 400,
  retakeMs: 100,
  lookMs: 300,
  lookFastMs: 100,
  giveAwayMs: 300,
  stopGraceMs: 200,
  drainGraceMs: 0,
  redisTimeoutMs: 250,
  mysqlTimeoutMs: 2000,
  retryDelaysMs: [50],
} satisfies TunablesInput

export interface Row {
  inbox_seq: number
  done_seq: number
  stop_seq: number
  running_seq: number | null
  owner: string | null
  epoch: number
  starts: number
  failures: number
  crashes: number
  entry_seq: number
}

export interface EntryLine {
  entry_seq: number
  seq: number
  epoch: number
  attempt: number
  type: string
  payload: string
}

export interface Heard {
  readonly event: EventName
  readonly fields: Record<string, unknown>
}

/** A worker in this process, and everything it has said. */
export interface Watched {
  readonly worker: Worker
  readonly heard: Heard[]
  /** Its lines to the servers. */
  readonly toRedis: Line
  readonly toMysql: Line
  saw(event: EventName): Heard[]
  /** Resolves when it has said this `times` times. */
  says(event: EventName, times?: number): Promise<unknown>
}

export type World = Awaited<ReturnType<typeof openWorld>>

export async function openWorld(servers: { redisUrl?: string; mysqlUrl?: string } = {}) {
  const redisUrl = servers.redisUrl ?? services().redisUrl
  const prefix = freshPrefix()
  const database = await freshDatabase(servers.mysqlUrl)
  const mysql = connectMysql(database.url, { timeoutMs: 20_000 })
  await migrateUp(mysql.db)
  await mysql.close()
  const admin: Pool = createPool({ uri: database.url, timezone: 'Z' })
  const redis = new Redis(redisUrl)
  redis.on('error', () => undefined)
  const keys = new Keys(prefix)
  const lines: Line[] = []
  const workers: Worker[] = []
  const clients: Client[] = []

  const connections = (tunables: TunablesInput = {}) => ({
    ...PATIENT_LOCK,
    prefix,
    logger: false as const,
    ...tunables,
  })
  const newClient = (tunables?: TunablesInput, mysql = database.url, redis = redisUrl): Client => {
    const client = createClient({ redis, mysql, ...connections(tunables) })
    clients.push(client)
    return client
  }
  const newLine = async (url: string): Promise<Line> => {
    const line = await lineTo(url)
    lines.push(line)
    return line
  }
  const rows = async <T>(sql: string, values: unknown[] = []): Promise<T[]> =>
    (await admin.query<RowDataPacket[]>(sql, values))[0] as T[]

  return {
    prefix,
    mysqlUrl: database.url,
    redisUrl,
    redis,
    keys,
    admin,
    client: newClient(),
    newClient,
    newLine,
    rows,
    async run(sql: string, values: unknown[] = []): Promise<ResultSetHeader> {
      return (await admin.query<ResultSetHeader>(sql, values))[0]
    },
    /** A started worker behind lines of its own. */
    async worker(handler: Handler, tunables: TunablesInput = {}): Promise<Watched> {
      const [toRedis, toMysql] = await Promise.all([newLine(redisUrl), newLine(database.url)])
      const worker = createWorker({
        handler,
        redis: toRedis.url,
        mysql: toMysql.url,
        ...connections(tunables),
      })
      workers.push(worker)
      const heard: Heard[] = []
      for (const event of Object.keys(CATALOGUE) as EventName[]) {
        worker.on(event, (fields) => void heard.push({ event, fields: { ...fields } }))
      }
      const saw = (event: EventName) => heard.filter((line) => line.event === event)
      await worker.start()
      await eventually(async () => {
        const [, hearing] = await redis.pubsub('NUMSUB', keys.processChannel(worker.processId))
        return hearing === 1 && (await redis.exists(keys.process(worker.processId))) === 1
      }, 'the worker is up')
      const says = (event: EventName, times = 1) =>
        eventually(() => saw(event).length >= times, `${event} ${times} times`).catch((error: unknown) => {
          throw new Error(`${String(error)}; heard ${heard.map((line) => line.event).join(' ')}`)
        })
      return { worker, heard, toRedis, toMysql, saw, says }
    },
    async row(id: string): Promise<Row> {
      const [row] = await rows<Row>('SELECT * FROM butler_sessions WHERE id = ?', [id])
      if (!row) throw new Error(`no session ${id}`)
      return row
    },
    /** Type and message of every entry, such as `reply 1`; `turn_ended` with its outcome. */
    async story(id: string): Promise<string[]> {
      const entries = await rows<EntryLine>(
        'SELECT * FROM butler_entries WHERE session_id = ? ORDER BY entry_seq',
        [id],
      )
      return entries.map(({ type, seq, payload }) =>
        type === 'turn_ended'
          ? `${(JSON.parse(payload) as { outcome: string }).outcome} ${seq}`
          : `${type} ${seq}`,
      )
    },
    entries: (id: string) =>
      rows<EntryLine>('SELECT * FROM butler_entries WHERE session_id = ? ORDER BY entry_seq', [id]),
    /** Waits until everything accepted has its final state. */
    done: (id: string) =>
      eventually(async () => {
        const [row] = await rows<Row>('SELECT * FROM butler_sessions WHERE id = ?', [id])
        return row !== undefined && row.done_seq === row.inbox_seq
      }, `${id} done`),
    /** Holds the session's row lock on a connection of its own until released. */
    async holdRow(id: string): Promise<(sql?: string, values?: unknown[]) => Promise<void>> {
      const connection = await admin.getConnection()
      await connection.beginTransaction()
      await connection.query('SELECT id FROM butler_sessions WHERE id = ? FOR UPDATE', [id])
      return async (sql, values) => {
        if (sql !== undefined) await connection.query(sql, values)
        await connection.commit()
        connection.release()
      }
    },
    /** Resolves when a statement that says `text` waits for a row lock. */
    lockWait: (text: string) =>
      until(
        async () => {
          const waiting = await rows(
            "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE ?",
            [`%${text}%`],
          )
          return waiting.length > 0
        },
        // InnoDB renews what it shows there only when nobody has looked for 100 ms.
        { everyMs: 150, what: `a statement that waits for ${text}` },
      ),
    wake: (worker: Worker, id: string) => redis.publish(keys.processChannel(worker.processId), `wake ${id}`),
    /** Ends everything. Workers behind a dead line would wait for it, so the lines come up first. */
    async close(): Promise<void> {
      for (const line of lines) line.up()
      await Promise.all(workers.map((worker) => worker.stop({ graceMs: 0 })))
      await Promise.all(clients.map((client) => client.close()))
      await Promise.all(lines.map((line) => line.close()))
      await admin.end()
      redis.disconnect()
      await database.drop()
    },
  }
}

/** Asks until the answer is yes; fails with what was wanted. */
export const eventually = (ask: () => boolean | Promise<boolean>, what = 'it'): Promise<true> =>
  until(ask, { ms: 10_000, what })

/** A promise to be resolved from outside, with a time limit so that a missed signal names itself. */
export class Latch<T = void> {
  readonly opened: Promise<T>
  open!: (value: T) => void

  constructor(what: string, ms = 12_000) {
    this.opened = new Promise((resolve, reject) => {
      const alarm = new Alarm()
      this.open = (value) => {
        alarm.clear()
        resolve(value)
      }
      alarm.set(ms, () => reject(new Error(`${what}: not within ${ms} ms`)))
    })
    this.opened.catch(() => undefined)
  }
}
