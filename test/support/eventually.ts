// Waits for something to become true, by looking again and again: the only way in which a test waits for what gives no
// signal. On its deadline it fails with what the last look said, not with "timed out".
//
//   await eventually(() => expect(worker.stats().running).toBe(0))      until it does not throw
//   const row = await until(() => rows.find(({ id }) => id === 'a'))    until it is not undefined, null or false
import { setTimeout as sleep } from 'node:timers/promises'

export interface Patience {
  /** Gives up after so many milliseconds. Default 15,000: the machine may be busy. */
  readonly ms?: number
  /** Pause between two looks. Default 20. */
  readonly everyMs?: number
  /** What is waited for, for the message. */
  readonly what?: string
}

/** Resolves with what `look` returns as soon as it does not throw. */
export async function eventually<T>(look: () => T | Promise<T>, patience: Patience = {}): Promise<T> {
  const { ms = 15_000, everyMs = 20, what = 'it' } = patience
  const giveUp = performance.now() + ms
  for (;;) {
    try {
      return await look()
    } catch (error) {
      if (performance.now() > giveUp) {
        const reason = error instanceof Error ? error.message : String(error)
        throw new Error(`Waited ${ms} ms for ${what}; last: ${reason}`, { cause: error })
      }
      await sleep(everyMs)
    }
  }
}

/** Resolves with the first value of `look` that is neither undefined, null nor false. Errors of `look` are final. */
export async function until<T>(
  look: () => T | Promise<T>,
  patience: Patience = {},
): Promise<Exclude<T, undefined | null | false>> {
  let failure: { error: unknown } | undefined
  const found = await eventually(async () => {
    try {
      const value = await look()
      if (value !== undefined && value !== null && value !== false) return { value }
    } catch (error) {
      failure = { error }
      return undefined
    }
    throw new Error('not yet')
  }, patience)
  if (!found) throw failure?.error
  return found.value as Exclude<T, undefined | null | false>
}

export { sleep }
