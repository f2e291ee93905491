/** What goes in and out, as schemas: requests are checked by them, the document is made from them, tests hold answers to them. */
import { z } from 'zod'
import { TOKEN_MAX_SECONDS, TOKEN_RIGHTS } from './access.ts'

/** A whole number within a query, which is text. */
const wholeText = (min: number, max = Number.MAX_SAFE_INTEGER) =>
  z
    .string()
    .regex(/^\d{1,16}$/, 'a whole number')
    .transform(Number)
    .pipe(z.int().min(min).max(max))

export const seq = z.int().min(1).meta({ description: 'The place of a message in its session: 1, 2, 3, …' })
export const time = z.iso.datetime({ offset: true })
export const cursor = z
  .string()
  .regex(/^[0-9.]{1,70}$/)
  .meta({ description: 'Where a reader stands. Opaque: pass it on as it came.' })

export const limit = wholeText(1, 1000)
  .optional()
  .meta({ description: 'At most so many, 1 to 1,000; 100 if left out.' })
export const page = z.strictObject({
  after: wholeText(0).optional().meta({ description: 'Go on behind this number.' }),
  limit,
})

const SOURCES = ['user', 'agent', 'automation', 'system'] as const

export const message = z
  .strictObject({
    payload: z.unknown().optional().meta({ description: 'Any JSON value; this or `text`.' }),
    text: z.string().optional().meta({ description: 'The same as a payload that is this string.' }),
    kind: z
      .string()
      .optional()
      .meta({ description: '1 to 64 of letters, digits and . _ : -; `message` if left out.' }),
    source: z.enum(SOURCES).optional().meta({ description: 'Who sends; `user` if left out.' }),
    whenBusy: z
      .enum(['enqueue', 'interrupt', 'reject'])
      .optional()
      .meta({ description: 'Queue up behind what runs and waits (default), stop that, or be refused.' }),
    key: z.string().optional().meta({
      description:
        'The idempotency key of this message, in a list; a single one has the header Idempotency-Key.',
    }),
  })
  .refine(
    (one) => (one.payload === undefined) !== (one.text === undefined),
    'send a payload or a text, one of them',
  )

export const messages = z.union([message, z.array(message).min(1).max(1000)])

export const accepted = z.strictObject({
  session: z.string(),
  seq,
  id: z.string(),
  duplicate: z
    .boolean()
    .meta({ description: 'An earlier request with this key was accepted; this is its message.' }),
  position: z.int().min(0).meta({ description: 'Messages before it that have no final state yet.' }),
})

export const problem = z.looseObject({
  type: z.string(),
  title: z.string(),
  status: z.int(),
  code: z.string().meta({ description: 'Stable: branch on this.' }),
  detail: z.string(),
})

export const results = z.array(z.union([accepted, problem]))

export const stop = z.strictObject({
  through: z
    .int()
    .min(0)
    .optional()
    .meta({ description: 'Stop up to this message; everything accepted so far if left out.' }),
  turn: z
    .union([seq, z.literal('running')])
    .optional()
    .meta({
      description: 'Stop only the turn of this message, or the one that runs; what waits behind it stays.',
    }),
  wait: z
    .number()
    .min(0)
    .max(60)
    .optional()
    .meta({ description: 'Answer when it is quiet, at most after so many seconds; 0 if left out.' }),
})

export const stopped = z.strictObject({
  through: z.int(),
  running: z.int().nullable(),
  quiet: z.boolean(),
  outcomes: z.array(
    z.strictObject({
      seq: z.int().nullable(),
      outcome: z.enum(['never-started', 'aborted', 'already-done', 'fenced', 'stopping', 'idle']),
      ms: z.int(),
    }),
  ),
})

const sessionFields = {
  id: z.string(),
  inboxSeq: z.int().meta({ description: 'The last number given to a message.' }),
  doneSeq: z.int().meta({ description: 'Every message up to here has its final state.' }),
  stopSeq: z.int().meta({ description: 'Every message up to here must not start, or must stop.' }),
  runningSeq: z.int().nullable(),
  epoch: z.int(),
  starts: z.int(),
  failures: z.int(),
  handovers: z.int(),
  crashes: z.int(),
  entrySeq: z.int().meta({ description: 'The last entry of the transcript.' }),
  retryInMs: z.number().nullable(),
  retryAt: time.nullable(),
  waitingSince: time.nullable(),
  createdAt: time,
  updatedAt: time,
}
export const summary = z.strictObject(sessionFields)
export const session = z.strictObject({
  ...sessionFields,
  state: z.enum(['running', 'retrying', 'waiting', 'idle']),
  queueDepth: z.int(),
  runningSince: time.nullable(),
  waitsFor: z.string().nullable(),
  ownerProcess: z.string().nullable(),
  lock: z.union([z.enum(['free', 'unknown']), z.strictObject({ process: z.string(), busy: z.boolean() })]),
})
export const sessions = z.strictObject({
  sessions: z.array(summary),
  next: z.string().nullable().meta({ description: 'Pass it as `after` to read on; null: that was all.' }),
})
export const sessionsQuery = z.strictObject({
  state: z.enum(['running', 'waiting', 'idle']).optional(),
  after: z.string().optional().meta({ description: 'Go on behind this session.' }),
  limit,
})

export const queue = z.strictObject({
  messages: z.array(
    z.strictObject({
      seq,
      id: z.string(),
      kind: z.string(),
      source: z.enum(SOURCES),
      payload: z.unknown(),
      createdAt: time,
    }),
  ),
})

const entry = z.strictObject({
  entry: z.int(),
  seq: z.int(),
  epoch: z.int(),
  attempt: z.int(),
  type: z.string(),
  callId: z.string().nullable(),
  stepKey: z.string().nullable(),
  payload: z.unknown(),
  createdAt: time,
})
export const entries = z.strictObject({ entries: z.array(entry), cursor: z.int(), head: z.int() })
export const entriesQuery = z.strictObject({ after: cursor.optional(), limit })
export const eventsQuery = z.strictObject({ after: cursor.optional() })

export const tokenRequest = z.strictObject({
  rights: z.array(z.enum(TOKEN_RIGHTS)).min(1),
  ttlSeconds: z.int().min(1).max(TOKEN_MAX_SECONDS),
})
export const token = z.strictObject({ token: z.string(), expiresAt: time })

export const cursorMove = z.strictObject({
  read: cursor.optional(),
  acknowledged: cursor.optional().meta({ description: 'Implies that it was read.' }),
})
export const readerCursor = z.strictObject({
  reader: z.string(),
  read: cursor.nullable(),
  acknowledged: cursor.nullable(),
  updatedAt: time.nullable(),
})
