/**
 * What commands print. Data goes to stdout, one object per line with --json; everything said to people about it goes to
 * stderr. Colour only on a terminal that wants it.
 */
import type { Entry, SessionSummary, SessionView } from '../index.ts'

/** Data. */
export function print(line: string): void {
  process.stdout.write(`${line}\n`)
}

export const printJson = (value: unknown): void => print(JSON.stringify(value))

/** Anything that is not data. */
export function say(line: string): void {
  process.stderr.write(`${line}\n`)
}

/** A reader that went away (`| head`) has all that it wanted. */
export function leaveOnBrokenPipe(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0)
    throw error
  })
  process.stderr.on('error', () => {})
}

const COLOURS = { red: 31, green: 32, yellow: 33, dim: 2 } as const

export function paint(colour: keyof typeof COLOURS, text: string): string {
  const wanted = process.stdout.isTTY && !process.env.NO_COLOR
  return wanted ? `\u001b[${COLOURS[colour]}m${text}\u001b[0m` : text
}

/** Columns as wide as their widest cell; the last one as it comes. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const columns = Math.max(0, ...rows.map((row) => row.length))
  const widths = Array.from({ length: columns - 1 }, (_, at) =>
    Math.max(0, ...rows.map((row) => (row[at] ?? '').length)),
  )
  return rows.map((row) =>
    row
      .map((cell, at) => cell.padEnd(widths[at] ?? 0))
      .join('  ')
      .trimEnd(),
  )
}

const TEXT_MAX = 200

export function entryLine({ entry, seq, attempt, epoch, type, callId, payload, createdAt }: Entry): string {
  const call = callId === null ? '' : ` ${callId}`
  return `${entry} ${createdAt} seq=${seq} attempt=${attempt} epoch=${epoch} ${type}${call} ${short(payload)}`
}

export function sessionCells(session: SessionSummary): string[] {
  const { id, doneSeq, inboxSeq, runningSeq, epoch, updatedAt } = session
  const state = runningSeq === null ? (inboxSeq > doneSeq ? 'waiting' : 'idle') : `running ${runningSeq}`
  return [id, state, `${doneSeq}/${inboxSeq} done`, `epoch ${epoch}`, updatedAt]
}

export const sessionLines = ({ id, state, waitsFor, ...rest }: SessionView): string[] =>
  fieldLines({ id, state, waitsFor, ...rest })

/** One line for each field. */
export const fieldLines = (fields: object): string[] =>
  table(Object.entries(fields).map(([name, value]) => [name, value === null ? '-' : plain(value)]))

const plain = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value))

/** One line, whatever it holds: JSON escapes line ends and most control characters, and we the rest. */
export function short(payload: unknown): string {
  const text = JSON.stringify(payload).replace(
    /[\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
  return text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text
}
