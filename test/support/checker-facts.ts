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
  readonly outcome: string | undefined
}

export interface Facts {
  readonly sessions: Session[]
  /** By session. */
  readonly entries: ReadonlyMap<string, Entry[]>
  /** Status by `session seq`. */
  readonly messages: ReadonlyMap<string, { id: string; status: string | null }>
}

/** Everything, in the order of sessions and entries. */
export async function readFacts(mysqlUrl: string): Promise<Facts> {
  const connection = await createConnection({ uri: mysqlUrl, supportBigNumbers: true })
  const rows = async (sql: string) => (await connection.query<RowDataPacket[]>(sql))[0]
  try {
    const sessions = await rows(
      `select id, inbox_seq as inbox, done_seq as done, stop_seq as stop, running_seq as running, epoch,
         entry_seq as head, purge_seq as purged, purge_entry_seq as purgedEntries, waiting_since is not null as waits
       from butler_sessions order by id`,
    )
    const entries = await rows(
      `select e.session_id as session, e.entry_seq as entry, e.seq, e.epoch, e.attempt, e.type, e.step_key as step,
         e.call_id as \`call\`, if(e.type = 'turn_ended', e.payload, null) as payload
       from butler_entries e join butler_sessions s on s.id = e.session_id and e.entry_seq > s.purge_entry_seq
       order by e.session_id, e.entry_seq`,
    )
    const messages = await rows('select session_id as session, seq, id, status from butler_messages')
    const bySession = new Map<string, Entry[]>()
    for (const { payload, ...row } of entries) {
      const outcome =
        payload === null ? undefined : (JSON.parse(String(payload)) as { outcome: string }).outcome
      const list = bySession.get(String(row['session'])) ?? []
      bySession.set(String(row['session']), list)
      list.push({ ...row, outcome } as Entry)
    }
    return {
      sessions: sessions as unknown as Session[],
      entries: bySession,
      messages: new Map(
        messages.map(({ session, seq, id, status }) => [
          `${session} ${seq}`,
          { id: String(id), status: status === null ? null : String(status) },
        ]),
      ),
    }
  } finally {
    await connection.end()
  }
}
