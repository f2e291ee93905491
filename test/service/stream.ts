// Follows server-sent events as a browser does: one connection after the other, with the last event's id.
import { setTimeout as sleep } from 'node:timers/promises'
import { Reader, type Told } from '../http/sse.ts'

export interface Where {
  readonly session: string
  readonly key: string
  readonly after?: string | undefined
  readonly signal?: AbortSignal | undefined
}

/** One connection, to its end. Throws what breaks it off, and an error with its status for any other answer than 200. */
export async function* events(url: string, { session, key, after, signal }: Where): AsyncGenerator<Told> {
  const response = await fetch(`${url}/v1/sessions/${session}/events`, {
    headers: { authorization: `Bearer ${key}`, ...(after !== undefined && { 'last-event-id': after }) },
    ...(signal && { signal }),
  })
  if (response.status !== 200) {
    await response.body?.cancel()
    throw new Error(`status ${response.status}`)
  }
  const reader = new Reader(response.body!)
  try {
    while (await reader.read()) yield* reader.events.splice(0)
  } finally {
    await reader.leave().catch(() => undefined)
  }
}

/** For ever, on one server after the other; ends with `signal`. Tells `onBreak` of every end. */
export async function* follow(
  urls: () => readonly string[],
  where: Where,
  onBreak: (why: string) => void = () => undefined,
): AsyncGenerator<Told> {
  const { signal } = where
  let { after } = where
  for (let turn = Math.floor(Math.random() * 100); !signal?.aborted; turn++) {
    const all = urls()
    try {
      for await (const sent of events(all[turn % all.length]!, { ...where, after })) {
        after = sent.id
        if (sent.event === 'reconnect') onBreak('reconnect')
        else yield sent
      }
    } catch (error) {
      onBreak(error instanceof Error ? error.message : String(error))
    }
    await sleep(20 + Math.random() * 50)
  }
}
