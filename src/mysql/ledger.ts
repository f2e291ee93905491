/**
 * Applies the protocol's rules to session rows: lock the rows of a batch in id order, let each rule change its draft,
 * write entries, statuses and numbers, commit. Rules of many sessions share a transaction; each is decided on its own.
 *
 * Three promises:
 * - A locked row never holds up the others: a batch skips it, and in the end its rule runs alone.
 * - A lost answer is settled by comparing the row with what the rule had written, before the rule is applied again.
 * - Trouble (deadlock, outage) is retried whole, after a rollback, until it passes or the caller gives up.
 */
import { UnavailableError } from '../base/errors.ts'
import { Lane } from '../base/lane.ts'
import { backoffMs, sleep } from '../base/timing.ts'
import { Draft } from '../protocol/draft.ts'
import type { SessionRow } from '../protocol/session-row.ts'
import type { Mysql } from './connect.ts'
import { type Doubt, hasHappened, isSameTurnState } from './doubt.ts'
import type { Decide } from './exchange.ts'
import { headsOf, openCallsOf } from './messages.ts'
import { isInDoubt, isRetryable } from './trouble.ts'
import { lockRows, writesOf } from './drafts.ts'

/** A rule changes a draft and says what came of it. It is pure but for clock-like questions and may run twice. */
export type Rule<R> = (draft: Draft) => R

export interface CommitOptions {
  /** Read the next message to run under the lock; `after`: the one that is next when the running one is done. */
  readonly head?: 'now' | 'after'
  /** Read the running turn's open tool calls under the lock. */
  readonly openCalls?: boolean
  /** Bytes of payload that the rule will write; keeps batches within a packet. Default 0. */
  readonly bytes?: number
  /** Ends the retries: the call then rejects with OUTCOME_UNKNOWN. */
  readonly giveUp?: AbortSignal
}

interface Operation {
  readonly sessionId: string
  readonly rule: Rule<unknown>
  readonly options: CommitOptions
  readonly resolve: (result: unknown) => void
  readonly reject: (error: unknown) => void
  tries: number
  /** How often its row was found locked by somebody else. */
  skips: number
  inDoubt?: Doubt
}

/** What came of a batch: answers, operations to run alone, and what to compare with should the COMMIT be in doubt. */
interface Outcome {
  readonly settled: Map<Operation, unknown>
  readonly deferred: Operation[]
  readonly doubts: Map<Operation, Doubt>
  /** Sessions with new entries, as far as this batch knows. */
  readonly written: Set<string>
}

const BATCH_ROWS = 200
const BATCH_BYTES = 2 ** 21
const LEFTOVERS_AT_ONCE = 3
const SKIPS_MAX = 2

export class Ledger {
  readonly #mysql: Mysql
  readonly #onTrouble: (error: unknown) => void
  readonly #onWritten: (sessionIds: string[]) => void
  readonly #batches: Lane<Operation>
  readonly #leftovers: Lane<Operation>

  /** `onWritten`: told the sessions that have new entries, after the commit and before its callers are. */
  constructor(
    mysql: Mysql,
    options: { onTrouble: (error: unknown) => void; onWritten?: (sessionIds: string[]) => void },
  ) {
    this.#mysql = mysql
    this.#onTrouble = options.onTrouble
    this.#onWritten = options.onWritten ?? (() => {})
    this.#batches = new Lane({
      run: (operations) => this.#run(operations, { waitForLocks: false }),
      maxItems: BATCH_ROWS,
      maxWeight: BATCH_BYTES,
      weigh: (operation) => operation.options.bytes ?? 0,
      width: 1,
    })
    this.#leftovers = new Lane({
      run: (operations) => this.#run(operations, { waitForLocks: true }),
      maxItems: 1,
      width: LEFTOVERS_AT_ONCE,
    })
  }

  /**
   * Applies `rule` to the session's row and commits. Resolves with what the rule said, or with undefined when there
   * is no such session. Retries through outages; rejects only when `giveUp` fires or the change itself is impossible.
   */
  commit<R>(sessionId: string, rule: Rule<R>, options: CommitOptions = {}): Promise<R | undefined> {
    return new Promise((resolve, reject) => {
      const late = () => reject(tooLate(undefined))
      options.giveUp?.addEventListener('abort', late, { once: true })
      this.#batches.push({
        sessionId,
        rule,
        options,
        resolve: (result) => {
          options.giveUp?.removeEventListener('abort', late)
          resolve(result as R | undefined)
        },
        reject,
        tries: 0,
        skips: 0,
      })
    })
  }

  async #run(operations: Operation[], how: { waitForLocks: boolean }): Promise<void> {
    const settled = new Map<Operation, unknown>()
    const deferred: Operation[] = []
    const doubts = new Map<Operation, Doubt>()
    const written = new Set<string>()
    try {
      await this.#mysql.exchange(...this.#plan(operations, how, { settled, deferred, doubts, written }))
      if (written.size > 0) this.#onWritten([...written])
      for (const [operation, result] of settled) operation.resolve(result)
      for (const operation of deferred) this.#again(operation)
    } catch (error) {
      const inDoubt = isInDoubt(error)
      if (inDoubt || isRetryable(error)) {
        // A doubt of an earlier try stays until the row has answered it: this one may not have reached the server.
        if (inDoubt) for (const [operation, doubt] of doubts) operation.inDoubt = doubt
        void this.#retry(operations, error)
      } else if (operations.length > 1) {
        // One impossible change must not take its neighbours down with it.
        for (const operation of operations) this.#leftovers.push(operation)
      } else {
        for (const operation of operations) operation.reject(error)
      }
    }
  }

  /** Mostly a producer holds the row, for a moment: worth another batch or two before a transaction of its own. */
  #again(operation: Operation): void {
    operation.skips += 1
    if (operation.skips <= SKIPS_MAX) this.#batches.push(operation)
    else this.#leftovers.push(operation)
  }

  /** What to ask for a batch, and how to decide on the answers. */
  #plan(operations: readonly Operation[], { waitForLocks }: { waitForLocks: boolean }, outcome: Outcome) {
    const { db } = this.#mysql
    const ids = [...new Set(operations.map((operation) => operation.sessionId))].sort()
    const wanting = (wants: (options: CommitOptions) => boolean) => [
      ...new Set(operations.filter(({ options }) => wants(options)).map(({ sessionId }) => sessionId)),
    ]
    const after = new Set(wanting(({ head }) => head === 'after'))
    const headed = new Set(wanting(({ head }) => head !== undefined))
    const questions = [
      lockRows(ids, !waitForLocks),
      headsOf([...headed], [...after]),
      openCallsOf(wanting(({ openCalls }) => openCalls === true)),
    ] as const
    const decide: Decide<typeof questions, void> = (rows, heads, calls) => {
      const read = ({ id, doneSeq }: SessionRow) => ({
        message: headed.has(id)
          ? { seq: doneSeq + (after.has(id) ? 2 : 1), message: heads.get(id) }
          : undefined,
        openCalls: calls.get(id) ?? [],
      })
      return {
        writes: writesOf(db, apply(operations, rows, read, { waitForLocks, ...outcome })),
        result: undefined,
      }
    }
    return [questions, decide] as const
  }

  async #retry(operations: readonly Operation[], error: unknown): Promise<void> {
    this.#onTrouble(error)
    const tries = Math.max(...operations.map((operation) => ++operation.tries))
    await sleep(backoffMs(tries, 10, 1000))
    for (const operation of operations) {
      if (operation.options.giveUp?.aborted) operation.reject(tooLate(error))
      else this.#batches.push(operation)
    }
  }
}

function tooLate(cause: unknown): UnavailableError {
  return new UnavailableError(
    'OUTCOME_UNKNOWN',
    'The database did not answer in time; the change may or may not have happened. Repeating the call is safe.',
    { cause },
  )
}

/** Lets each rule change its draft; returns the drafts that were changed. */
function apply(
  operations: readonly Operation[],
  rows: ReadonlyMap<string, SessionRow>,
  read: (row: SessionRow) => ConstructorParameters<typeof Draft>[1],
  { waitForLocks, settled, deferred, doubts, written }: Outcome & { waitForLocks: boolean },
): Draft[] {
  const drafts = new Map<string, Draft>()
  const applied: Operation[] = []
  for (const operation of operations) {
    const row = rows.get(operation.sessionId)
    if (!row) {
      if (waitForLocks) settled.set(operation, undefined)
      else deferred.push(operation)
      continue
    }
    if (operation.inDoubt && hasHappened(row, operation.inDoubt)) {
      settled.set(operation, operation.inDoubt.result)
      written.add(row.id)
      continue
    }
    let draft = drafts.get(row.id)
    // What was read for the first rule of a session may be stale for the second one.
    if (draft?.touched && (operation.options.head || operation.options.openCalls)) {
      deferred.push(operation)
      continue
    }
    if (!draft) drafts.set(row.id, (draft = new Draft(row, read(row))))
    settled.set(operation, operation.rule(draft))
    applied.push(operation)
  }
  const touched = [...drafts.values()].filter((draft) => draft.touched)
  for (const { entries, row } of touched) if (entries.length > 0) written.add(row.id)
  for (const operation of applied) {
    const before = rows.get(operation.sessionId)
    const after = drafts.get(operation.sessionId)?.row
    // A rule that leaves the turn alone (a stop) cannot be told by comparing, and may simply run again.
    if (before && after && !isSameTurnState(before, after)) {
      doubts.set(operation, { before, row: { ...after }, result: settled.get(operation) })
    }
  }
  return touched
}
