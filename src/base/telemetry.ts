/**
 * What happened, on record: `emit` turns an event of the catalogue (events.ts) into one log line `{event,
 * ...fields}` and tells whoever listens (metrics, the dashboard, tests). Everything that reports calls it. It
 * never throws and never waits: a broken listener or log must not end a turn. It takes no payloads; texts are
 * cut, so that an error message that quotes one does not carry it into a log whole.
 */
import { isNativeError } from 'node:util/types'
import pino from 'pino'
import { checkOptions, oneOf } from './arguments.ts'
import { closest } from './closest.ts'
import { InvalidInputError, UnavailableError } from './errors.ts'
import { CATALOGUE } from './events.ts'
import type { EventName, Events, Level } from './events.ts'
import { show } from './ids.ts'
import { now } from './timing.ts'

/** What is needed of a logger; pino's fits, as do its children. */
export type Logger = Pick<pino.Logger, Level | 'isLevelEnabled'>

export type Listener<Name extends EventName> = (fields: Events[Name]) => unknown

const LEVELS = ['error', 'warn', 'info', 'debug'] as const satisfies Level[]
/** Longest text of a field in a log line; a stack may be longer. Listeners get fields whole. */
const TEXT_MAX = 500
const STACK_MAX = 4_000
/** How far down an error's causes are followed. */
const CAUSES_MAX = 3
/** An outage fails every command: one line a second says as much as a thousand. Listeners hear all of them. */
const REPETITIVE: ReadonlySet<EventName> = new Set<EventName>([
  'redis.trouble',
  'mysql.trouble',
  'lock.late',
  'channel.junk',
])
const REPEAT_MS = 1000

/**
 * JSON lines on standard error: standard output belongs to what a program prints. Written at once, so that
 * the last lines of a process that exits are not lost. Default level `info`; `silent` writes nothing.
 */
export function createLogger(options: { level?: Level | 'silent' } = {}): pino.Logger {
  checkOptions(options, ['level'])
  const level = oneOf('level', options.level ?? 'info', [...LEVELS, 'silent'] as const)
  const destination = pino.destination({ dest: 2, sync: true })
  // A standard error that is closed is no reason to crash; there is nobody left to tell.
  destination.on('error', () => {})
  return pino({ level }, destination)
}

/** Found at once, rather than by the first line that cannot be written and is lost. */
export function checkLogger(logger: unknown): void {
  if (logger === undefined || logger === false) return
  const methods = Object(logger) as Partial<Record<string, unknown>>
  const missing = [...LEVELS, 'isLevelEnabled'].find((name) => typeof methods[name] !== 'function')
  if (missing === undefined) return
  throw new InvalidInputError(
    'INVALID_OPTIONS',
    `logger has no ${missing}(): give a pino logger, or false for none.`,
  )
}

export class Telemetry {
  readonly #logger: Logger | undefined
  readonly #listeners = new Map<EventName, Set<(fields: never) => unknown>>()
  /** When a repetitive event was last written, and how many of it were not written since. */
  readonly #repeats = new Map<EventName, { at: number; unwritten: number }>()

  /** Without a logger (or with `false`) only listeners hear of events. */
  constructor(logger?: Logger | false) {
    this.#logger = logger || undefined
  }

  emit<Name extends EventName>(event: Name, fields: Events[Name]): void {
    this.#write(event, fields)
    // A copy: listeners may come and go while they are called.
    const listeners = [...(this.#listeners.get(event) ?? [])] as Listener<Name>[]
    for (const listener of listeners) this.#tell(event, listener, fields)
  }

  /** An error of a store, as trouble of the one it came from. */
  trouble(error: unknown, about: { session?: string | undefined; where?: string | undefined } = {}): void {
    const isMysql = error instanceof UnavailableError && error.code !== 'REDIS_UNAVAILABLE'
    this.emit(isMysql ? 'mysql.trouble' : 'redis.trouble', { ...about, error })
  }

  /** Calls `listener` with the fields of every `event` from now on; returns what ends that. */
  on<Name extends EventName>(event: Name, listener: Listener<Name>): () => void {
    if (!Object.hasOwn(CATALOGUE, event)) throw noSuchEvent(event)
    if (typeof listener !== 'function') {
      throw new InvalidInputError('INVALID_ARGUMENT', `A listener is a function, not ${show(listener)}.`)
    }
    const listeners = this.#listeners.get(event) ?? new Set()
    this.#listeners.set(event, listeners)
    // Each registration is its own, even of the same function twice.
    const registered: Listener<Name> = (fields) => listener(fields)
    listeners.add(registered)
    return () => void listeners.delete(registered)
  }

  #tell<Name extends EventName>(event: Name, listener: Listener<Name>, fields: Events[Name]): void {
    // Straight to the log: told to listeners, a listener of background.error that throws would never end.
    const failed = (error: unknown) =>
      this.#write('background.error', { where: `listener of ${event}`, error })
    try {
      const result = listener(fields)
      if (result instanceof Promise) result.catch(failed)
    } catch (error) {
      failed(error)
    }
  }

  /** How many were left out since the last line; undefined: leave this one out too. */
  #repeated(event: EventName): number | undefined {
    const last = this.#repeats.get(event)
    if (last && now() - last.at < REPEAT_MS) {
      last.unwritten += 1
      return undefined
    }
    this.#repeats.set(event, { at: now(), unwritten: 0 })
    return last?.unwritten ?? 0
  }

  #write<Name extends EventName>(event: Name, fields: Events[Name]): void {
    const level: Level = CATALOGUE[event].level
    try {
      if (!this.#logger?.isLevelEnabled(level)) return
      const repeated = REPETITIVE.has(event) ? this.#repeated(event) : 0
      if (repeated === undefined) return
      const also = repeated > 0 ? { repeated } : {}
      this.#logger[level]({ event, ...loggable(fields, this.#logger.isLevelEnabled('debug')), ...also })
    } catch {
      // The log itself is broken: there is no place left to say so.
    }
  }
}

function noSuchEvent(name: unknown): InvalidInputError {
  const meant = typeof name === 'string' ? closest(name, Object.keys(CATALOGUE)) : undefined
  const advice = meant ? `did you mean ${meant}?` : 'the type EventName lists them.'
  return new InvalidInputError('INVALID_OPTIONS', `There is no event ${show(name)}: ${advice}`)
}

function loggable(fields: object, withStack: boolean): Record<string, unknown> {
  const line: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(fields) as [string, unknown][]) {
    if (name === 'error') line[name] = describeError(value, withStack)
    else line[name] = typeof value === 'string' ? cut(value, TEXT_MAX) : value
  }
  return line
}

interface ErrorFields {
  code?: string | number
  name: string
  message: string
  stack?: string
  cause?: ErrorFields
}

/** Anything can be thrown, also what throws again when it is looked at. */
function describeError(error: unknown, withStack: boolean, depth = 0): ErrorFields {
  try {
    if (error instanceof Error || isNativeError(error)) return fieldsOf(error, withStack, depth)
    // Objects are named only, since they may be payloads.
    const isObject = typeof error === 'object' && error !== null
    const text = isObject ? Object.prototype.toString.call(error) : String(error as string | symbol)
    return { name: 'NotAnError', message: cut(text, TEXT_MAX) }
  } catch {
    return { name: 'NotAnError', message: 'cannot be read' }
  }
}

/** Only these: what else hangs on an error (a driver puts the SQL there) may hold payloads. */
function fieldsOf(error: Error, withStack: boolean, depth: number): ErrorFields {
  const { code, cause } = error as { code?: unknown; cause?: unknown }
  const fields: ErrorFields = {
    ...((typeof code === 'string' || typeof code === 'number') && { code }),
    name: cut(String(error.name), TEXT_MAX),
    message: cut(String(error.message), TEXT_MAX),
  }
  if (withStack) fields.stack = cut(String(error.stack), STACK_MAX)
  if (cause !== undefined && depth < CAUSES_MAX) fields.cause = describeError(cause, withStack, depth + 1)
  return fields
}

const cut = (text: string, max: number): string => (text.length > max ? `${text.slice(0, max)}...` : text)
