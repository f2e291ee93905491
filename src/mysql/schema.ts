/**
 * The tables as Kysely sees them; `migrations/` creates them. The prefix lets them live in an application's own
 * database, so that a message can be enqueued in the application's transaction. Column names are those of the tables.
 * Every statement goes through `guard.ts`, which decodes alike on any pool: BIGINT as number (our numbers stay far
 * below 2^53), DATETIME as Date in UTC, payloads as text.
 */
import type { ColumnType, Generated } from 'kysely'

export interface Database {
  butler_sessions: SessionsTable
  butler_messages: MessagesTable
  butler_entries: EntriesTable
  butler_cursors: CursorsTable
  butler_keys: KeysTable
}

export interface SessionsTable {
  id: string
  inbox_seq: Generated<number>
  done_seq: Generated<number>
  stop_seq: Generated<number>
  running_seq: number | null
  owner: string | null
  epoch: Generated<number>
  starts: Generated<number>
  failures: Generated<number>
  handovers: Generated<number>
  crashes: Generated<number>
  retry_at: Date | null
  entry_seq: Generated<number>
  waiting_since: Date | null
  /** Computed by the database: `owner` while a turn runs, else NULL. */
  running_by: ColumnType<string | null, never, never>
  purge_seq: Generated<number>
  purge_entry_seq: Generated<number>
  deleted_at: Date | null
  created_at: Date
  updated_at: Date
}

export interface MessagesTable {
  session_id: string
  seq: number
  id: string
  idempotency_key: string
  fingerprint: string
  kind: string
  version: Generated<number>
  source: string
  payload: string
  status: string | null
  error: string | null
  traceparent: string | null
  retry_of: number | null
  created_at: Date
}

export interface EntriesTable {
  session_id: string
  entry_seq: number
  seq: number
  epoch: number
  attempt: number
  type: string
  step_key: string | null
  call_id: string | null
  payload: string
  created_at: Date
}

export interface CursorsTable {
  session_id: string
  reader: string
  seen: string | null
  acknowledged: string | null
  updated_at: Date
}

export interface KeysTable {
  id: string
  secret_hash: string
  name: string
  scopes: string
  tenants: string | null
  created_at: Date
  expires_at: Date | null
  revoked_at: Date | null
  used_at: Date | null
}
