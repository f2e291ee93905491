/**
 * Compares this process's turns with the rows that name it: one query per process, every few seconds, and every
 * second while Redis is silent. It is the stop tick, the check of ownership, and what finds rows that nobody serves.
 *
 * It judges only turns that were confirmed before the question was asked: an answer older than a turn says nothing
 * about it.
 */
import { deadline, now, Ticker } from '../base/timing.ts'
import { readOwners, readRunningBy, readStopSeq, type RunningTurn } from '../mysql/sessions.ts'
import { evict } from '../protocol/ownership.ts'
import type { TurnName } from '../protocol/session-row.ts'
import type { Butler } from './butler.ts'
import type { Registry } from './registry.ts'
import type { Stores } from './stores.ts'
import type { TurnRun } from './turn.ts'

export class Reconciler {
  readonly #stores: Stores
  readonly #registry: Registry
  readonly #processId: string
  readonly #ticker: Ticker

  constructor(options: { stores: Stores; registry: Registry; processId: string; hurried: () => boolean }) {
    const { telemetry, tunables } = options.stores
    this.#stores = options.stores
    this.#registry = options.registry
    this.#processId = options.processId
    this.#ticker = new Ticker({
      tick: () => this.reconcile(),
      intervalMs: () => (options.hurried() || !this.answered ? tunables.lookFastMs : tunables.lookMs),
      onError: (error) => telemetry.emit('mysql.trouble', { error }),
    })
  }

  start(): void {
    this.#ticker.start()
  }

  get overdue(): boolean {
    return this.#ticker.overdue
  }

  stop(): Promise<void> {
    return this.#ticker.stop()
  }

  /** Whether the last look was answered: a process that cannot reach the database should get no work. */
  answered = true

  /** The database failed somebody: believe nothing until a look is answered. */
  doubt(): void {
    if (!this.answered) return
    this.answered = false
    this.soon()
  }

  /** Looks now. */
  soon(): void {
    this.#ticker.soon()
  }

  /** Somebody said that a session was stopped. A notice may be late or forged: only the row says up to where. */
  async heedStop(sessionId: string): Promise<void> {
    const butler = this.#registry.get(sessionId)
    if (!butler) return this.#registry.wake(sessionId)
    const look = readStopSeq(this.#stores.mysql.db, sessionId).then((through) => {
      if (through !== undefined) this.#registry.stopMessages(sessionId, through)
    })
    butler.heeding = look.catch(() => undefined)
    await look
  }

  async reconcile(): Promise<void> {
    const turns = [...this.#registry.withTurn()].flatMap((butler) =>
      butler.turn ? [{ butler, turn: butler.turn }] : [],
    )
    try {
      const running = await this.#ask()
      const rows = new Map(running.map((row) => [row.sessionId, row]))
      const missing = turns.filter(
        ({ butler, turn }) => !this.#confirm(butler, turn, rows.get(butler.sessionId)),
      )
      if (missing.length > 0) await this.#lookAgain(missing)
      for (const row of rows.values()) await this.#releaseOrphan(row)
    } finally {
      this.#abortSilent()
    }
  }

  async #ask(): Promise<RunningTurn[]> {
    try {
      const running = await readRunningBy(this.#stores.mysql.db, this.#processId)
      if (!this.answered) this.#stores.telemetry.emit('mysql.ready', {})
      this.answered = true
      return running
    } catch (error) {
      this.answered = false
      throw error
    }
  }

  /** True when the row names this very turn; a stop that the notice did not bring is found here. */
  #confirm(butler: Butler, turn: TurnRun, row: RunningTurn | undefined): boolean {
    if (!row || !isSame(row.turn, turn.name)) return false
    // From its arrival: a database that answers slowly is not silent, and what is written is fenced by the row anyway.
    turn.confirmedAt = now()
    if (row.stopSeq > butler.stopSeq) butler.stop(row.stopSeq)
    return true
  }

  /** A turn that the first answer did not show is looked up by id before it is given up. */
  async #lookAgain(missing: readonly { butler: Butler; turn: TurnRun }[]): Promise<void> {
    const rows = await readOwners(
      this.#stores.mysql.db,
      missing.map(({ butler }) => butler.sessionId),
    )
    for (const { butler, turn } of missing) {
      // It may have ended meanwhile: then the row is right and there is nothing to lose.
      if (butler.turn !== turn || this.#confirm(butler, turn, rows.get(butler.sessionId)?.running)) continue
      if (rows.get(butler.sessionId)?.owner === turn.name.owner) continue
      this.#registry.lose(butler, 'the row does not name its turn')
    }
  }

  /** A row that names us for a turn that we do not run would stand still for ever. */
  async #releaseOrphan({ sessionId, turn }: RunningTurn): Promise<void> {
    const butler = this.#registry.get(sessionId)
    if (butler?.phase === 'serving') return
    const { ledger, tunables } = this.#stores
    // With an end, because the next look waits for it.
    const released = await ledger.commit(sessionId, (draft) => evict(draft, turn, 'orphan'), {
      openCalls: true,
      giveUp: deadline(tunables.mysqlTimeoutMs),
    })
    if (!released?.evicted) return
    this.#stores.telemetry.emit('session.evicted', {
      session: sessionId,
      seq: turn.seq,
      owner: turn.owner,
      verdict: 'orphan',
    })
    this.#registry.wake(sessionId)
  }

  /** A turn ends for silence only when neither store has confirmed it: an outage of one throws no work away. */
  #abortSilent(): void {
    const { lookFastMs } = this.#stores.tunables
    for (const butler of this.#registry.withTurn()) {
      const { turn } = butler
      if (
        turn &&
        now() > butler.hold.confirmedUntil &&
        now() > turn.confirmedAt + lookFastMs * 3 &&
        !turn.finishing
      ) {
        this.#registry.lose(butler, 'neither store has confirmed it')
      }
    }
  }
}

const isSame = (a: TurnName, b: TurnName): boolean =>
  a.owner === b.owner && a.seq === b.seq && a.starts === b.starts
