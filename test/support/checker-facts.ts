// What the database says after a story, as the checker (its only caller) wants to look at it: sessions, entries of
// their present lives, messages.
import { createConnection, type RowDataPacket } from 'mysql2/promise'

export interface Session {
  readonly id: string
  readonly inbox: number
  readonly done: number
  readonly stop: number
  readonly running: number | null
  readonly epoch: number
  readonly head: number
  readonly purged: number
  readonly purgedEntries: number
  readonly waits: number
  /** What is counted of the message at `done + 1`: starts, failures, hand-overs, crashes, a time to try again. */
  readonly counted: number
}

export interface Entry {
  readonly session: string
  readonly entry: number
  readonly seq: number
  readonly epoch: number
  readonly attempt: number
  readonly type: string
  readonly step: string | null
  readonly call: string | null
  /** Of the runtime's own entries: what they say. */
  readonly payload: Readonly<Record<string, unknown>> | undefined
  /** The payload of whatever entry, as it is kept. */
  readonly text: string
  /** Of `turn_ended`. */
  readonly outcome: string | undefined
  /** By the database's clock: milliseconds since 1970. */
  readonly at: number
}

export interface Message {
  readonly id: string
  readonly status: string | null
  readonly payload: unknown
  readonly at: number
}

export interface Facts {
  readonly sessions: Session[]
  /** By session. */
  readonly entries: ReadonlyMap<string, Entry[]>
  /** By `session seq`. */
  readonly messages: ReadonlyMap<string, Message>
}

const OWN = ['turn_started', 'turn_ended', 'error']
const MILLISECONDS = "timestampdiff(microsecond, '1970-01-01', {}) / 1000"

/** Everything, in the order of sessions and entries. */
export async function readFacts(mysqlUrl: string): Promise<Facts> {
  const connection = await createConnection({ uri: mysqlUrl, supportBigNumbers: true })
  const rows = async (sql: string) => (await connection.query<RowDataPacket[]>(sql))[0]
  try {
    const sessions = await rows(
      `select id, inbox_seq as inbox, done_seq as done, stop_seq as stop, running_seq as running, epoch,
         entry_seq as head, purge_seq as purged, purge_entry_seq as purgedEntries, waiting_since is not null as waits,
         starts + failures + handovers + crashes + (retry_at is not null) as counted
       from butler_sessions order by id`,
    )
    const entries = await rows(
      `select e.session_id as session, e.entry_seq as entry, e.seq, e.epoch, e.attempt, e.type, e.step_key as step,
         e.call_id as \`call\`, e.payload as text,
         ${MILLISECONDS.replace('{}', 'e.created_at')} as at
       from butler_entries e join butler_sessions s on s.id = e.session_id and e.entry_seq > s.purge_entry_seq
       order by e.session_id, e.entry_seq`,
    )
    const messages = await rows(
      `select session_id as session, seq, id, status, payload, ${MILLISECONDS.replace('{}', 'created_at')} as at
       from butler_messages`,
    )
    const bySession = new Map<string, Entry[]>()
    for (const row of entries) {
      const isOwn = OWN.includes(String(row['type']))
      const payload = isOwn ? (JSON.parse(String(row['text'])) as Entry['payload']) : undefined
      const list = bySession.get(String(row['session'])) ?? []
      bySession.set(String(row['session']), list)
      list.push({ ...row, payload, outcome: payload?.['outcome'], at: Number(row['at']) } as Entry)
    }
    return {
      sessions: sessions as unknown as Session[],
      entries: bySession,
      messages: new Map(
        messages.map(({ session, seq, at, payload, ...rest }) => [
          `${session} ${seq}`,
          { ...rest, payload: JSON.parse(String(payload)), at: Number(at) } as Message,
        ]),
      ),
    }
  } finally {
    await connection.end()
  }
}
