/** Reads a recorded conversation file, for `replay`: JSON lines of session, time and text, each checked before any is sent. */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { createInterface } from 'node:readline'
import { checkSessionId, DEFAULTS } from '../index.ts'
import { UsageError } from './exits.ts'

export interface RecordedMessage {
  /** Line number in the file, from 1. */
  readonly line: number
  readonly session: string
  /** Seconds since the recording began. */
  readonly at: number
  readonly text: string
}

export interface Recording {
  readonly messages: readonly RecordedMessage[]
  /** Names what was read, line by line: the same for the same file. */
  readonly digest: string
}

/** Throws UsageError with the number of the first line that is not a message. */
export async function readRecording(file: string, limit = Infinity): Promise<Recording> {
  const messages: RecordedMessage[] = []
  const hash = createHash('sha256')
  const stream = createReadStream(file)
  let line = 0
  try {
    for await (const text of createInterface({ input: stream, crlfDelay: Infinity })) {
      line += 1
      // Over the whole file, so that a longer replay of the same file goes on where a shorter one ended.
      hash.update(text).update('\n')
      if (text.trim() !== '' && messages.length < limit) messages.push(toMessage(text, line))
    }
  } catch (error) {
    if (!(error instanceof Error)) throw error
    throw new UsageError(
      line === 0 ? `Cannot read ${file}: ${error.message}` : `${file} line ${line}: ${error.message}`,
    )
  }
  return { messages, digest: hash.digest('base64url').slice(0, 12) }
}

function toMessage(text: string, line: number): RecordedMessage {
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch {
    throw new Error('is not JSON.')
  }
  const { session, at, text: said } = Object(parsed) as Partial<Record<keyof RecordedMessage, unknown>>
  if (typeof said !== 'string') throw new Error('has no "text", the message as a string.')
  if (typeof at !== 'number' || !Number.isFinite(at) || at < 0) {
    throw new Error('has no "at", the time in seconds since the beginning.')
  }
  if (Buffer.byteLength(JSON.stringify(said)) > DEFAULTS.payloadMaxBytes) {
    throw new Error(`has a text of more than ${DEFAULTS.payloadMaxBytes} bytes.`)
  }
  return { line, session: checkSessionId(session), at, text: said }
}
