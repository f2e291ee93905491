/** What the answer to "why does it not move?" looks like over HTTP. */
import { z } from 'zod'
import type { VerdictCode } from '../index.ts'
import { seq, session, time } from './schemas.ts'

const age = z.int().min(0).meta({ description: 'Milliseconds.' })
const hidden = 'Null: unknown, or not for whoever asks.'

const CODES = [
  'idle',
  'running',
  'stopping',
  'owner-gone',
  'backing-off',
  'waiting-for-owner',
  'lock-held-by-stranger',
  'nobody-there',
  'no-capable-process',
  'all-full',
  'redis-unreachable',
  'due',
] as const satisfies readonly VerdictCode[]

const entry = z.strictObject({
  entry: z.int(),
  type: z.string(),
  stepKey: z.string().nullable(),
  at: time,
  ageMs: age,
})

const whereabouts = {
  process: z.string().nullable().meta({ description: hidden }),
  host: z.string().nullable().meta({ description: hidden }),
  pid: z.int().nullable().meta({ description: hidden }),
}

export const explanation = z.strictObject({
  verdict: z.strictObject({
    code: z.enum(CODES).meta({ description: 'Stable: branch on this.' }),
    why: z.string(),
    unblocks: z.string().meta({ description: 'What would make it move, and by when.' }),
  }),
  at: time.meta({ description: 'By the database’s clock, as all times here.' }),
  session: session.omit({ ownerProcess: true, lock: true }),
  owner: z
    .strictObject({
      ...whereabouts,
      alive: z.boolean().nullable().meta({ description: 'Null: Redis does not answer.' }),
      draining: z.boolean().nullable(),
    })
    .nullable(),
  lock: z
    .strictObject({
      kind: z.enum(['busy', 'idle', 'none', 'unreadable']),
      process: whereabouts.process,
      ofOwner: z.boolean(),
      leftMs: z.int().nullable(),
    })
    .nullable()
    .meta({ description: 'Null: Redis does not answer.' }),
  queue: z.strictObject({
    waiting: z.int(),
    first: z.array(z.strictObject({ seq, kind: z.string(), version: z.int(), ageMs: age })),
  }),
  turn: z
    .strictObject({
      seq,
      attempt: z.int(),
      since: time.nullable(),
      ageMs: age.nullable(),
      lastEntry: entry.nullable(),
      lastStep: entry.nullable(),
    })
    .nullable(),
  attempts: z
    .strictObject({
      seq,
      found: z.boolean(),
      stopped: z.boolean(),
      starts: z.int(),
      failures: z.int(),
      crashes: z.int(),
      handovers: z.int(),
      suspect: z.boolean(),
      retryAt: time.nullable(),
      retryInMs: age.nullable(),
    })
    .nullable(),
  transitions: z.array(
    z.strictObject({
      entry: z.int(),
      seq,
      attempt: z.int(),
      epoch: z.int(),
      outcome: z.string().nullable().meta({ description: 'Of a turn that ended; null: it started.' }),
      at: time,
    }),
  ),
  processes: z
    .array(
      z.strictObject({
        process: z.string(),
        host: z.string().nullable(),
        pid: z.int().nullable(),
        kinds: z.array(z.string()),
        version: z.int(),
        free: z.int(),
        draining: z.boolean(),
        ageMs: age.nullable(),
      }),
    )
    .nullable()
    .meta({
      description:
        'Who could run the next message now. Null: Redis does not answer, or the key is restricted to tenants, or it is a token.',
    }),
})
