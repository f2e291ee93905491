// The worlds that were met: their codes in full, so that two worlds are never taken for one, in little memory.

/** Numbers without a known end. */
export class Numbers<List extends Int32Array | Uint8Array | Uint16Array> {
  list: List
  length = 0
  readonly #make: new (length: number) => List

  constructor(make: new (length: number) => List) {
    this.#make = make
    this.list = new make(1024)
  }

  push(value: number): void {
    if (this.length === this.list.length) {
      const longer = new this.#make(this.length * 2)
      longer.set(this.list)
      this.list = longer
    }
    this.list[this.length++] = value
  }

  at(index: number): number {
    return this.list[index] ?? 0
  }
}

const CHUNK = 2 ** 24

export class Known {
  count = 0
  readonly #chunks: Uint8Array[] = [new Uint8Array(CHUNK)]
  #used = 0
  /** Where each code begins, and its hash. */
  readonly #starts = new Numbers(Int32Array)
  readonly #hashes = new Numbers(Int32Array)
  #table = new Int32Array(2 ** 16)

  /** The world's number; a new one is the count before. */
  add(code: Uint8Array, length: number): number {
    let hash = 0x811c9dc5
    for (let index = 0; index < length; index++) hash = Math.imul(hash ^ (code[index] ?? 0), 0x01000193)
    hash ^= hash >>> 15
    hash = Math.imul(hash, 0x2c1b3c6d)
    hash ^= hash >>> 13
    const mask = this.#table.length - 1
    let slot = hash & mask
    for (let entry = this.#table[slot] ?? 0; entry > 0; entry = this.#table[slot] ?? 0) {
      if (this.#hashes.at(entry - 1) === hash && this.#is(entry - 1, code, length)) return entry - 1
      slot = (slot + 1) & mask
    }
    this.#table[slot] = this.count + 1
    this.#keep(code, length)
    this.#hashes.push(hash)
    this.count += 1
    if (this.count * 2 > this.#table.length) this.#grow()
    return this.count - 1
  }

  #keep(code: Uint8Array, length: number): void {
    if ((this.#used % CHUNK) + length + 2 > CHUNK) this.#used = this.#chunks.length * CHUNK
    const chunk = (this.#chunks[Math.floor(this.#used / CHUNK)] ??= new Uint8Array(CHUNK))
    const start = this.#used % CHUNK
    chunk[start] = length >> 8
    chunk[start + 1] = length & 255
    for (let index = 0; index < length; index++) chunk[start + 2 + index] = code[index] ?? 0
    this.#starts.push(this.#used)
    this.#used += length + 2
  }

  #is(entry: number, code: Uint8Array, length: number): boolean {
    const where = this.#starts.at(entry) >>> 0
    const chunk = this.#chunks[Math.floor(where / CHUNK)] ?? code
    const start = where % CHUNK
    if (chunk[start] !== length >> 8 || chunk[start + 1] !== (length & 255)) return false
    for (let index = 0; index < length; index++) if (chunk[start + 2 + index] !== code[index]) return false
    return true
  }

  #grow(): void {
    const table = new Int32Array(this.#table.length * 2)
    for (let entry = 0; entry < this.count; entry++) {
      let slot = this.#hashes.at(entry) & (table.length - 1)
      while (table[slot]) slot = (slot + 1) & (table.length - 1)
      table[slot] = entry + 1
    }
    this.#table = table
  }
}
