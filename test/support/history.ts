// The history file of a story: one JSON line per thing a handler or a worker process did, appended at once by a synchronous call,
// outside of the system under test, so that it survives whatever is killed. All processes of a story share one file.
import { appendFileSync, closeSync, fstatSync, openSync, readSync } from 'node:fs'

export interface Line {
  /**
   * Of handlers: `start`, `effect` (a step really ran), `wrote` and `refused` (a write by a handler that ignores its
   * signal), `waiting` (at a closed gate; `name`), `called` (a tool call is open), `signal` (its signal fired; `reason`),
   * `end` (returned), `abort` (threw because of its signal), `threw`.
   * Of processes: `ready`, `leaving`, `left`, `event` (telemetry; `name`, `fields`).
   * Of producers (`name`: the call; `fields`): `invoked`, then `ok`, `failed` (nothing happened) or `unknown`.
   * Of watchers (`name`: which one): `watches` (connects, behind a cursor), `saw` (an event; `fields`), `broke`.
   * Of a rig: `fault` and `healed` (`name`: its kind; `fields`).
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

/** A history file as it grows: what was read once is not read again. */
export class HistoryFile {
  readonly #file: string
  readonly #lines: Line[] = []
  #bytes = 0

  constructor(file: string) {
    this.#file = file
  }

  /** Every complete line so far; none while the file does not exist. */
  read(): Line[] {
    const fresh = this.#fresh()
    const end = fresh.lastIndexOf('\n') + 1
    this.#bytes += end
    for (const line of fresh.toString('utf8', 0, end).split('\n'))
      if (line !== '') this.#lines.push(JSON.parse(line) as Line)
    return [...this.#lines]
  }

  #fresh(): Buffer {
    let file: number
    try {
      file = openSync(this.#file, 'r')
    } catch {
      return Buffer.alloc(0)
    }
    try {
      const bytes = Buffer.alloc(fstatSync(file).size - this.#bytes)
      return bytes.subarray(0, readSync(file, bytes, 0, bytes.length, this.#bytes))
    } finally {
      closeSync(file)
    }
  }
}
