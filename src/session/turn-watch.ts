/**
 * Watches the clock of one turn: ends it when it takes too long or makes no progress, and ends the patience with a
 * handler that goes on after its signal, so that it does not hold up its session.
 */
import type { Tunables } from '../base/options.ts'
import { Alarm, now } from '../base/timing.ts'

export class TurnWatch {
  /** Resolves when the signal has fired and the handler's time to react to it is over. */
  readonly outOfPatience: Promise<undefined>
  readonly #deadline = new Alarm()
  readonly #quiet = new Alarm()
  readonly #patience = new Alarm()

  constructor(options: {
    tunables: Tunables
    signal: AbortSignal
    /** Monotonic time of the last sign of progress. */
    progressAt: () => number
    onTimeout: () => void
    /** Asked when the signal has fired: how long the handler may go on, milliseconds. */
    graceMs: () => number
  }) {
    const { tunables, signal, progressAt, onTimeout, graceMs } = options
    this.#deadline.set(tunables.turnTimeoutMs, onTimeout)
    const look = () => {
      const quietMs = now() - progressAt()
      if (quietMs >= tunables.progressTimeoutMs) onTimeout()
      else this.#quiet.set(tunables.progressTimeoutMs - quietMs, look)
    }
    look()
    this.outOfPatience = new Promise((resolve) => {
      const lose = () => this.#patience.set(graceMs(), () => resolve(undefined))
      if (signal.aborted) lose()
      else signal.addEventListener('abort', lose, { once: true })
    })
  }

  end(): void {
    for (const alarm of [this.#deadline, this.#quiet, this.#patience]) alarm.clear()
  }
}
