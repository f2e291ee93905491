/**
 * Answers a stop: what became of each message that it covers. Only a message under way can still be running; whoever
 * wants to know that it is quiet waits for that one. The feed of the session says when to look at its row, and since
 * notices may be lost, somebody who waits looks every second or so by himself. Nobody waits: no feed, no look.
 */
import { Alarm, now, sleep } from '../base/timing.ts'
import { readTurnEnds, readWithdrawn } from '../mysql/stop-reads.ts'
import type { Stopped } from '../protocol/intake.ts'
import { resultOf, type StopResult } from '../protocol/stop-outcome.ts'
import type { StopOutcome, StopReceipt } from './answers.ts'
import type { Feed, Reader } from './feed.ts'
import type { Lookout } from './lookout.ts'
import type { Stores } from './stores.ts'

export interface Patience {
  /** Monotonic time of the call. */
  readonly since: number
  readonly waitMs: number
  readonly signal: AbortSignal | undefined
}

/** More are stopped alike, and not listed. */
const LISTED_MAX = 1000

export async function receiptOf(
  stores: Stores,
  lookout: Lookout,
  sessionId: string,
  stopped: Stopped,
  patience: Patience,
): Promise<StopReceipt> {
  const { through, running, doneSeq, after, underWay } = stopped
  const upTo = Math.min(stopped.upTo, after + LISTED_MAX)
  const ms = () => Math.round(now() - patience.since)
  const waits = { after: Math.max(after, doneSeq + (underWay === null ? 0 : 1)), upTo }
  const withdrawn = waits.after < upTo ? await readWaiting(stores, sessionId, waits) : new Set<number>()
  const at = ms()
  const outcomes = Array.from({ length: Math.max(0, upTo - after) }, (_, index): StopOutcome => {
    const seq = after + 1 + index
    const isOver = seq <= doneSeq || withdrawn.has(seq)
    return { seq, outcome: isOver ? 'already-done' : 'never-started', ms: at }
  })
  if (underWay === null) return { through, running, quiet: true, outcomes }
  const outcome = await (running === null
    ? readResult(stores, sessionId, underWay)
    : untilOver(stores, lookout, sessionId, running, patience))
  outcomes[underWay - after - 1] = { seq: underWay, outcome, ms: ms() }
  return { through, running, quiet: outcome !== 'stopping', outcomes }
}

/** The stop is committed, so a database that fails now makes the answer less exact, and nothing else. */
function readWaiting(
  stores: Stores,
  session: string,
  range: { after: number; upTo: number },
): Promise<Set<number>> {
  return readWithdrawn(stores.mysql.db, session, range).catch((error: unknown) => {
    stores.telemetry.emit('mysql.trouble', { error, session })
    return new Set<number>()
  })
}

function readResult(stores: Stores, session: string, seq: number): Promise<StopResult> {
  return readTurnEnds(stores.mysql.db, session, seq).then(resultOf, (error: unknown) => {
    stores.telemetry.emit('mysql.trouble', { error, session })
    return 'stopping'
  })
}

/** Waits for the end of a turn that ran when it was stopped; `stopping` when the patience is over first. */
async function untilOver(
  stores: Stores,
  lookout: Lookout,
  sessionId: string,
  seq: number,
  { since, waitMs, signal }: Patience,
): Promise<StopResult> {
  if (waitMs === 0 || signal?.aborted) return 'stopping'
  const over = new AbortController()
  const end = () => over.abort()
  const alarm = new Alarm()
  alarm.set(since + waitMs - now(), end)
  signal?.addEventListener('abort', end, { once: true })
  let rest = new AbortController()
  let failure: { readonly error: unknown } | undefined
  const reader: Reader = {
    tell: () => rest.abort(),
    fail: (error) => {
      failure ??= { error }
      end()
    },
  }
  const ended = new Promise<void>((resolve) => {
    over.signal.addEventListener('abort', () => {
      rest.abort()
      resolve()
    })
  })
  const feed = lookout.join(sessionId, reader)
  try {
    const look = () => Promise.race([lookout.look(feed), ended])
    // What is published before the subscription stands is not heard.
    void feed.opened.then(() => lookout.look(feed))
    // What the feed saw before may be older than the turn.
    await look()
    while (!over.signal.aborted && isRunning(feed, seq)) {
      rest = new AbortController()
      await sleep(stores.tunables.lookFastMs, rest.signal)
      if (!rest.signal.aborted) await look()
    }
    if (failure) throw failure.error
    if (over.signal.aborted) return 'stopping'
    // Deleted: the row refuses whatever the handler still does.
    return feed.look === null ? 'fenced' : await readResult(stores, sessionId, seq)
  } finally {
    alarm.clear()
    signal?.removeEventListener('abort', end)
    lookout.leave(feed, reader)
  }
}

/** Under the tombstone no further turn of it starts, so what runs under its number is the turn that was stopped. */
const isRunning = ({ look }: Feed, seq: number): boolean =>
  look !== null && (look === undefined || (look.seq === seq && look.state === 'running'))
