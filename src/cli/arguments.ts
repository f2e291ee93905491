/** Turns the words of a command line into values; what cannot be meant ends in a usage error that says what can. */
import { InvalidArgumentError } from 'commander'

export function wholeNumber(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text)
  throw new InvalidArgumentError('Use a whole number.')
}

export const seqOrRunning = (text: string): number | 'running' =>
  text === 'running' ? text : wholeNumber(text)

export function positiveNumber(text: string): number {
  const value = Number(text)
  if (text.trim() !== '' && Number.isFinite(value) && value > 0) return value
  throw new InvalidArgumentError('Use a number above 0.')
}

const UNITS_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** `30d`, `12h`, `90s` as milliseconds. */
export function duration(text: string): number {
  const [, count, unit] = /^(\d{1,9})(ms|s|m|h|d)$/.exec(text) ?? []
  if (count === undefined) throw new InvalidArgumentError('Use a number with ms, s, m, h or d, such as 30d.')
  return Number(count) * UNITS_MS[unit as keyof typeof UNITS_MS]
}

/** Boxed, because commander takes a bare null for no value. */
export function json(text: string): { value: unknown } {
  try {
    return { value: JSON.parse(text) as unknown }
  } catch {
    throw new InvalidArgumentError('Use JSON, such as \'{"text":"hello"}\'.')
  }
}
