/** Repeats a read, or a change that was rolled back, for callers that have nothing better to do than to wait for the database. */
import { backoffMs, sleep } from '../base/timing.ts'
import { isRetryable } from './trouble.ts'

/** Resolves as soon as `work` does; rejects at once with what is not an outage, and with the outage when `signal` fires. */
export async function patiently<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (error) {
      if (signal.aborted || !isRetryable(error)) throw error
      await sleep(backoffMs(tries, 20, 1000), signal)
    }
  }
}
