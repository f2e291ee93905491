/** Reads for whoever checks or measures a fleet from outside, such as `replay`. Apart from the client, which producers use. */
import { checkRange } from '../base/arguments.ts'
import { checkSessionId } from '../base/ids.ts'
import { connectMysql, type MysqlSource } from '../mysql/connect.ts'
import { type MessageTimes, readMessageTimes } from '../mysql/message-times.ts'
import { toUnavailable } from '../mysql/trouble.ts'

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
    times: async (sessionId, options = {}) => {
      const range = checkRange(options, 1000)
      try {
        return await readMessageTimes(mysql.db, checkSessionId(sessionId), range)
      } catch (error) {
        throw toUnavailable(error)
      }
    },
    close: () => mysql.close(),
  }
}
