/**
 * Every tunable in one table: default, bounds and the relations between them. Called once when a client or
 * worker is constructed, so that an impossible setting is refused at start with its reason rather than found
 * in a lost lock. What is derived from lockTtlMs scales with it: `lockTtlMs: 3000` alone makes a fleet ten
 * times faster.
 */
import { z } from 'zod'
import { closest } from './closest.ts'
import { InvalidInputError } from './errors.ts'
import { show } from './ids.ts'
import type { Retention, Tunables, TunablesInput } from './tunables.ts'

export type { Retention, Tunables, TunablesInput } from './tunables.ts'

/**
 * The complete, frozen settings: `input` over the defaults. Throws InvalidInputError `INVALID_OPTIONS`; its
 * message lists everything that is wrong: unknown names, values out of bounds, pairs that cannot work
 * together.
 */
export function resolveTunables(input: TunablesInput = {}): Tunables {
  const given: Partial<Record<string, unknown>> = Object(input)
  const lockTtlMs = sane(given['lockTtlMs']) ?? LOCK_TTL_MS
  const result = table(lockTtlMs, sane(given['renewMs']) ?? lockTtlMs / 3).safeParse(input)
  const problems = result.success
    ? conflicts(result.data)
    : result.error.issues.flatMap((issue) => describe(issue, input))
  if (!result.success || problems.length > 0) {
    const list = [...new Set(problems)].map((problem) => `\n- ${problem}`).join('')
    throw new InvalidInputError('INVALID_OPTIONS', `These options cannot be used:${list}`)
  }
  const { retryDelaysMs, retention, ...rest } = result.data
  return Object.freeze({
    ...rest,
    retryDelaysMs: Object.freeze(retryDelaysMs),
    retention: Object.freeze(retention),
  })
}

function whole(unit: string, min: number, max: number) {
  const rule = `use a whole number ${unit}from ${min} to ${max}`
  return z.int(rule).min(min, rule).max(max, rule)
}

const ms = (value: number, min: number, max: number) =>
  whole('of milliseconds ', min, max).default(Math.round(value))
const bytes = (value: number, min: number, max: number) => whole('of bytes ', min, max).default(value)
const count = (value: number, min: number, max: number) => whole('', min, max).default(value)

const LOCK_TTL_MS = 30_000
const DAY_MS = 86_400_000
const age = () => whole('of milliseconds ', 1_000, 3650 * DAY_MS).optional()
const RETENTION_NAMES = ['messagesMs', 'entriesMs', 'deletedMs'] as const satisfies (keyof Retention)[]
const PREFIX = /^[A-Za-z0-9._-](?:[A-Za-z0-9._:-]{0,30}[A-Za-z0-9._-])?$/
const PREFIX_RULE = 'use 1 to 32 of A-Z a-z 0-9 . _ - (a colon only between two of them)'
const DELAYS_RULE = 'use a list of 1 to 100 waits in milliseconds, such as [1000, 5000]'

/** Defaults and bounds; the two arguments are what others are derived from. */
function table(lockTtlMs: number, renewMs: number) {
  const shape = {
    lockTtlMs: ms(LOCK_TTL_MS, 1_000, 300_000),
    renewMs: ms(lockTtlMs / 3, 50, 150_000),
    idleReleaseMs: ms(300_000, 1_000, DAY_MS),
    sweepMs: ms(lockTtlMs / 6, 100, 300_000),
    heartbeatMs: ms(lockTtlMs / 40, 10, 60_000),
    heartbeatTtlMs: ms(lockTtlMs / 10, 50, 300_000),
    deadAfterMs: ms(lockTtlMs / 12, 50, 300_000),
    hungAfterMs: ms((lockTtlMs * 4) / 30, 100, 300_000),
    retakeMs: ms(lockTtlMs / 30, 10, 60_000),
    lookMs: ms(lockTtlMs / 6, 100, 300_000),
    lookFastMs: ms(lockTtlMs / 30, 10, 60_000),
    giveAwayMs: ms(lockTtlMs / 10, 50, 3_600_000),
    concurrency: count(100, 1, 10_000),
    maxFailures: count(3, 1, 100),
    maxCrashes: count(3, 1, 100),
    maxStarts: count(20, 1, 10_000),
    retryDelaysMs: z
      .array(whole('of milliseconds ', 0, 7 * DAY_MS), DELAYS_RULE)
      .min(1, DELAYS_RULE)
      .max(100, DELAYS_RULE)
      .default([1_000, 5_000]),
    drainGraceMs: ms(25_000, 0, DAY_MS),
    stopGraceMs: ms(5_000, 0, 3_600_000),
    turnTimeoutMs: ms(1_800_000, 100, 7 * DAY_MS),
    progressTimeoutMs: ms(600_000, 100, 7 * DAY_MS),
    maxDetached: count(10, 1, 10_000),
    payloadMaxBytes: bytes(1024 ** 2, 64, 32 * 1024 ** 2),
    entryMaxBytes: bytes(4 * 1024 ** 2, 64, 32 * 1024 ** 2),
    payloadMaxDepth: count(64, 1, 512),
    queueMax: count(1_000, 1, 1_000_000),
    liveMaxDeltas: count(20_000, 1, 1_000_000),
    liveMaxBytes: bytes(1024 ** 2, 1_024, 32 * 1024 ** 2),
    watchMaxEvents: count(10_000, 1, 1_000_000),
    watchMaxBytes: bytes(16 * 1024 ** 2, 1_024, 1024 ** 3),
    enqueueTimeoutMs: ms(10_000, 100, 300_000),
    notifyTimeoutMs: ms(500, 10, 60_000),
    redisTimeoutMs: ms(Math.min(1_000, renewMs / 2), 10, 60_000),
    mysqlTimeoutMs: ms(5_000, 100, 300_000),
    mysqlPoolSize: count(10, 2, 100),
    prefix: z.string(PREFIX_RULE).regex(PREFIX, PREFIX_RULE).default('butler'),
    retention: z
      .strictObject({ messagesMs: age(), entriesMs: age(), deletedMs: age() }, 'use an object of ages')
      .default({}),
  } satisfies Record<keyof Tunables, z.ZodType>
  return z.strictObject(shape, 'use an object')
}

/** What others may be derived from; a value that will be refused anyway derives nothing. */
const sane = (value: unknown) => (typeof value === 'number' && Number.isFinite(value) ? value : undefined)

/** Pairs that cannot work together, each with what would happen. */
function conflicts(tunables: Tunables): string[] {
  const { lockTtlMs, renewMs, idleReleaseMs, heartbeatMs, heartbeatTtlMs, deadAfterMs } = tunables
  const { redisTimeoutMs, payloadMaxBytes, entryMaxBytes } = tunables
  const relations: [broken: boolean, problem: string][] = [
    [
      renewMs * 2 >= lockTtlMs,
      `renewMs (${renewMs}) must be less than half of lockTtlMs (${lockTtlMs}), or a single lost renewal ` +
        'loses the lock of a healthy owner: lower renewMs or raise lockTtlMs.',
    ],
    [
      heartbeatMs * 2 > heartbeatTtlMs,
      `heartbeatMs (${heartbeatMs}) must be at most half of heartbeatTtlMs (${heartbeatTtlMs}), or a ` +
        'single late heartbeat makes a healthy process look gone: lower heartbeatMs or raise heartbeatTtlMs.',
    ],
    [
      deadAfterMs < heartbeatMs * 3,
      `deadAfterMs (${deadAfterMs}) must be at least three times heartbeatMs (${heartbeatMs}), or a ` +
        'process that reconnects is taken for dead: raise deadAfterMs or lower heartbeatMs.',
    ],
    [
      redisTimeoutMs >= renewMs,
      `redisTimeoutMs (${redisTimeoutMs}) must be less than renewMs (${renewMs}), or the next renewal is ` +
        'due before the last one is known to be lost: lower redisTimeoutMs or raise renewMs.',
    ],
    [
      entryMaxBytes < payloadMaxBytes,
      `entryMaxBytes (${entryMaxBytes}) must be at least payloadMaxBytes (${payloadMaxBytes}), since an ` +
        'accepted message becomes an entry of the transcript: raise entryMaxBytes or lower payloadMaxBytes.',
    ],
    [
      idleReleaseMs < lockTtlMs,
      `idleReleaseMs (${idleReleaseMs}) must be at least lockTtlMs (${lockTtlMs}), or an idle session ` +
        'leaves its butler sooner than a lost one: raise idleReleaseMs or lower lockTtlMs.',
    ],
  ]
  return relations.filter(([broken]) => broken).map(([, problem]) => problem)
}

/** One line per thing that is wrong: what it is, and what to use instead. */
function describe(issue: z.core.$ZodIssue, input: unknown): string[] {
  const steps = issue.path.map((step) => (typeof step === 'number' ? `[${step}]` : `.${String(step)}`))
  const path = steps.join('').slice(1)
  if (issue.code === 'unrecognized_keys') {
    const known = path === '' ? Object.keys(DEFAULTS) : RETENTION_NAMES
    return issue.keys.map((key) => {
      const meant = closest(key, known)
      const advice = meant ? `did you mean ${meant}?` : `use one of ${known.join(', ')}.`
      return `${show(path === '' ? key : `${path}.${key}`)} is not an option: ${advice}`
    })
  }
  const value = issue.path.reduce<unknown>((at, step) => (at as Record<PropertyKey, unknown>)[step], input)
  const fallback: unknown = Reflect.get(DEFAULTS, path)
  const hint = fallback === undefined ? '' : ` (default ${JSON.stringify(fallback)})`
  return [`${path || 'the argument'} is ${shown(value)}: ${issue.message}${hint}.`]
}

function shown(value: unknown): string {
  if (Array.isArray(value)) return `a list of ${value.length}`
  return value === null ? 'null' : show(value)
}

/** What {@link resolveTunables} makes of nothing. */
export const DEFAULTS: Tunables = resolveTunables()
