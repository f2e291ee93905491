/**
 * Ctrl-C, SIGTERM and SIGHUP (the terminal or the session that started it is gone) for commands that have something to
 * bring to an end. Others simply end, as programs do.
 */

const NUMBERS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const

/** What a shell reports for a program that this signal ended. */
export const exitCodeFor = (signal: keyof typeof NUMBERS): number => 128 + NUMBERS[signal]

/** The first signal is answered by `first`, in order; a second one ends the process at once. */
export function onSignal(first: (signal: keyof typeof NUMBERS) => void): void {
  let heard = false
  for (const signal of Object.keys(NUMBERS) as (keyof typeof NUMBERS)[]) {
    process.on(signal, () => {
      if (heard) process.exit(exitCodeFor(signal))
      heard = true
      first(signal)
    })
  }
}
