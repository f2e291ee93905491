/** Repeats a read through an outage, for callers that have nothing better to do than to wait for the database. */
import { backoffMs, sleep } from '../base/timing.ts'
import { isRetryable } from './trouble.ts'

/** Resolves as soon as `read` does; rejects at once with what is not an outage, and with the outage when `signal` fires. */
export async function patiently<T>(read: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await read()
    } catch (error) {
      if (signal.aborted || !isRetryable(error)) throw error
      await sleep(backoffMs(tries, 20, 1000), signal)
    }
  }
}
