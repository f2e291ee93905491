/**
 * Judges from a session's transcript whether each sent message was served exactly once and in order. Pure: the caller
 * reads the entries and passes them in order.
 */
import type { Entry } from '../index.ts'
import type { Sent } from './replay-feed.ts'
import { finalOutcome } from './transcript-follower.ts'

export const PROBLEMS = ['lost', 'doubled', 'outOfOrder', 'altered', 'notCompleted', 'gap', 'epoch'] as const

export interface Problem {
  /**
   * `lost`, `doubled`, `outOfOrder` and `altered`: of messages and their ends. `notCompleted`: it failed or was stopped.
   * `gap`: an entry is missing. `epoch`: a replaced owner wrote.
   */
  readonly kind: (typeof PROBLEMS)[number]
  readonly session: string
  readonly line?: number
  readonly detail: string
}

interface Account {
  readonly sent: Sent
  messages: number
  ends: number
  outcome: string | undefined
  /** Replies per attempt: an attempt that was lost may have appended some before. */
  readonly replies: Map<number, number>
  lastAttempt: number
}

export class TranscriptCheck {
  readonly problems: Problem[] = []
  readonly #session: string
  readonly #accounts = new Map<number, Account>()
  #entry: number | undefined
  #epoch = 0
  #message = 0
  #ended: number | undefined

  /** `sent`: the session's messages in the order in which they were sent. */
  constructor(session: string, sent: readonly Sent[]) {
    this.#session = session
    let last = 0
    for (const one of sent) {
      const earlier = this.#accounts.get(one.seq)
      if (earlier)
        this.#add('doubled', `lines ${earlier.sent.line} and ${one.line} are both message ${one.seq}`)
      else if (one.seq < last) this.#add('outOfOrder', `got number ${one.seq} after ${last}`, one)
      last = Math.max(last, one.seq)
      const replies = new Map<number, number>()
      this.#accounts.set(one.seq, {
        sent: one,
        messages: 0,
        ends: 0,
        outcome: undefined,
        replies,
        lastAttempt: 0,
      })
    }
  }

  next(entry: Entry): void {
    this.#checkPlace(entry)
    const account = this.#accounts.get(entry.seq)
    if (entry.type === 'message') this.#onMessage(entry, account)
    if (entry.type === 'turn_started') this.#checkTurn(entry.seq, account)
    if (entry.type === 'reply' && account) {
      account.replies.set(entry.attempt, (account.replies.get(entry.attempt) ?? 0) + 1)
    }
    const outcome = finalOutcome(entry)
    if (outcome !== undefined) this.#onEnd(entry, outcome, account)
  }

  /** The whole transcript has been seen; `head` is the session's last entry number. */
  end(head: number): void {
    if ((this.#entry ?? 0) < head)
      this.#add('gap', `the transcript ends at ${this.#entry ?? 0}, not at ${head}`)
    for (const { sent, messages, ends, outcome } of this.#accounts.values()) {
      if (messages === 0) this.#add('lost', `message ${sent.seq} is not in the transcript`, sent)
      if (messages > 1)
        this.#add('doubled', `message ${sent.seq} is in the transcript ${messages} times`, sent)
      if (ends === 0) this.#add('lost', `message ${sent.seq} has no final turn_ended`, sent)
      if (ends > 1) this.#add('doubled', `message ${sent.seq} was ended ${ends} times`, sent)
      if (ends > 0 && outcome !== 'completed')
        this.#add('notCompleted', `message ${sent.seq} ended as ${outcome}`, sent)
    }
  }

  /** Whether any message got a reply. A handler that replies has to reply to all. */
  get hasReplies(): boolean {
    return [...this.#accounts.values()].some(({ replies }) => replies.size > 0)
  }

  /** Exactly one reply in the attempt that ended the message. */
  checkReplies(): void {
    for (const { sent, replies, lastAttempt, outcome } of this.#accounts.values()) {
      if (outcome !== 'completed') continue
      const count = replies.get(lastAttempt) ?? 0
      if (count === 0) this.#add('lost', `message ${sent.seq} has no reply`, sent)
      if (count > 1) this.#add('doubled', `message ${sent.seq} has ${count} replies`, sent)
    }
  }

  #checkPlace({ entry, epoch }: Entry): void {
    // Old entries may have been pruned, so only the first one may have any number.
    if (this.#entry !== undefined && entry !== this.#entry + 1) {
      this.#add('gap', `entry ${entry} follows ${this.#entry}`)
    }
    if (epoch < this.#epoch) this.#add('epoch', `entry ${entry} has epoch ${epoch} after ${this.#epoch}`)
    this.#entry = entry
    this.#epoch = Math.max(this.#epoch, epoch)
  }

  #onMessage({ seq, payload }: Entry, account: Account | undefined): void {
    if (seq < this.#message)
      this.#add('outOfOrder', `message ${seq} comes after ${this.#message}`, account?.sent)
    this.#message = Math.max(this.#message, seq)
    if (!account) return
    account.messages += 1
    const { payload: text } = Object(payload) as { payload?: unknown }
    if (text !== account.sent.text)
      this.#add('altered', `message ${seq} does not say what was sent`, account.sent)
  }

  #checkTurn(seq: number, account: Account | undefined): void {
    if (this.#ended === undefined || seq === this.#ended + 1) return
    this.#add('outOfOrder', `message ${seq} started after the end of ${this.#ended}`, account?.sent)
  }

  #onEnd({ seq, attempt }: Entry, outcome: string, account: Account | undefined): void {
    if (this.#ended !== undefined && seq < this.#ended) {
      this.#add('outOfOrder', `message ${seq} ended after ${this.#ended}`, account?.sent)
    }
    this.#ended = Math.max(this.#ended ?? 0, seq)
    if (!account) return
    account.ends += 1
    account.outcome = outcome
    account.lastAttempt = attempt
  }

  #add(kind: Problem['kind'], detail: string, sent?: Sent): void {
    this.problems.push({ kind, session: this.#session, ...(sent && { line: sent.line }), detail })
  }
}
