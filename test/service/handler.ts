// What the servers of test/service run: streams some words, writes a note, and takes as long as its message says.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Turn } from '../../src/index.ts'

export interface Order {
  /** Which message it is, for whoever counts them. */
  readonly mark: string
  /** How long the turn takes. */
  readonly ms: number
}

export async function handler(turn: Turn): Promise<string> {
  const { mark, ms } = turn.message.payload as unknown as Order
  for (const word of ['one', 'two', 'three']) turn.emit(word)
  await turn.append({ type: 'note', payload: mark })
  await sleep(ms, undefined, { signal: turn.signal })
  return mark
}
