// Randomness from a seed: the same seed and names give the same throws, in whatever process and order they are thrown.
import { createHash } from 'node:crypto'

export class Dice {
  #state: number

  private constructor(state: number) {
    this.#state = state
  }

  /** Dice of their own for whatever these parts name. */
  static of(...parts: readonly (string | number)[]): Dice {
    return new Dice(createHash('sha256').update(parts.join('\n')).digest().readUInt32LE())
  }

  /** From 0 to below 1 (mulberry32). */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  /** A whole number, both ends included. */
  between(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1))
  }

  chance(probability: number): boolean {
    return this.next() < probability
  }

  pick<T>(list: readonly T[]): T {
    const found = list[Math.floor(this.next() * list.length)]
    if (found === undefined) throw new Error('Nothing to pick from.')
    return found
  }

  /** Something of the list, each as likely as its weight. */
  weighted<T extends { readonly weight: number }>(list: readonly T[]): T {
    let rest = this.next() * list.reduce((sum, { weight }) => sum + weight, 0)
    return list.find(({ weight }) => (rest -= weight) < 0) ?? this.pick(list)
  }
}
