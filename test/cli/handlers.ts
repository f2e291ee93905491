// Handlers that the tests of `work` and `replay` run, by message kind. A kind that is not here waits for ever.
import { once } from 'node:events'
import type { Turn } from '../../src/index.ts'

const waitForSignal = (turn: Turn) =>
  new Promise<void>((_resolve, reject) => {
    const end = () => reject(turn.signal.reason as Error)
    if (turn.signal.aborted) end()
    else turn.signal.addEventListener('abort', end, { once: true })
  })

export const handlers = {
  message: (turn: Turn) => `heard ${JSON.stringify(turn.message.payload)}`,
  /** Runs until it is told to stop. */
  obedient: waitForSignal,
  /** Is at work when its process is told to end, and finishes then. */
  unhurried: async (turn: Turn) => {
    const told = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGHUP')])
    await turn.append({ type: 'note', payload: 'at work' })
    await told
    return 'finished'
  },
  /** Never ends and hears nothing. */
  deaf: async (turn: Turn) => {
    await turn.append({ type: 'note', payload: 'deaf' })
    await new Promise(() => {})
  },
}
