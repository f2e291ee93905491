// The history file of a story: one JSON line per thing a handler or a worker process did, appended at once by a synchronous call,
// outside of the system under test, so that it survives whatever is killed. All processes of a story share one file.
import { appendFileSync, readFileSync } from 'node:fs'

export interface Line {
  /**
   * Of handlers: `start`, `effect` (a step really ran), `wrote` and `refused` (a write by a handler that ignores its
   * signal), `waiting` (at a closed gate; `name`), `called` (a tool call is open), `signal` (its signal fired; `reason`),
   * `end` (returned), `abort` (threw because of its signal), `threw`.
   * Of processes: `ready`, `leaving`, `left`, `event` (telemetry; `name`, `fields`).
   */
  readonly what: string
  readonly pid: number
  /** The worker's process id as the system knows it. */
  readonly process: string
  /** CLOCK_MONOTONIC in nanoseconds, shared by all processes of the machine. */
  readonly ns: number
  readonly session?: string
  readonly seq?: number
  readonly attempt?: number
  readonly epoch?: number
  readonly step?: string
  readonly reason?: string
  readonly name?: string
  readonly fields?: Record<string, unknown>
}

export type Note = Omit<Line, 'pid' | 'process' | 'ns'>

export const monotonicNs = (): number => Number(process.hrtime.bigint())

/** Appends to `file` for one process. What was written before a SIGKILL is in the file. */
export function scribe(file: string, processId: string): (note: Note) => void {
  return (note) => {
    const line: Line = { ...note, pid: process.pid, process: processId, ns: monotonicNs() }
    appendFileSync(file, `${JSON.stringify(line)}\n`, { flag: 'a' })
  }
}

/** Every complete line so far; none while the file does not exist. */
export function readHistory(file: string): Line[] {
  let text: string
  try {
    text = readFileSync(file, 'utf8')
  } catch {
    return []
  }
  return text
    .slice(0, text.lastIndexOf('\n') + 1)
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line)
}
