/**
 * A locked session row while a rule changes it: the row's new numbers, the entries to add and the messages whose
 * status is to be written. A rule that refuses leaves the draft untouched, and an untouched draft writes nothing.
 */
import type { EntryDraft, Message, MessageStatus, SessionRow } from './session-row.ts'

export interface NumberedEntry extends EntryDraft {
  readonly entrySeq: number
  readonly seq: number
  readonly epoch: number
  readonly attempt: number
}

export interface StatusChange {
  readonly seq: number
  readonly status: MessageStatus
  /** JSON text or null. */
  readonly error: string | null
}

/** That the message with this number was looked for, and what was found. */
export interface MessageRead {
  readonly seq: number
  readonly message: Message | undefined
}

export class Draft {
  readonly row: SessionRow
  /** Call ids that the running turn opened and never closed; read only when asked for. */
  readonly openCalls: readonly string[]
  readonly entries: NumberedEntry[] = []
  readonly statuses: StatusChange[] = []
  readonly #message: MessageRead | undefined
  #touched = false

  constructor(
    row: SessionRow,
    read: { message?: MessageRead | undefined; openCalls?: readonly string[] } = {},
  ) {
    this.row = { ...row }
    this.#message = read.message
    this.openCalls = read.openCalls ?? []
  }

  /** The next message to run, as read under the row's lock; undefined when its row is missing. */
  get head(): Message | undefined {
    const seq = this.row.doneSeq + 1
    if (this.#message?.seq !== seq)
      throw new Error(`message ${seq} of ${this.row.id} was not read for this rule`)
    return this.#message.message
  }

  /** Changes numbers of the row. */
  set(changes: Partial<Omit<SessionRow, 'id' | 'entrySeq'>>): void {
    Object.assign(this.row, changes)
    this.#touched = true
  }

  /** Adds an entry under the next transcript number. */
  add(seq: number, entry: EntryDraft): void {
    this.row.entrySeq += 1
    this.entries.push({
      ...entry,
      entrySeq: this.row.entrySeq,
      seq,
      epoch: this.row.epoch,
      attempt: this.row.starts,
    })
    this.#touched = true
  }

  /** Records a final state other than completed. */
  mark(seq: number, status: MessageStatus, error: string | null = null): void {
    this.statuses.push({ seq, status, error })
    this.#touched = true
  }

  get touched(): boolean {
    return this.#touched
  }
}
