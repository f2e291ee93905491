/**
 * The border between the user's data and our rows: strict JSON out, plain JSON back in. What `serialise`
 * accepts comes back from `parse` unchanged; what JSON would silently alter or drop is refused where the
 * caller can still see it, not hours later in a handler. Whoever takes a payload calls it; nothing behind it
 * validates again.
 */
import { hash } from 'node:crypto'
import { InvalidInputError } from './errors.ts'

/** What a payload is once it has been stored and read back. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json }

export interface PayloadLimits {
  /** Largest size of the text in UTF-8 bytes. */
  maxBytes: number
  /** Deepest nesting: a scalar is 0 deep, `[]` and `{}` are 1, `[[]]` is 2. Not above 512. */
  maxDepth: number
  /** How messages call the value, such as `Message payload`. */
  what: string
}

/**
 * The JSON text of `value`. As in JSON, `toJSON` is honoured, members that are `undefined` are left out,
 * symbol keys are ignored and -0 becomes 0. Throws InvalidInputError: `PAYLOAD_NOT_JSON` for what JSON cannot
 * carry (`undefined` elsewhere, functions, symbols, bigint, NaN, infinities, integers beyond 2^53, Map, class
 * instances, cycles), `PAYLOAD_TOO_DEEP` and `PAYLOAD_TOO_LARGE` for the limits. It gives up at the limit, so
 * a huge value costs little more than an allowed one (except that the engine lists the keys of one object in
 * one go).
 */
export function serialise(value: unknown, limits: PayloadLimits): string {
  const inspector = new Inspector(limits)
  try {
    return inspector.text(value)
  } catch (error) {
    if (error instanceof InvalidInputError) throw error
    // A getter, a proxy or a toJSON of the caller threw.
    const reason = error instanceof Error ? error.message : 'it threw while being read'
    throw new InvalidInputError('PAYLOAD_NOT_JSON', `${inspector.place()} cannot be read: ${reason}`, {
      cause: error,
    })
  }
}

/** Reads back what {@link serialise} wrote; `__proto__` is an ordinary key. Damaged: `PAYLOAD_NOT_JSON`. */
export function parse(text: string): Json {
  try {
    return JSON.parse(text) as Json
  } catch {
    // The engine's error quotes the text and payloads must not reach logs, so it is not kept as the cause.
    const size = `${text.length} characters`
    throw new InvalidInputError(
      'PAYLOAD_NOT_JSON',
      `A stored payload (${size}) is not JSON: was it edited by hand?`,
    )
  }
}

/**
 * 43 characters that are equal exactly when all parts are: SHA-256 over length-prefixed parts, so that moving
 * a character from one part to the next changes it. Parts must be well-formed (serialise escapes what is
 * not).
 */
export function fingerprint(parts: readonly string[]): string {
  const text = parts.map((part) => `${Buffer.byteLength(part)}:${part}`).join('')
  return hash('sha256', text, 'base64url')
}

/**
 * Looks at every value before the engine writes the text (which is several times faster than writing it
 * here), and counts a lower bound of its size on the way, so that the walk ends early. maxDepth bounds the
 * recursion.
 */
class Inspector {
  readonly #limits: PayloadLimits
  readonly #path: (string | number)[] = []
  readonly #above = new Set<object>()
  #size = 0

  constructor(limits: PayloadLimits) {
    this.#limits = limits
  }

  text(value: unknown): string {
    this.#visit(this.#resolve(value, ''))
    const text = JSON.stringify(value) as string | undefined
    // Only a toJSON that changes its mind gets here; one that changes its answer is stored as the second one.
    if (text === undefined) throw this.#notJson('is undefined')
    const bytes = Buffer.byteLength(text)
    if (bytes > this.#limits.maxBytes) throw this.#tooLarge(`${bytes} bytes`)
    return text
  }

  /** Where the walk stands, for messages: `Message payload at .items[3]`. */
  place(): string {
    if (this.#path.length === 0) return this.#limits.what
    const steps = this.#path.map((step) =>
      typeof step === 'string' && /^[A-Za-z_$][\w$]*$/.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`,
    )
    const path = steps.join('')
    return `${this.#limits.what} at ${path.length > 80 ? `${path.slice(0, 60)}...` : path}`
  }

  /** What JSON writes in place of `value`. */
  #resolve(value: unknown, key: string | number): unknown {
    if (typeof value !== 'object' || value === null || !('toJSON' in value)) return value
    if (typeof value.toJSON !== 'function') return value
    // JSON would turn it into null without a word.
    if (value instanceof Date && Number.isNaN(value.getTime())) throw this.#notJson('is an invalid date')
    return value.toJSON(String(key)) as unknown
  }

  #visit(value: unknown): void {
    if (typeof value === 'string') return this.#count(value.length + 2)
    if (typeof value === 'number') return this.#visitNumber(value)
    if (typeof value === 'boolean' || value === null) return this.#count(4)
    if (typeof value === 'object') return this.#visitContainer(value)
    if (value === undefined) throw this.#notJson('is undefined: use null, or leave the member out')
    throw this.#notJson(`is a ${typeof value}${typeof value === 'bigint' ? ': write it as a string' : ''}`)
  }

  #visitNumber(value: number): void {
    if (!Number.isFinite(value)) throw this.#notJson(`is ${value}: write it as a string, or use null`)
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
      throw this.#notJson(
        `is ${value}, an integer beyond 2^53 that other readers would round: write it as a string`,
      )
    }
    this.#count(1)
  }

  #visitContainer(value: object): void {
    if (this.#above.has(value)) throw this.#notJson('contains itself')
    if (this.#above.size >= this.#limits.maxDepth) {
      const rule = `at most ${this.#limits.maxDepth} levels are allowed; flatten it or store it elsewhere`
      throw new InvalidInputError('PAYLOAD_TOO_DEEP', `${this.place()} is nested too deeply: ${rule}.`)
    }
    this.#above.add(value)
    this.#count(2)
    if (Array.isArray(value)) this.#visitItems(value)
    else this.#visitMembers(value)
    this.#above.delete(value)
  }

  #visitItems(items: readonly unknown[]): void {
    for (let index = 0; index < items.length; index++) {
      if (index > 0) this.#count(1)
      this.#path.push(index)
      this.#visit(this.#resolve(items[index], index))
      this.#path.pop()
    }
  }

  #visitMembers(value: object): void {
    // An object of another realm has an Object.prototype that is not ours: a prototype without a prototype.
    const prototype = Object.getPrototypeOf(value) as object | null
    if (prototype !== null && Object.getPrototypeOf(prototype) !== null) {
      throw this.#notJson(
        `is an instance of ${className(prototype)}: use a plain object, or give it a toJSON`,
      )
    }
    let separator = 0
    for (const key of Object.keys(value)) {
      this.#path.push(key)
      const member = this.#resolve((value as Record<string, unknown>)[key], key)
      if (member !== undefined) {
        // Quotes and a colon, and from the second member on a comma.
        this.#count(key.length + 3 + separator)
        separator = 1
        this.#visit(member)
      }
      this.#path.pop()
    }
  }

  /** Callers count UTF-16 units and the shortest number; the text's UTF-8 bytes are never fewer. */
  #count(atLeast: number): void {
    this.#size += atLeast
    if (this.#size > this.#limits.maxBytes) throw this.#tooLarge(`at least ${this.#size} bytes`)
  }

  #notJson(problem: string): InvalidInputError {
    return new InvalidInputError('PAYLOAD_NOT_JSON', `${this.place()} ${problem}.`)
  }

  #tooLarge(actual: string): InvalidInputError {
    const { what, maxBytes } = this.#limits
    const hint = 'store large data elsewhere and send a reference'
    const rule = `at most ${maxBytes} are allowed`
    return new InvalidInputError('PAYLOAD_TOO_LARGE', `${what} is ${actual} of JSON; ${rule}: ${hint}.`)
  }
}

function className(prototype: object): string {
  const name: unknown = (prototype.constructor as { name?: unknown } | undefined)?.name
  return typeof name === 'string' && name !== '' ? name.slice(0, 60) : 'a class'
}
