// Sessions and ledgers for tests of the ledger, over the shared server or over a wire that cuts it off at one exact COMMIT.
// Call `ledgerWorld` once per file, outside of tests.
import { afterAll, afterEach, beforeAll, expect } from 'vitest'
import { connectMysql, type Mysql } from '../../src/mysql/connect.ts'
import { Inbox } from '../../src/mysql/inbox.ts'
import { Ledger } from '../../src/mysql/ledger.ts'
import { migrateUp } from '../../src/mysql/migrate.ts'
import { acquire } from '../../src/protocol/ownership.ts'
import { start, type StartedTurn } from '../../src/protocol/turn-rules.ts'
import { limits, submission } from '../protocol/rows.ts'
import { freshDatabase } from '../support/services.ts'
import { wireTo } from './wire.ts'

export const OWNER = 'P1.aaaa'

export function ledgerWorld() {
  let database: { url: string; drop: () => Promise<void> }
  const at = {} as { mysql: Mysql }
  let made = 0
  const closing: (() => unknown)[] = []

  beforeAll(async () => {
    database = await freshDatabase()
    at.mysql = connectMysql(database.url, { poolSize: 20 })
    await migrateUp(at.mysql.db)
  })
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close()
  })
  afterAll(async () => {
    await at.mysql.close()
    await database.drop()
  })

  /** Sessions with two messages each. */
  async function sessions(count: number): Promise<string[]> {
    const ids = Array.from({ length: count }, () => `s-${String((made += 1)).padStart(4, '0')}`)
    const inbox = new Inbox(at.mysql, { queueMax: 10, onTrouble: () => undefined })
    const all = ids.flatMap((sessionId) => [1, 2].map((n) => submission(`${sessionId}-m${n}`, { sessionId })))
    await inbox.accept(all, 60_000)
    return ids
  }

  /** A ledger, over the wire that `act` watches if there is one. */
  async function open(act?: Parameters<typeof wireTo>[1]) {
    const troubles: unknown[] = []
    if (!act)
      return { troubles, ledger: new Ledger(at.mysql, { onTrouble: (error) => troubles.push(error) }) }
    const wire = await wireTo(database.url, act)
    const own = connectMysql(wire.url, { poolSize: 8, timeoutMs: 1500 })
    closing.push(
      () => wire.close(),
      () => own.close(),
    )
    return { troubles, ledger: new Ledger(own, { onTrouble: (error) => troubles.push(error) }) }
  }

  /** Holds the rows' locks in another connection until it is released. */
  async function holdRows(ids: string[]): Promise<() => Promise<void>> {
    const trx = await at.mysql.db.startTransaction().execute()
    await trx.selectFrom('butler_sessions').select('id').where('id', 'in', ids).forUpdate().execute()
    let release: (() => Promise<void>) | undefined = async () => {
      release = undefined
      await trx.commit().execute()
    }
    closing.push(() => release?.())
    return async () => release?.()
  }

  const rowOf = (id: string) =>
    at.mysql.db.selectFrom('butler_sessions').selectAll().where('id', '=', id).executeTakeFirstOrThrow()
  const entriesOf = (id: string) =>
    at.mysql.db
      .selectFrom('butler_entries')
      .selectAll()
      .where('session_id', '=', id)
      .orderBy('entry_seq')
      .execute()

  async function started(id: string): Promise<StartedTurn> {
    const { ledger } = await open()
    await ledger.commit(id, (draft) => acquire(draft, OWNER))
    const turn = await ledger.commit(id, (draft) => start(draft, OWNER, limits()), { head: 'now' })
    if (turn?.outcome !== 'started') return expect.unreachable()
    return turn
  }

  return Object.assign(at, { closing, sessions, open, holdRows, rowOf, entriesOf, started })
}

/** Acts on the nth COMMIT and the chunks that follow it. */
export function atCommit(...actions: ('pass' | 'swallow' | 'pass, then cut')[]) {
  let left = [...actions]
  const seen = { commits: 0 }
  const act = (text: string): 'pass' | 'swallow' | 'pass, then cut' => {
    const isCommit = /commit$/i.test(text)
    if (isCommit) seen.commits += 1
    if (left.length === 0 || (left.length === actions.length && !isCommit)) return 'pass'
    const [now = 'pass', ...rest] = left
    left = rest
    return now
  }
  return { act, seen }
}
