/**
 * Accepts messages: everything a process enqueues at the same time shares one transaction, which is retried whole when
 * the database has trouble, and undone and split when one of its messages cannot be stored.
 */
import type { Kysely } from 'kysely'
import { type ButlerError, UnavailableError } from '../base/errors.ts'
import { Lane } from '../base/lane.ts'
import { Alarm, backoffMs, now, sleep } from '../base/timing.ts'
import type { Accepted, Submission } from '../protocol/intake.ts'
import { admission, admitWithin } from './admission.ts'
import type { Mysql } from './connect.ts'
import type { Database } from './schema.ts'
import { isInDoubt, isLockWait, isRetryable } from './trouble.ts'

type Trx = Kysely<Database>

interface Request {
  readonly submissions: readonly Submission[]
  /** Monotonic time. */
  readonly giveUpAt: number
  readonly resolve: (results: (Accepted | ButlerError)[]) => void
  readonly reject: (error: unknown) => void
  /** Its COMMIT is under way, or the answer to one was lost: its fate is open. */
  open: boolean
  /** A COMMIT's answer was lost once: the messages' own ids must be looked up too. */
  repeated: boolean
}

const BATCH_CALLS = 200
const BATCH_BYTES = 2 ** 21
const ALONE_AT_ONCE = 3

export class Inbox {
  readonly #mysql: Mysql
  readonly #queueMax: number
  readonly #onTrouble: (error: unknown) => void
  readonly #lane: Lane<Request>
  readonly #alone: Lane<Request>
  /** Without an answer, oldest first. */
  readonly #pending = new Set<Request>()
  readonly #alarm = new Alarm()

  constructor(mysql: Mysql, options: { queueMax: number; onTrouble: (error: unknown) => void }) {
    this.#mysql = mysql
    this.#queueMax = options.queueMax
    this.#onTrouble = options.onTrouble
    this.#lane = new Lane({
      run: (requests) => this.#run(requests),
      maxItems: BATCH_CALLS,
      maxWeight: BATCH_BYTES,
      weigh: ({ submissions }) => submissions.reduce((bytes, { payload }) => bytes + payload.length, 0),
    })
    this.#alone = new Lane({ run: (requests) => this.#run(requests), maxItems: 1, width: ALONE_AT_ONCE })
  }

  /**
   * Resolves, per submission, with its place or with the reason why it was refused. Retries for `timeoutMs`; then
   * rejects with OUTCOME_UNKNOWN if a try is still open, else with MYSQL_UNAVAILABLE (nothing happened).
   */
  accept(submissions: readonly Submission[], timeoutMs: number): Promise<(Accepted | ButlerError)[]> {
    return new Promise((resolve, reject) => {
      const request: Request = {
        submissions,
        giveUpAt: now() + timeoutMs,
        resolve: (results) => {
          this.#settled(request)
          resolve(results)
        },
        reject: (error) => {
          this.#settled(request)
          reject(error instanceof Error ? error : new Error(String(error)))
        },
        open: false,
        repeated: false,
      }
      this.#pending.add(request)
      if (this.#pending.size === 1) this.#watch()
      this.#lane.push(request)
    })
  }

  #settled(request: Request): void {
    this.#pending.delete(request)
    if (this.#pending.size === 0) this.#alarm.clear()
  }

  /** One alarm for all: they give up in the order in which they came. */
  #watch(): void {
    for (const request of this.#pending) {
      const leftMs = request.giveUpAt - now()
      if (leftMs > 0) return this.#alarm.set(leftMs, () => this.#watch())
      request.reject(tooLate(request))
    }
    this.#alarm.clear()
  }

  /** The same within the caller's transaction, which decides when it commits; any error is the caller's to handle. */
  acceptWithin(trx: Trx, submissions: readonly Submission[]): Promise<(Accepted | ButlerError)[]> {
    // The caller's plugins (camel case, say) are not meant for our tables.
    return admitWithin(trx.withoutPlugins(), submissions, this.#queueMax)
  }

  async #run(all: Request[]): Promise<void> {
    // Whoever was told that nothing happened must be right.
    const requests = all.filter((request) => this.#pending.has(request))
    if (requests.length === 0) return
    const submissions = requests.flatMap((request) => request.submissions)
    const repeated = requests.some((request) => request.repeated)
    try {
      const [questions, decide] = admission(this.#mysql.db, submissions, {
        queueMax: this.#queueMax,
        repeated,
      })
      const results = await this.#mysql.exchange(questions, (...answers) => {
        const decision = decide(...answers)
        // The last moment: what follows is the COMMIT.
        if (requests.some((request) => !this.#pending.has(request))) throw new GivenUp()
        for (const request of requests) request.open = true
        return decision
      })
      let at = 0
      for (const request of requests) request.resolve(results.slice(at, (at += request.submissions.length)))
    } catch (error) {
      const inDoubt = isInDoubt(error)
      for (const request of requests) {
        request.repeated ||= inDoubt
        request.open = request.repeated
      }
      if (error instanceof GivenUp) {
        for (const request of requests) this.#lane.push(request)
      } else if (requests.length > 1 && isLockWait(error)) {
        // Somebody holds one of the rows: only who sends there has to wait for it.
        this.#onTrouble(error)
        for (const request of requests) this.#alone.push(request)
      } else if (inDoubt || isRetryable(error)) {
        this.#onTrouble(error)
        await sleep(backoffMs(2, 10, 50))
        for (const request of requests) this.#lane.push(request)
      } else if (requests.length > 1) {
        // Rolled back: one bad row must not take its neighbours down with it.
        for (const request of requests) this.#alone.push(request)
      } else {
        for (const request of requests) request.reject(error)
      }
    }
  }
}

/** Somebody in the batch was told that nothing happened, so it is undone and tried without them. */
class GivenUp extends Error {}

function tooLate(request: Request): UnavailableError {
  return request.open
    ? new UnavailableError(
        'OUTCOME_UNKNOWN',
        'The database did not answer in time; the message may or may not have been accepted. ' +
          'Enqueue it again with the same idempotency key: it will not be doubled.',
      )
    : new UnavailableError(
        'MYSQL_UNAVAILABLE',
        'The database did not answer in time; nothing was accepted. Try again.',
      )
}
