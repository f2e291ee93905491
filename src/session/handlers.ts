/** The handlers of a process, by message kind. Throws InvalidInputError for what cannot run a message. */
import { InvalidInputError } from '../base/errors.ts'
import { checkKind } from '../base/ids.ts'
import type { Handler } from './handler.ts'

export class Handlers {
  /** For every kind that has none of its own. */
  readonly #fallback: Handler | undefined
  readonly #byKind: ReadonlyMap<string, Handler>

  constructor(fallback: Handler | undefined, byKind: Readonly<Record<string, Handler>> = {}) {
    if (typeof byKind !== 'object' || byKind === null || Array.isArray(byKind)) {
      throw wrong('handlers is an object: { kind: async (turn) => { … } }.')
    }
    this.#fallback = fallback
    this.#byKind = new Map(
      Object.entries(byKind).map(([kind, handler]) => [checkKind('Message kind', kind), handler]),
    )
    for (const handler of [fallback, ...this.#byKind.values()]) {
      if (handler !== undefined && typeof handler !== 'function') {
        throw wrong('handler and handlers take functions: async (turn) => { … }.')
      }
    }
    if (fallback === undefined && this.#byKind.size === 0) {
      throw wrong('A worker needs a handler, or handlers by message kind.')
    }
  }

  /** What a heartbeat says of them; `*` means any. */
  get kinds(): string[] {
    return this.#fallback ? ['*'] : [...this.#byKind.keys()]
  }

  for(kind: string): Handler | undefined {
    return this.#byKind.get(kind) ?? this.#fallback
  }
}

const wrong = (message: string) => new InvalidInputError('INVALID_OPTIONS', message)
