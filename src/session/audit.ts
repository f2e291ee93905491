/** Reads for whoever checks or measures a fleet from outside, such as `replay`. Apart from the client, which producers use. */
import { checkSessionId } from '../base/ids.ts'
import { connectMysql, type MysqlSource } from '../mysql/connect.ts'
import { type MessageTimes, readMessageTimes } from '../mysql/message-times.ts'
import { toUnavailable } from '../mysql/trouble.ts'
import { whole } from './submission.ts'

export interface Audit {
  /**
   * When messages of a session were accepted and their last turn ended, by the database's clock; seq order. `after` is
   * a seq, default 0; `limit` 1 to 1,000, default 1,000. An unknown session has none.
   */
  times(sessionId: string, options?: { after?: number; limit?: number }): Promise<MessageTimes[]>
  /** Closes the connections. */
  close(): Promise<void>
}

/** Connects on first use. Throws InvalidInputError `INVALID_OPTIONS` when the source cannot be used. */
export function openAudit(source: MysqlSource): Audit {
  const mysql = connectMysql(source, { poolSize: 4, timeoutMs: 30_000 })
  return {
    times: async (sessionId, { after = 0, limit = 1000 } = {}) => {
      const page = { after: whole('after', after, 0), limit: whole('limit', limit, 1, 1000) }
      try {
        return await readMessageTimes(mysql.db, checkSessionId(sessionId), page)
      } catch (error) {
        throw toUnavailable(error)
      }
    },
    close: () => mysql.close(),
  }
}
