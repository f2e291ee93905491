/**
 * What the demo's agent can do: real things with real answers, which a second run would give differently. That is how
 * one sees that a finished step was not run again.
 */
import { readFile } from 'node:fs/promises'
import { Redis } from 'ioredis'
import { createPool, type RowDataPacket } from 'mysql2/promise'
import { sleep } from '../base/timing.ts'

/** What a tool found out. */
export type Finding = Readonly<Record<string, string | number>>

export type ToolName = 'redis' | 'database' | 'file' | 'rest'

export interface Tools {
  use(name: ToolName, signal: AbortSignal): Promise<Finding>
  close(): Promise<void>
}

const REST_MS = 1500

/** With connections of their own, as an application's tools have. */
export function openTools(stores: { redis: string; mysql: string }): Tools {
  const redis = new Redis(stores.redis)
  redis.on('error', () => undefined) // the command that fails says so
  const mysql = createPool({ uri: stores.mysql, connectionLimit: 2 })
  const tools: Record<ToolName, (signal: AbortSignal) => Promise<Finding>> = {
    redis: async () => {
      const info = await redis.info()
      const field = (name: string) => Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? 0)
      return { commands: field('total_commands_processed'), connections: field('connected_clients') }
    },
    database: async () => {
      const counts = ['messages', 'entries'].map((name) => `(SELECT COUNT(*) FROM butler_${name}) AS ${name}`)
      const [rows] = await mysql.query<RowDataPacket[]>(`SELECT ${counts.join(', ')}`)
      return { messages: Number(rows[0]?.['messages']), entries: Number(rows[0]?.['entries']) }
    },
    file: async () => {
      const text = await readFile(new URL('../../package.json', import.meta.url), 'utf8')
      const { description } = JSON.parse(text) as { description: string }
      return { motto: description }
    },
    rest: async (signal) => {
      await sleep(REST_MS, signal)
      signal.throwIfAborted()
      return { restedMs: REST_MS }
    },
  }
  return {
    use: (name, signal) => tools[name](signal),
    close: async () => {
      redis.disconnect()
      await mysql.end()
    },
  }
}
