/** Puts checked messages into the inbox, in a transaction of ours or of the caller's, and tells somebody afterwards. */
import type { Transaction } from 'kysely'
import type { ButlerError } from '../base/errors.ts'
import type { Database } from '../mysql/schema.ts'
import { toUnavailable } from '../mysql/trouble.ts'
import type { Accepted, Submission } from '../protocol/intake.ts'
import { formatReference } from '../redis/queue.ts'
import type { CallersTransaction } from './answers.ts'
import type { Notifier } from './notifier.ts'
import type { Stores } from './stores.ts'

type Outcomes = readonly (Accepted | ButlerError)[]

export class Sender {
  readonly #stores: Stores
  readonly #notifier: Notifier

  constructor(stores: Stores, notifier: Notifier) {
    this.#stores = stores
    this.#notifier = notifier
  }

  /** What became of each message; `notify` is to be called when all of it is committed, and never rejects. */
  async send(
    submissions: readonly Submission[],
    trx: CallersTransaction | undefined,
  ): Promise<{ outcomes: Outcomes; notify: () => Promise<void> }> {
    const outcomes = submissions.length === 0 ? [] : await this.#accept(submissions, trx)
    return { outcomes, notify: () => this.#notify(submissions, outcomes) }
  }

  async #accept(submissions: readonly Submission[], trx: CallersTransaction | undefined): Promise<Outcomes> {
    const { inbox, tunables } = this.#stores
    try {
      if (trx) return await inbox.acceptWithin(trx as unknown as Transaction<Database>, submissions)
      return await inbox.accept(submissions, tunables.enqueueTimeoutMs)
    } catch (error) {
      // In the caller's transaction a deadlock is the caller's to see and to retry, as the driver said it.
      throw trx ? error : toUnavailable(error)
    }
  }

  #notify(submissions: readonly Submission[], outcomes: Outcomes): Promise<void> {
    return this.#notifier.accepted(
      submissions.flatMap(({ sessionId, whenBusy }, index) => {
        const outcome = outcomes[index]
        if (outcome === undefined || outcome instanceof Error) return []
        const stopThrough = whenBusy === 'interrupt' && !outcome.duplicate ? outcome.seq - 1 : undefined
        return [{ id: sessionId, reference: formatReference(outcome), stopThrough }]
      }),
    )
  }
}

/** What became of a single message; throws why it was refused. */
export function only(outcomes: Outcomes): Accepted {
  const [outcome] = outcomes
  if (outcome === undefined) throw new Error('The inbox gave no answer.')
  if (outcome instanceof Error) throw outcome
  return outcome
}
