/** Checks the arguments of public calls. Each throws InvalidInputError, whose message names what is wrong. */
import { InvalidInputError } from './errors.ts'
import { show } from './ids.ts'

/** A misspelt option would be ignored, and with it what its caller meant: `stop` would stop too much. */
export function checkOptions(options: unknown, names: readonly string[]): void {
  if (typeof options !== 'object' || options === null) {
    throw new InvalidInputError('INVALID_OPTIONS', `Options are an object, not ${show(options)}.`)
  }
  const unknown = Object.keys(options).find((name) => !names.includes(name))
  if (unknown === undefined) return
  throw new InvalidInputError('INVALID_OPTIONS', `Unknown option ${show(unknown)}: use ${names.join(', ')}.`)
}

/** Without a transaction each statement would commit on its own, and nothing would hold the session's row. */
export function checkTransaction(trx: { readonly isTransaction: boolean } | undefined): void {
  if (trx === undefined || Object(trx).isTransaction === true) return
  throw new InvalidInputError(
    'INVALID_ARGUMENT',
    'trx must be a Kysely transaction, not the database itself.',
  )
}

export function oneOf<T extends string>(what: string, value: unknown, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === value)
  if (found !== undefined) return found
  throw new InvalidInputError(
    'INVALID_ARGUMENT',
    `${what} ${show(value)} is not allowed: use ${allowed.join(', ')}.`,
  )
}

/** A whole number within bounds, for cursors, limits and message numbers. */
export function whole(what: string, value: unknown, min: number, max = Number.MAX_SAFE_INTEGER): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= min && value <= max) return value
  const range = max === Number.MAX_SAFE_INTEGER ? `from ${min} on` : `from ${min} to ${max}`
  throw new InvalidInputError(
    'INVALID_ARGUMENT',
    `${what} ${show(value)} is not allowed: use a whole number ${range}.`,
  )
}

/** The part of a list that somebody wants to read: after which number, and how many; 1,000 at most. */
export function checkRange(
  options: { readonly after?: number | undefined; readonly limit?: number },
  usual: number,
): { after: number; limit: number } {
  checkOptions(options, ['after', 'limit'])
  return {
    after: whole('after', options.after ?? 0, 0),
    limit: whole('limit', options.limit ?? usual, 1, 1000),
  }
}

export function checkSignal(signal: unknown): void {
  if (signal === undefined || signal instanceof AbortSignal) return
  throw new InvalidInputError('INVALID_ARGUMENT', `signal must be an AbortSignal, not ${show(signal)}.`)
}

export function checkList<T>(what: string, list: readonly T[]): readonly T[] {
  if (Array.isArray(list)) return list
  throw new InvalidInputError('INVALID_ARGUMENT', `${what} must be a list, not ${show(list)}.`)
}
