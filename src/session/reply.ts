/**
 * What an attempt has emitted, as far as this process knows: shared by everybody who watches the session, bounded like
 * the list in Redis. Whoever began to read it may do so to its end, also when a newer attempt is under way.
 */
import type { Attempt } from '../protocol/cursor.ts'
import type { Chunk, Delta } from '../redis/live.ts'

export class Reply implements Attempt {
  readonly seq: number
  readonly attempt: number
  readonly epoch: number
  readonly #chunks: Chunk[] = []
  #size = 0

  constructor({ seq, attempt, epoch }: Chunk) {
    this.seq = seq
    this.attempt = attempt
    this.epoch = epoch
  }

  get last(): number {
    return this.#chunks.at(-1)?.deltas.at(-1)?.index ?? 0
  }

  /** Adds what is new in it; the oldest chunks beyond the limits go. */
  add(chunk: Chunk, limits: { maxDeltas: number; maxBytes: number }): void {
    const { last } = this
    const deltas = chunk.deltas.filter(({ index }) => index > last)
    if (deltas.length === 0) return
    this.#chunks.push({ ...chunk, deltas })
    this.#size += chunk.size
    for (let [oldest] = this.#chunks; oldest && this.#chunks.length > 1; [oldest] = this.#chunks) {
      const first = oldest.deltas[0]?.index ?? 0
      if (this.last - first < limits.maxDeltas && this.#size <= limits.maxBytes) return
      this.#size -= oldest.size
      this.#chunks.shift()
    }
  }

  /** The first delta behind `index`. */
  next(index: number): Delta | undefined {
    const chunk = this.#chunks[firstWhere(this.#chunks, ({ deltas }) => (deltas.at(-1)?.index ?? 0) > index)]
    return chunk?.deltas[firstWhere(chunk.deltas, (delta) => delta.index > index)]
  }
}

/** By halves: `is` is false up to some place in the list and true from there on. */
function firstWhere<T>(list: readonly T[], is: (item: T) => boolean): number {
  let [low, high] = [0, list.length]
  while (low < high) {
    const middle = (low + high) >> 1
    const item = list[middle]
    if (item !== undefined && is(item)) high = middle
    else low = middle + 1
  }
  return low
}
