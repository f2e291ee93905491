// Why a session does not move, as a table: facts in, the answer out. No store, no clock.
import { describe, expect, test } from 'vitest'
import { DEFAULTS } from '../../src/index.ts'
import { askedOf, type VerdictCode, type VerdictFacts, verdictOf } from '../../src/session/verdict.ts'

type Redis = NonNullable<VerdictFacts['redis']>
const OWNER = 'OwnerProcess.Token'

const session = {
  doneSeq: 2,
  inboxSeq: 5,
  stopSeq: 0,
  runningSeq: null,
  owner: null,
  retryInMs: null,
  starts: 0,
  crashes: 0,
}
const running = { ...session, runningSeq: 3, owner: OWNER, starts: 1 }
const next = { kind: 'chat', version: 1, status: null }
const able = { version: 1, kinds: ['*'], free: 3, draining: false }
const full = { ...able, free: 0 }
const redis: Redis = {
  lock: { kind: 'none', token: null, leftMs: null },
  ownerAlive: null,
  ownerDraining: false,
  holderAlive: null,
  fleet: [able],
  cluster: false,
}
const busy = (token: string | null, holderAlive: boolean | null, leftMs: number | null = 12_000) => ({
  ...redis,
  lock: { kind: 'busy' as const, token, leftMs },
  ownerAlive: false,
  holderAlive,
})
const facts = (more: {
  session?: object
  next?: VerdictFacts['next'] | null
  redis?: Redis | null
}): VerdictFacts => ({
  session: { ...session, ...more.session },
  next: more.next === null ? undefined : (more.next ?? next),
  redis: more.redis === null ? undefined : (more.redis ?? redis),
  tunables: DEFAULTS,
})

type Case = [what: string, code: VerdictCode, unblocks: RegExp, more: Parameters<typeof facts>[0]]

const CASES: Case[] = [
  ['nothing is left', 'idle', /new message/, { session: { doneSeq: 5 } }],
  ['nothing is left, Redis is away', 'idle', /new message/, { session: { doneSeq: 5 }, redis: null }],
  ['a turn runs', 'running', /1800 s/, { session: running, redis: { ...redis, ownerAlive: true } }],
  [
    'a turn runs, and another’s lock is in its place',
    'running',
    /600 s/,
    { session: running, redis: { ...busy('Other.x', true), ownerAlive: true } },
  ],
  [
    'a turn runs in a process that drains',
    'running',
    /hand-over.* 25 s after/,
    { session: running, redis: { ...redis, ownerAlive: true, ownerDraining: true } },
  ],
  ['a turn runs, Redis is away', 'running', /1800 s/, { session: running, redis: null }],
  [
    'a running turn is stopped',
    'stopping',
    /cut off 5 s .* within 6 s/,
    { session: { ...running, stopSeq: 3 }, redis: { ...redis, ownerAlive: true } },
  ],
  [
    'what came before the running turn is stopped',
    'running',
    /1800 s/,
    { session: { ...running, stopSeq: 2 }, redis: { ...redis, ownerAlive: true } },
  ],
  ['a stopped turn, Redis is away', 'stopping', /6 s/, { session: { ...running, stopSeq: 4 }, redis: null }],
  [
    'a turn whose process is gone',
    'owner-gone',
    /^Another .* within 5 s .* within 40 s/,
    { session: running, redis: { ...redis, ownerAlive: false } },
  ],
  [
    'a stopped turn whose process is gone',
    'owner-gone',
    /within 40 s/,
    { session: { ...running, stopSeq: 5 }, redis: { ...redis, ownerAlive: false } },
  ],
  [
    'a turn whose process is gone, and nobody else is there',
    'owner-gone',
    /^A worker that is started/,
    { session: running, redis: { ...redis, ownerAlive: false, fleet: [] } },
  ],
  [
    'a turn whose process is gone, in a cluster',
    'owner-gone',
    /^Another process takes it over, within 40 s\.$/,
    { session: running, redis: { ...redis, ownerAlive: false, cluster: true } },
  ],
  ['it waits, Redis is away', 'redis-unreachable', /Redis answering.* within 10 s/, { redis: null }],
  [
    'it is put off, Redis is away',
    'redis-unreachable',
    /Redis answering/,
    { session: { retryInMs: 900 }, redis: null },
  ],
  [
    'it is put off, whoever holds it',
    'backing-off',
    /The time/,
    { session: { retryInMs: 900, owner: OWNER }, redis: busy(OWNER, true) },
  ],
  ['the time is over', 'due', /next sweep, within 10 s/, { session: { retryInMs: -5 } }],
  ['it is put off and stopped', 'due', /wake/, { session: { retryInMs: 900, stopSeq: 3 } }],
  ['it is put off and counted out', 'due', /wake/, { session: { retryInMs: 900, starts: 20 } }],
  [
    'its holder has not begun',
    'waiting-for-owner',
    /within 10 s/,
    { session: { owner: OWNER }, redis: busy(OWNER, true) },
  ],
  ['somebody alive is about to own it', 'waiting-for-owner', /begins/, { redis: busy('Other.x', true) }],
  [
    'its holder is gone',
    'owner-gone',
    /within 5 s .* within 40 s/,
    { session: { owner: OWNER }, redis: busy(OWNER, false) },
  ],
  [
    'the lock is somebody’s whom nobody knows',
    'lock-held-by-stranger',
    /within 40 s/,
    { session: { owner: OWNER }, redis: busy('Stranger.x', false) },
  ],
  ['the lock is no token', 'lock-held-by-stranger', /within 40 s/, { redis: busy(null, null, null) }],
  [
    'the lock is idle, its holder gone',
    'due',
    /wake/,
    {
      session: { owner: OWNER },
      redis: { ...busy(OWNER, false), lock: { kind: 'idle', token: OWNER, leftMs: 9 } },
    },
  ],
  [
    'the lock is no string',
    'due',
    /wake/,
    { redis: { ...redis, lock: { kind: 'unreadable', token: null, leftMs: null } } },
  ],
  ['nobody is there', 'nobody-there', /started/, { redis: { ...redis, fleet: [] } }],
  [
    'everybody drains',
    'nobody-there',
    /started/,
    { redis: { ...redis, fleet: [{ ...able, draining: true }] } },
  ],
  [
    'nobody has the handler',
    'no-capable-process',
    /A worker that can/,
    { redis: { ...redis, fleet: [{ ...able, kinds: ['report'] }] } },
  ],
  [
    'who has the handler drains',
    'no-capable-process',
    /A worker that can/,
    {
      redis: {
        ...redis,
        fleet: [
          { ...able, kinds: ['report'] },
          { ...able, draining: true },
        ],
      },
    },
  ],
  [
    'nobody knows its form',
    'no-capable-process',
    /A worker that can/,
    { next: { ...next, version: 2 }, session: { starts: 20, crashes: 9 } },
  ],
  [
    'nobody has the handler, and it is stopped',
    'due',
    /wake/,
    { session: { stopSeq: 3 }, redis: { ...redis, fleet: [{ ...able, kinds: ['report'] }] } },
  ],
  [
    'nobody has the handler, and its row is missing',
    'due',
    /wake/,
    { next: null, redis: { ...redis, fleet: [{ ...able, kinds: ['report'] }] } },
  ],
  [
    'nobody has the handler, and it was taken back',
    'due',
    /wake/,
    { next: { ...next, status: 'withdrawn' }, redis: { ...redis, fleet: [{ ...able, kinds: [] }] } },
  ],
  [
    'nobody has the handler, and it is given up',
    'due',
    /wake/,
    { session: { crashes: 3 }, redis: { ...redis, fleet: [{ ...able, kinds: ['report'] }] } },
  ],
  [
    'who can is full, who cannot is free',
    'all-full',
    /turn that ends.* within 10 s/,
    { redis: { ...redis, fleet: [full, { ...able, kinds: ['report'] }, { ...able, draining: true }] } },
  ],
  ['somebody is free', 'due', /wake/, { redis: { ...redis, fleet: [full, able] } }],
]

describe('the verdict', () => {
  test.each(CASES)('%s: %s', (_what, code, unblocks, more) => {
    const verdict = verdictOf(facts(more))
    expect(verdict).toEqual({
      code,
      why: expect.stringMatching(/\.$/),
      unblocks: expect.stringMatching(unblocks),
    })
    // Whoever may see the session may read it: no process is named.
    expect(`${verdict.why} ${verdict.unblocks}`).not.toMatch(/OwnerProcess|Stranger\.|Other\.|report/)
    expect(`${verdict.why} ${verdict.unblocks}`).not.toMatch(/undefined|null|NaN/)
  })

  test('says that Redis is away, also where it does not matter to the turn', () => {
    expect(verdictOf(facts({ session: running, redis: null })).why).toContain('Redis does not answer')
    expect(verdictOf(facts({ session: running, redis: { ...redis, ownerAlive: true } })).why).not.toContain(
      'Redis',
    )
  })

  test('names what a message asks for, and what a suspect waits for', () => {
    const fleet = [{ ...able, kinds: ['report'] }]
    expect(verdictOf(facts({ redis: { ...redis, fleet } })).why).toContain('kind chat, version 1')
    const held = (crashes: number) => verdictOf(facts({ session: { crashes }, redis: busy(OWNER, true) })).why
    expect(held(2)).toContain('one crash from being given up')
    expect(held(1)).not.toContain('crash')
  })

  test('reckons its bounds with the times in force', () => {
    const tunables = { ...DEFAULTS, lockTtlMs: 3000, sweepMs: 500, deadAfterMs: 250 }
    const gone = { ...facts({ session: running, redis: { ...redis, ownerAlive: false } }), tunables }
    expect(verdictOf(gone).unblocks).toMatch(/within 0\.5 s .* within 4 s/)
  })
})

test('what is not to run asks for nothing, what is given up for its form alone', () => {
  expect(askedOf(facts({}))).toEqual({ wanted: { kind: 'chat', version: 1 }, isPutOff: true })
  expect(askedOf(facts({ session: { starts: 20 } })).wanted).toEqual({ version: 1 })
  expect(askedOf(facts({ next: null })).wanted).toEqual({})
})
