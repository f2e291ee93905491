/**
 * The session's two lists: `queue` (pushed by producers on the left, taken from the right) and `processing`
 * (what the owner took). They hold references, never payloads, and no decision depends on them except "was
 * anything pushed since I looked": what runs next is in MySQL. So a lost, doubled or foreign element costs a
 * look, never a message.
 */
import type { RedisClient } from './connect.ts'
import type { Keys } from './keys.ts'
import { unlessWrongType } from './read.ts'
import { LOOK, wakeNotice } from './notice.ts'
import { script } from './script.ts'

/** A day: long enough to be there when a worker comes, short enough to leave nothing behind. */
const KEEP_SECONDS = 86_400

/** More than any real reference; a longer element is cut, which makes it unreadable, which is what it is. */
const REFERENCE_MAX = 200

const REFERENCE = /^([1-9][0-9]{0,15}):([A-Za-z0-9._:@-]{1,128})$/

export interface Reference {
  seq: number
  id: string
}

export const formatReference = ({ seq, id }: Reference): string => `${seq}:${id}`

/** Null for everything that {@link formatReference} cannot have written. */
export function parseReference(text: string): Reference | null {
  const match = text.length <= REFERENCE_MAX ? REFERENCE.exec(text) : null
  const seq = Number(match?.[1])
  const id = match?.[2]
  return id !== undefined && Number.isSafeInteger(seq) ? { seq, id } : null
}

const PUSH = `
    redis.call('LPUSH', queue, reference)
    redis.call('EXPIRE', queue, keepSeconds)
    redis.call('PUBLISH', events, '${LOOK}')
    local value = redis.pcall('GET', lock)
`

const pushScript = script({
  keys: ['queue', 'lock'],
  args: ['reference', 'keepSeconds', 'events'],
  lua: `
    ${PUSH}
    return type(value) == 'string' and value
  `,
  reply: (value) => (typeof value === 'string' ? value : null),
})

const pushAndWakeScript = script({
  keys: ['queue', 'lock'],
  args: ['reference', 'keepSeconds', 'events', 'channel', 'notice'],
  lua: `
    ${PUSH}
    if type(value) ~= 'string' then return {false, 0} end
    return {value, redis.call('PUBLISH', channel .. string.match(value, '^[^.]*'), notice)}
  `,
  reply: (value): { lock: string | null; heard: number } => {
    const [found, heard] = value as [string | null, number]
    return { lock: typeof found === 'string' ? found : null, heard }
  },
})

/**
 * Pushes one reference and wakes the process that the session's lock names, in one round trip. `heard`: how many heard
 * it; in a Redis Cluster only the asked node is counted.
 */
export const pushAndWake = (
  redis: RedisClient,
  keys: Keys,
  { id, reference }: { id: string; reference: string },
): Promise<{ lock: string | null; heard: number }> =>
  pushAndWakeScript(redis, {
    queue: keys.queue(id),
    lock: keys.lock(id),
    reference,
    keepSeconds: KEEP_SECONDS,
    events: keys.sessionChannel(id),
    channel: keys.processChannel(''),
    notice: wakeNotice([id]),
  })

/**
 * Pushes each reference and answers the value of the session's lock (null when nobody has it), which says
 * whom to notify. Repeating it pushes twice, which is harmless. Never rejects; an element that failed is an
 * Error.
 */
export const pushMany = (
  redis: RedisClient,
  keys: Keys,
  list: readonly { id: string; reference: string }[],
): Promise<(string | null | Error)[]> =>
  pushScript.many(
    redis,
    list.map(({ id, reference }) => ({
      queue: keys.queue(id),
      lock: keys.lock(id),
      reference,
      keepSeconds: KEEP_SECONDS,
      events: keys.sessionChannel(id),
    })),
  )

const OWNER_ONLY = `
  local value = redis.pcall('GET', lock)
  if value ~= token then return {'lost', 0, type(value) == 'string' and value or ''} end
`

/**
 * `lost`: the lock's value is not the busy token but `holder` (empty when there is none). `foreign`: a key of ours held
 * something that is not a list; it was deleted, for left alone it would fail every step of the session.
 */
export type Advanced =
  | { outcome: 'taken'; reference: string; foreign: boolean }
  | { outcome: 'empty' | 'idle'; foreign: boolean }
  | { outcome: 'lost'; holder: string }

const advanceScript = script({
  keys: ['lock', 'queue', 'processing'],
  args: ['token', 'more', 'idleMs', 'keepSeconds'],
  lua: `
    ${OWNER_ONLY}
    local foreign = 0
    local function unlessForeign(key, ...)
      local reply = redis.pcall(...)
      local refusal = type(reply) == 'table' and reply.err
      if not refusal then return reply end
      if not string.find(refusal, 'WRONGTYPE', 1, true) then return redis.call(...) end
      foreign = foreign + redis.call('DEL', key)
      return false
    end
    unlessForeign(processing, 'LTRIM', processing, 1, 0)
    local taken = unlessForeign(queue, 'LMOVE', queue, processing, 'RIGHT', 'LEFT')
    if taken then
      redis.call('EXPIRE', processing, keepSeconds)
      return {'taken', foreign, string.sub(taken, 1, ${REFERENCE_MAX})}
    end
    if more == '1' then return {'empty', foreign} end
    redis.call('SET', lock, token .. '/idle', 'PX', idleMs)
    return {'idle', foreign}
  `,
  reply: (value): Advanced => {
    const [outcome, foreign, text = ''] = value as ['taken' | 'empty' | 'idle' | 'lost', number, string?]
    if (outcome === 'lost') return { outcome, holder: text }
    if (outcome === 'taken') return { outcome, reference: text, foreign: foreign > 0 }
    return { outcome, foreign: foreign > 0 }
  },
})

/**
 * The owner's step between two turns, in one: forget what was in processing, take the next reference, and
 * when there is none turn the lock idle for `idleMs`, unless MySQL still has `more`.
 * After a lost reply the repeated call may have dropped the reference that the first one took: look at MySQL
 * before trusting `empty` or `idle`; and `lost` may name one's own token, idle by the first call.
 */
export const advance = (
  redis: RedisClient,
  keys: Keys,
  id: string,
  token: string,
  options: { idleMs: number; more: boolean },
): Promise<Advanced> =>
  advanceScript(redis, {
    lock: keys.lock(id),
    queue: keys.queue(id),
    processing: keys.processing(id),
    token,
    more: options.more ? 1 : 0,
    idleMs: options.idleMs,
    keepSeconds: KEEP_SECONDS,
  })

/** As {@link Advanced}; `count` references went back. */
export type Recovered =
  { outcome: 'recovered'; count: number; foreign: boolean } | { outcome: 'lost'; holder: string }

/** The newest lies on the left of processing: moving from there to the queue's taking end keeps the order. */
const recoverScript = script({
  keys: ['lock', 'queue', 'processing'],
  args: ['token', 'keepSeconds'],
  lua: `
    ${OWNER_ONLY}
    local function dropForeign(key)
      local kind = redis.call('TYPE', key).ok
      if kind == 'list' or kind == 'none' then return 0 end
      return redis.call('DEL', key)
    end
    local foreign = dropForeign(queue) + dropForeign(processing)
    local count = 0
    while redis.call('LMOVE', processing, queue, 'LEFT', 'RIGHT') do count = count + 1 end
    if count > 0 then redis.call('EXPIRE', queue, keepSeconds) end
    return {'recovered', foreign, count}
  `,
  reply: (value): Recovered => {
    const [outcome, foreign, rest] = value as ['recovered', number, number] | ['lost', number, string]
    return outcome === 'lost'
      ? { outcome, holder: String(rest) }
      : { outcome, count: Number(rest), foreign: foreign > 0 }
  },
})

/** A new owner's first step: everything an earlier one took goes back to be taken next, in the same order. */
export const recover = (redis: RedisClient, keys: Keys, id: string, token: string): Promise<Recovered> =>
  recoverScript(redis, {
    lock: keys.lock(id),
    queue: keys.queue(id),
    processing: keys.processing(id),
    token,
    keepSeconds: KEEP_SECONDS,
  })

/** Lengths of the two lists, for people; a key that is not a list counts as empty. */
export async function depth(
  redis: RedisClient,
  keys: Keys,
  id: string,
): Promise<{ queue: number; processing: number }> {
  const [queue, processing] = await Promise.all([
    redis.llen(keys.queue(id)).catch(unlessWrongType(0)),
    redis.llen(keys.processing(id)).catch(unlessWrongType(0)),
  ])
  return { queue, processing }
}
