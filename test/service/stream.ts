// Follows server-sent events as a browser does: one connection after the other, with the last event's id.
import { setTimeout as sleep } from 'node:timers/promises'
import { Reader, type Told } from '../http/sse.ts'

export interface Where {
  readonly session: string
  readonly key: string
  readonly after?: string | undefined
  readonly signal?: AbortSignal | undefined
  /** The connection counts as dead when nothing came for so long, not even a comment. Default: never. */
  readonly silenceMs?: number | undefined
}

/** One connection, to its end. Throws what breaks it off, and an error with its status for any other answer than 200. */
export async function* events(
  url: string,
  { session, key, after, signal, silenceMs }: Where,
): AsyncGenerator<Told> {
  const dead = new AbortController()
  const silence =
    silenceMs && setTimeout(() => dead.abort(new Error(`silent for ${silenceMs} ms`)), silenceMs)
  try {
    const response = await fetch(`${url}/v1/sessions/${session}/events`, {
      headers: { authorization: `Bearer ${key}`, ...(after !== undefined && { 'last-event-id': after }) },
      signal: AbortSignal.any([dead.signal, ...(signal ? [signal] : [])]),
    })
    if (response.status !== 200) {
      await response.body?.cancel()
      throw new Error(`status ${response.status}`)
    }
    const reader = new Reader(response.body!)
    try {
      while (await reader.read()) {
        if (silence) silence.refresh()
        yield* reader.events.splice(0)
      }
    } finally {
      await reader.leave().catch(() => undefined)
    }
  } finally {
    if (silence) clearTimeout(silence)
  }
}

/** For ever, on one server after the other; ends with `signal`. Tells `onBreak` of every end. */
export async function* follow(
  urls: () => readonly string[],
  where: Where,
  onBreak: (why: string) => void = () => undefined,
): AsyncGenerator<Told> {
  let turn = Math.floor(Math.random() * 100)
  const connect = (after: string | undefined) => {
    const all = urls()
    return events(all[turn++ % all.length]!, { ...where, after })
  }
  for await (const sent of goOn(connect, { ...where, cursorOf: ({ id }) => id }, onBreak)) {
    if (sent.event === 'reconnect') onBreak('reconnect')
    else yield sent
  }
}

/** Goes on behind what came last, whenever what `connect` gives has ended; until `signal`. */
export async function* goOn<T>(
  connect: (after: string | undefined) => AsyncIterable<T>,
  {
    after: first,
    signal,
    cursorOf,
    pauseMs = [20, 70],
  }: {
    readonly after?: string | undefined
    readonly signal?: AbortSignal | undefined
    readonly cursorOf: (sent: T) => string
    /** Between two connections, at least and at most. */
    readonly pauseMs?: readonly [number, number] | undefined
  },
  onBreak: (why: string) => void,
): AsyncGenerator<T> {
  for (let after = first; !signal?.aborted;) {
    try {
      for await (const sent of connect(after)) {
        after = cursorOf(sent)
        yield sent
      }
    } catch (error) {
      onBreak(error instanceof Error ? error.message : String(error))
    }
    await sleep(pauseMs[0] + Math.random() * (pauseMs[1] - pauseMs[0]))
  }
}
