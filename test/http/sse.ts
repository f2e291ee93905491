// Reads server-sent events as a browser does (the format's own rules, not those of our writer), so that a line which
// becomes a field by accident shows.
export interface Told {
  readonly event: string
  readonly id: string
  readonly data: string
  /** Of `data`. */
  // The tests say what they expect of it.
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly value: any
}

export class Reader {
  readonly events: Told[] = []
  readonly comments: string[] = []
  readonly retries: number[] = []
  /** Fields that the format does not know. */
  readonly strange: string[] = []
  /** As the browser would send it when it connects again. */
  lastId = ''
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>
  readonly #decoder = new TextDecoder()
  #text = ''
  #event = ''
  #data: string[] = []

  constructor(body: ReadableStream<Uint8Array>) {
    this.#reader = body.getReader()
  }

  /** False when the stream has ended. Rejects when it broke off. */
  async read(): Promise<boolean> {
    const { done, value } = await this.#reader.read()
    if (done) return false
    this.#text += this.#decoder.decode(value, { stream: true })
    // A CR at the end may be half of a line break.
    for (let end; (end = /\r\n|\n|\r(?!$)/.exec(this.#text));) {
      this.#line(this.#text.slice(0, end.index))
      this.#text = this.#text.slice(end.index + end[0].length)
    }
    return true
  }

  /** Reads on until one is so; gives it. */
  async until(is: (event: Told) => boolean): Promise<Told> {
    for (;;) {
      const found = this.events.find(is)
      if (found) return found
      if (!(await this.read()))
        throw new Error(`The stream ended; so far: ${this.events.map(({ event }) => event).join(' ')}`)
    }
  }

  async toTheEnd(): Promise<void> {
    while (await this.read());
  }

  leave(): Promise<void> {
    return this.#reader.cancel()
  }

  #line(line: string): void {
    if (line === '') return this.#dispatch()
    if (line.startsWith(':')) return void this.comments.push(line)
    const [, field = '', value = ''] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? []
    if (field === 'event') this.#event = value
    else if (field === 'data') this.#data.push(value)
    else if (field === 'id' && !value.includes('\0')) this.lastId = value
    else if (field === 'retry' && /^\d+$/.test(value)) this.retries.push(Number(value))
    else this.strange.push(line)
  }

  #dispatch(): void {
    const data = this.#data.join('\n')
    if (this.#data.length > 0)
      this.events.push({ event: this.#event || 'message', id: this.lastId, data, value: JSON.parse(data) })
    this.#event = ''
    this.#data = []
  }
}

/** Entries by number, such as `4 reply`. */
export const entriesOf = ({ events }: Reader): string[] =>
  events
    .filter(({ event }) => event === 'entry')
    .map(({ value }) => `${value.entry.entry} ${value.entry.type}`)
