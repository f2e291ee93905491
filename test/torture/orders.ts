// What a producer does, one order after the other: endless, and the same for the same seed and name.
import type { WhenBusy } from '../../src/protocol/intake.ts'
import type { Script } from '../support/probe-handler.ts'
import { Dice } from './dice.ts'

export interface Send {
  readonly session: string
  readonly script: Script
  /** In the payload, so that a row tells whose call made it; calls with the same key have the same one. */
  readonly mark: string
  readonly key?: string
  readonly whenBusy?: WhenBusy
}

export type Order =
  /** One after the other, all at the same time, or in one call. */
  | { readonly do: 'send'; readonly how: 'one' | 'together' | 'batch'; readonly sends: readonly Send[] }
  /** `some`: only up to an earlier message. */
  | { readonly do: 'stop'; readonly session: string; readonly some: boolean }
  | { readonly do: 'withdraw'; readonly session: string }

const SCRIPTS: readonly { weight: number; make: (dice: Dice) => Script }[] = [
  { weight: 50, make: () => ({ do: 'echo' }) },
  { weight: 14, make: (dice) => ({ do: 'sleep', ms: dice.between(20, 600) }) },
  { weight: 14, make: (dice) => ({ do: 'steps', count: dice.between(2, 4), ms: dice.between(5, 150) }) },
  { weight: 7, make: (dice) => ({ do: 'fail', times: dice.between(1, 3) }) },
  { weight: 8, make: () => ({ do: 'tool' }) },
  { weight: 10, make: (dice) => ({ do: 'speak', words: dice.between(2, 12), ms: dice.between(5, 60) }) },
  { weight: 3, make: (dice) => ({ do: 'deaf', ms: dice.between(100, 900) }) },
  { weight: 2, make: () => ({ do: 'hang' }) },
  { weight: 0.2, make: () => ({ do: 'bomb', times: 1 }) },
  { weight: 0.05, make: () => ({ do: 'bomb' }) },
]

/** A stop follows a message that would hang, so many orders later. */
const STOP_AFTER = 12

export function* orders(
  seed: number,
  producer: string,
  { sessions }: { readonly sessions: readonly string[] },
): Generator<Order, never> {
  const dice = Dice.of(seed, 'orders', producer)
  const stops: { at: number; session: string }[] = []
  let marks = 0
  const send = (whenBusy?: WhenBusy): Send => {
    const session = dice.pick(sessions)
    const script = dice.weighted(SCRIPTS).make(dice)
    const base = { session, script, mark: `${producer}-${marks++}` }
    return whenBusy ? { ...base, whenBusy } : base
  }
  for (let number = 0; ; number++) {
    const due = stops.findIndex(({ at }) => at <= number)
    if (due >= 0) {
      yield { do: 'stop', session: stops.splice(due, 1)[0]!.session, some: false }
      continue
    }
    // All producers draw their keys from the same row, so the same key comes from several at about the same time.
    const key = () => keyed(seed, number + dice.between(-6, 0), sessions)
    const order = dice.weighted<{ weight: number; make: () => Order }>([
      { weight: 40, make: () => ({ do: 'send', how: 'one', sends: [send()] }) },
      { weight: 20, make: () => ({ do: 'send', how: 'one', sends: [key()] }) },
      {
        weight: 5,
        make: () => ({ do: 'send', how: 'together', sends: repeated(key(), dice.between(2, 4)) }),
      },
      { weight: 8, make: () => ({ do: 'send', how: 'together', sends: several(send, dice.between(2, 8)) }) },
      {
        weight: 8,
        make: () => ({
          do: 'send',
          how: 'batch',
          sends: [...several(send, dice.between(2, 16)), key(), key()],
        }),
      },
      { weight: 5, make: () => ({ do: 'send', how: 'one', sends: [send('interrupt')] }) },
      { weight: 4, make: () => ({ do: 'send', how: 'one', sends: [send('reject')] }) },
      { weight: 4, make: () => ({ do: 'stop', session: dice.pick(sessions), some: dice.chance(0.3) }) },
      { weight: 4, make: () => ({ do: 'withdraw', session: dice.pick(sessions) }) },
    ])
    const made = order.make()
    if (made.do === 'send')
      for (const { script, session } of made.sends)
        if (script.do === 'hang') stops.push({ at: number + STOP_AFTER, session })
    yield made
  }
}

function keyed(seed: number, number: number, sessions: readonly string[]): Send {
  const dice = Dice.of(seed, 'key', number)
  const [session, script] = [dice.pick(sessions), dice.weighted(SCRIPTS).make(dice)]
  return { session, script, mark: `key-${number}`, key: `key-${number}` }
}

const repeated = (send: Send, times: number): Send[] => Array.from({ length: times }, () => send)
const several = (send: () => Send, times: number): Send[] => Array.from({ length: times }, () => send())
