/**
 * All waiting happens here: monotonic time, cancellable sleeps, deadlines and repeating ticks. Nothing else in `src`
 * names a timer, so every wait has an owner that can end it, and no timer keeps a finished process alive by accident.
 */

/** Milliseconds on a clock that never jumps. Wall-clock time is for stored timestamps only. */
export const now = (): number => performance.now()

/** Longest delay a Node timer can hold; beyond it a timer fires at once. */
const TIMER_MAX_MS = 2 ** 31 - 1

/** Resolves after `ms`, or earlier when `signal` aborts. Never rejects: the caller looks at what woke it. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve()
  return new Promise((resolve) => {
    const wake = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', wake)
      resolve()
    }
    const timer = setTimeout(wake, Math.min(Math.max(ms, 0), TIMER_MAX_MS))
    signal?.addEventListener('abort', wake, { once: true })
  })
}

/** A one-shot timer that can be called off; it does not keep the process alive. */
export class Alarm {
  #timer: NodeJS.Timeout | undefined

  /** (Re)arms: `ring` runs once after `ms` unless set again or cleared. */
  set(ms: number, ring: () => void): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(ring, Math.min(Math.max(ms, 0), TIMER_MAX_MS))
    this.#timer.unref()
  }

  clear(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }
}

/**
 * Runs `tick` every `ms` (jittered by up to `jitter` of the interval), one at a time, until `stop()`.
 * `soon()` brings the next tick forward. A tick that throws is reported to `onError` and the loop goes on.
 */
export class Ticker {
  readonly #tick: () => Promise<void> | void
  readonly #onError: (error: unknown) => void
  readonly #intervalMs: () => number
  readonly #jitter: number
  #alarm = new Alarm()
  #running: Promise<void> | undefined
  #again = false
  #stopped = true
  #throughAt = 0
  /** The last tick failed. */
  failing = false

  constructor(options: {
    tick: () => Promise<void> | void
    intervalMs: number | (() => number)
    jitter?: number
    onError: (error: unknown) => void
  }) {
    this.#tick = options.tick
    this.#onError = options.onError
    const interval = options.intervalMs
    this.#intervalMs = typeof interval === 'number' ? () => interval : interval
    this.#jitter = options.jitter ?? 0
  }

  start(): void {
    if (!this.#stopped) return
    this.#stopped = false
    this.#throughAt = now()
    this.#arm()
  }

  /** No tick has got through for three intervals: they fail, or one hangs. */
  get overdue(): boolean {
    return !this.#stopped && now() - this.#throughAt > this.#intervalMs() * 3
  }

  /** Ticks now, or once more right after the tick that is running. */
  soon(): void {
    if (this.#stopped) return
    if (this.#running) this.#again = true
    else this.#run()
  }

  /** Resolves when the last tick is over; no further one begins. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#alarm.clear()
    await this.#running
  }

  #arm(): void {
    if (this.#stopped) return
    const interval = this.#intervalMs()
    this.#alarm.set(interval * (1 + this.#jitter * (Math.random() - 0.5)), () => this.#run())
  }

  #run(): void {
    this.#alarm.clear()
    this.#running = (async () => {
      do {
        this.#again = false
        try {
          await this.#tick()
          this.#throughAt = now()
          this.failing = false
        } catch (error) {
          this.failing = true
          this.#onError(error)
        }
      } while (this.#again && !this.#stopped)
      this.#running = undefined
      this.#arm()
    })()
  }
}

/** Settles as `work` does, or rejects with `late()` after `ms`. The loser's rejection is swallowed, not left unhandled. */
export function withDeadline<T>(work: Promise<T>, ms: number, late: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(late()), Math.min(Math.max(ms, 0), TIMER_MAX_MS))
    work.then(
      (value) => {
        clearTimeout(timer)
        resolve(value)
      },
      (error: unknown) => {
        clearTimeout(timer)
        reject(error instanceof Error ? error : new Error(String(error)))
      },
    )
  })
}

/** Aborts `ms` from now. Does not keep the process alive. */
export const deadline = (ms: number): AbortSignal =>
  AbortSignal.timeout(Math.min(Math.max(Math.ceil(ms), 0), TIMER_MAX_MS))

/** Exponential delay with full jitter in its upper half: attempt 1 waits about `baseMs`, never more than `maxMs`. */
export function backoffMs(attempt: number, baseMs: number, maxMs: number): number {
  const full = Math.min(baseMs * 2 ** (attempt - 1), maxMs)
  return full * (0.5 + Math.random() / 2)
}
