/** Answers that are true for a moment: asked for once by all who want them, and remembered for a while. */
import { now } from './timing.ts'

export class ShortMemory<T> {
  readonly #ms: number
  readonly #max: number
  /** Oldest first. */
  readonly #answers = new Map<string, { readonly until: number; readonly answer: Promise<T> }>()

  /** Keeps each answer for `ms` from when it was asked for, and `max` of them: beyond that the oldest go. */
  constructor(options: { ms: number; max: number }) {
    this.#ms = options.ms
    this.#max = options.max
  }

  get size(): number {
    return this.#answers.size
  }

  /** What is remembered under the key, or what `ask` says. Failures are not remembered. */
  recall(key: string, ask: () => Promise<T>): Promise<T> {
    const known = this.#answers.get(key)
    if (known && known.until > now()) return known.answer
    this.#answers.delete(key)
    for (const [oldest] of this.#answers) {
      if (this.#answers.size < this.#max) break
      this.#answers.delete(oldest)
    }
    const asked = { until: now() + this.#ms, answer: ask() }
    this.#answers.set(key, asked)
    asked.answer.catch(() => {
      if (this.#answers.get(key) === asked) this.#answers.delete(key)
    })
    return asked.answer
  }

  forget(): void {
    this.#answers.clear()
  }
}
