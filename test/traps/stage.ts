// The handler of most traps: remembers its turns; a payload that begins with `wait` makes a turn wait for `go()` or for
// its signal, `deaf` for `go()` alone, `fail` throws.
import type { Handler, Turn } from '../../src/index.ts'
import { eventually } from './world.ts'

export class Stage {
  readonly turns: Turn[] = []
  #waiting = new Map<Turn, () => void>()

  readonly handler: Handler = async (turn) => {
    this.turns.push(turn)
    const script = turn.message.payload as string
    if (script.startsWith('fail')) throw new Error(script)
    if (script.startsWith('wait') || script.startsWith('deaf')) {
      await new Promise<void>((resolve, reject) => {
        this.#waiting.set(turn, resolve)
        if (script.startsWith('wait')) turn.signal.addEventListener('abort', () => reject(turn.signal.reason))
      })
    }
    return `done ${script}`
  }

  /** Resolves when so many turns have begun here. */
  began(count = 1): Promise<unknown> {
    return eventually(() => this.turns.length >= count, `turn ${count} begins`)
  }

  turn(number = 1): Turn {
    const turn = this.turns[number - 1]
    if (!turn) throw new Error(`turn ${number} has not begun`)
    return turn
  }

  /** Lets every waiting turn return. */
  go(): void {
    for (const resolve of this.#waiting.values()) resolve()
    this.#waiting.clear()
  }
}
