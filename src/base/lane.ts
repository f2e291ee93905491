/**
 * Group commit: whatever came in while the previous batch ran goes into the next one. No timer windows: alone, an
 * item runs at once; under load, batches grow by themselves. Sharing transactions is nearly the whole gain in
 * throughput, and this is all the machinery it needs.
 */
export class Lane<T> {
  readonly #run: (items: T[]) => Promise<void>
  readonly #maxItems: number
  readonly #maxWeight: number
  readonly #weigh: (item: T) => number
  readonly #width: number
  #waiting: T[] = []
  #active = 0

  /** `run` must settle every item by itself and never reject; `width` is how many batches may run at once. */
  constructor(options: {
    run: (items: T[]) => Promise<void>
    maxItems: number
    maxWeight?: number
    weigh?: (item: T) => number
    width?: number
  }) {
    this.#run = options.run
    this.#maxItems = options.maxItems
    this.#maxWeight = options.maxWeight ?? Infinity
    this.#weigh = options.weigh ?? (() => 0)
    this.#width = options.width ?? 1
  }

  push(item: T): void {
    this.#waiting.push(item)
    // A microtask later, so that everything pushed in this turn of the event loop shares the batch.
    if (this.#active < this.#width && this.#waiting.length === 1) queueMicrotask(() => this.#pump())
  }

  #pump(): void {
    while (this.#active < this.#width && this.#waiting.length > 0) {
      this.#active += 1
      const finished = () => {
        this.#active -= 1
        this.#pump()
      }
      this.#run(this.#nextBatch()).then(finished, finished)
    }
  }

  /** From the front, up to the limits; a single item over the weight limit goes alone. */
  #nextBatch(): T[] {
    let weight = 0
    let count = 0
    for (const item of this.#waiting) {
      weight += this.#weigh(item)
      if (count === this.#maxItems || (count > 0 && weight > this.#maxWeight)) break
      count += 1
    }
    return this.#waiting.splice(0, count)
  }
}
