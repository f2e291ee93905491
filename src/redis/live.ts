/**
 * The deltas of the attempt that is running, in a list per session: appended and published in one step, bounded, and
 * gone when the turn is over. An element is what one tick of the handler emitted:
 *
 *     seq attempt epoch first last bytes        first and last index; bytes of all deltas so far
 *     [[index,after,delta],…]                   after: the last entry that the handler's turn knew of
 *
 * What an older attempt still sends comes too late: it neither touches nor precedes the newer one's.
 */
import type { RedisClient } from './connect.ts'
import type { Keys } from './keys.ts'
import { unlessWrongType } from './read.ts'
import { script } from './script.ts'

export interface Delta {
  /** 1, 2, 3, … within an attempt. */
  readonly index: number
  /** The delta lies behind this entry and before the next one. */
  readonly after: number
  readonly value: unknown
}

/** Deltas that were emitted together. */
export interface Chunk {
  readonly seq: number
  readonly attempt: number
  readonly epoch: number
  readonly deltas: readonly Delta[]
  /** Characters of the chunk's text: what keeping it costs. */
  readonly size: number
}

/** A delta before it is sent; `text` is JSON. */
export interface DeltaDraft {
  readonly index: number
  readonly after: number
  readonly text: string
}

export interface ChunkDraft {
  readonly seq: number
  readonly attempt: number
  readonly epoch: number
  /** Never empty, in the order of their indexes. */
  readonly deltas: readonly DeltaDraft[]
  /** Bytes of everything that this attempt has emitted so far, this chunk included. */
  readonly bytes: number
}

export interface LiveLimits {
  readonly maxDeltas: number
  readonly maxBytes: number
  /** How long the list outlives its last delta. */
  readonly ttlMs: number
}

const COMPARE = `
  local function header(chunk)
    local seq, attempt, epoch, first, last, bytes =
      string.match(chunk or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)\\n')
    return tonumber(seq), tonumber(attempt), tonumber(first), tonumber(last), tonumber(bytes)
  end
  local kind = redis.call('TYPE', live).ok
  local newest = kind == 'list' and redis.call('LINDEX', live, -1) or nil
  local seq, attempt, first, last, bytes = header(newest)
  local mine, start = tonumber(mySeq), tonumber(myAttempt)
  local older = not seq or seq < mine or (seq == mine and attempt < start)
  local newer = not older and (seq > mine or attempt > start)
`

const appendScript = script({
  keys: ['live'],
  args: ['mySeq', 'myAttempt', 'myFirst', 'chunk', 'channel', 'maxDeltas', 'maxBytes', 'ttlMs'],
  lua: `
    ${COMPARE}
    if newer or (not older and last >= tonumber(myFirst)) then return 0 end
    if older and kind ~= 'none' then redis.call('DEL', live) end
    redis.call('RPUSH', live, chunk)
    redis.call('PUBLISH', channel, chunk)
    local _, _, _, lastNow, bytesNow = header(chunk)
    while true do
      local oldest = redis.call('LINDEX', live, 0)
      local _, _, from, to, before = header(oldest)
      if to == lastNow then break end
      local kept = bytesNow - before + string.len(oldest)
      if lastNow - from < tonumber(maxDeltas) and kept <= tonumber(maxBytes) then break end
      redis.call('LPOP', live)
    end
    redis.call('PEXPIRE', live, ttlMs)
    return 1
  `,
  reply: (value) => value === 1,
})

/**
 * Keeps a chunk and tells everybody who watches the session, in one step; the oldest chunks beyond the limits go. False:
 * a newer attempt has emitted already, or this chunk is there (a repeated call), and nothing was done.
 */
export const appendLive = (
  redis: RedisClient,
  keys: Keys,
  id: string,
  draft: ChunkDraft,
  limits: LiveLimits,
): Promise<boolean> =>
  appendScript(redis, {
    live: keys.live(id),
    channel: keys.sessionChannel(id),
    mySeq: draft.seq,
    myAttempt: draft.attempt,
    myFirst: draft.deltas[0]?.index ?? 0,
    chunk: formatChunk(draft),
    ...limits,
  })

const clearScript = script({
  keys: ['live'],
  args: ['mySeq', 'myAttempt'],
  lua: `
    ${COMPARE}
    return newer and 0 or redis.call('DEL', live)
  `,
  reply: (value) => value === 1,
})

/** After an attempt's end: its entries say it all now. A newer attempt's deltas stay. */
export const clearLive = (
  redis: RedisClient,
  keys: Keys,
  id: string,
  { seq, attempt }: { seq: number; attempt: number },
): Promise<boolean> => clearScript(redis, { live: keys.live(id), mySeq: seq, myAttempt: attempt })

/** What is kept, oldest first; what cannot be read is left out. */
export async function readLive(redis: RedisClient, keys: Keys, id: string): Promise<Chunk[]> {
  const texts = await redis.lrange(keys.live(id), 0, -1).catch(unlessWrongType<string[]>([]))
  return texts.map(parseChunk).filter((chunk) => chunk !== null)
}

export function formatChunk({ seq, attempt, epoch, deltas, bytes }: ChunkDraft): string {
  const [first = 0, last = 0] = [deltas[0]?.index, deltas.at(-1)?.index]
  const body = deltas.map(({ index, after, text }) => `[${index},${after},${text}]`)
  return `${[seq, attempt, epoch, first, last, bytes].join(' ')}\n[${body.join(',')}]`
}

const HEADER = /^(\d{1,16}) (\d{1,16}) (\d{1,16}) \d{1,16} \d{1,16} \d{1,16}\n/

/** Null for everything that {@link formatChunk} cannot have written. */
export function parseChunk(text: string): Chunk | null {
  const [head, seq, attempt, epoch] = HEADER.exec(text) ?? []
  if (head === undefined) return null
  try {
    const body = JSON.parse(text.slice(head.length)) as [number, number, unknown][]
    const deltas = body.map(([index, after, value]) => ({ index, after, value }))
    const isOrdered = deltas.every(({ index, after }, at) => {
      const before = deltas[at - 1]?.index ?? 0
      return Number.isSafeInteger(index) && Number.isSafeInteger(after) && index > before
    })
    if (!isOrdered || deltas.length === 0) return null
    return { seq: Number(seq), attempt: Number(attempt), epoch: Number(epoch), deltas, size: text.length }
  } catch {
    return null
  }
}
