/**
 * Writes the entries of one turn, in order, through the ledger. Entries that come while a commit is under way share the
 * next one. Each commit says which transcript number it expects, so that one whose answer was lost is not written twice.
 * It never gives up by itself: an outage is waited out, and when the row names somebody else, the turn is lost.
 */
import { Lane } from '../base/lane.ts'
import type { Ledger } from '../mysql/ledger.ts'
import type { EntryDraft, TurnName } from '../protocol/session-row.ts'
import { append } from '../protocol/turn-rules.ts'
import { ToolCalls } from './tool-calls.ts'

interface Append {
  readonly entry: EntryDraft
  readonly resolve: (entrySeq: number) => void
  readonly reject: (error: unknown) => void
}

const BATCH_ENTRIES = 500
const BATCH_BYTES = 2 ** 21

export class TurnWriter {
  readonly #ledger: Ledger
  readonly #sessionId: string
  readonly #name: TurnName
  /** Told once a commit finds that the turn is not ours any more; returns the error for the handler. */
  readonly #onLost: () => Error
  readonly #calls = new ToolCalls()
  readonly #lane: Lane<Append>
  #entrySeq: number
  #unwritten = 0
  #waiting: (() => void)[] = []

  constructor(options: {
    ledger: Ledger
    sessionId: string
    name: TurnName
    /** The transcript's last number when the turn had started. */
    entrySeq: number
    onLost: () => Error
  }) {
    this.#ledger = options.ledger
    this.#sessionId = options.sessionId
    this.#name = options.name
    this.#entrySeq = options.entrySeq
    this.#onLost = options.onLost
    this.#lane = new Lane({
      run: (appends) => this.#commit(appends),
      maxItems: BATCH_ENTRIES,
      maxWeight: BATCH_BYTES,
      weigh: ({ entry }) => entry.payload.length,
    })
  }

  /** The last transcript number that this turn knows of. */
  get entrySeq(): number {
    return this.#entrySeq
  }

  /** Calls left open so far; exact once {@link settled} has resolved. */
  get openCalls(): string[] {
    return this.#calls.open
  }

  /**
   * Checks that entries to be written with the turn's end fit the calls so far; returns the calls that are open after
   * them. They do not count before: the turn may still end without them.
   */
  openAfter(entries: readonly EntryDraft[]): string[] {
    const calls = new ToolCalls(this.#calls)
    for (const entry of entries) calls.note(entry)
    return calls.open
  }

  /** Resolves with the entry's number when it is committed. Throws at once when it does not fit the calls so far. */
  append(entry: EntryDraft): Promise<number> {
    const takeBack = this.#calls.note(entry)
    this.#unwritten += 1
    return new Promise<number>((resolve, reject) => {
      this.#lane.push({
        entry,
        resolve: (entrySeq) => {
          this.#written()
          resolve(entrySeq)
        },
        reject: (error) => {
          takeBack()
          this.#written()
          reject(error instanceof Error ? error : new Error(String(error)))
        },
      })
    })
  }

  /** Resolves when no append is under way. */
  settled(): Promise<void> {
    return this.#unwritten === 0 ? Promise.resolve() : new Promise((resolve) => this.#waiting.push(resolve))
  }

  #written(): void {
    this.#unwritten -= 1
    if (this.#unwritten === 0) for (const wake of this.#waiting.splice(0)) wake()
  }

  async #commit(appends: Append[]): Promise<void> {
    const entries = appends.map(({ entry }) => entry)
    const expected = this.#entrySeq
    try {
      const result = await this.#ledger.commit(
        this.#sessionId,
        (draft) => append(draft, this.#name, entries, expected),
        { bytes: entries.reduce((bytes, { payload }) => bytes + payload.length, 0) },
      )
      if (result?.outcome === 'appended') {
        this.#entrySeq = result.entrySeq
        appends.forEach(({ resolve }, index) => resolve(expected + index + 1))
      } else {
        const lost = this.#onLost()
        for (const { reject } of appends) reject(lost)
      }
    } catch (error) {
      for (const { reject } of appends) reject(error)
    }
  }
}
