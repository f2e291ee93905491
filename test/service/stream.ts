// Reads server-sent events as a browser does: one connection, or one after the other with the last event's id.
import { setTimeout as sleep } from 'node:timers/promises'

export interface Sent {
  readonly event: string
  readonly id: string
  // Whoever reads it knows what it is.
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly data: any
}

export interface Where {
  readonly session: string
  readonly key: string
  readonly after?: string | undefined
  readonly signal?: AbortSignal | undefined
}

/** One connection, to its end. Throws what breaks it off, and an error with its status for any other answer than 200. */
export async function* events(url: string, { session, key, after, signal }: Where): AsyncGenerator<Sent> {
  const response = await fetch(`${url}/v1/sessions/${session}/events`, {
    headers: { authorization: `Bearer ${key}`, ...(after !== undefined && { 'last-event-id': after }) },
    ...(signal && { signal }),
  })
  if (response.status !== 200) {
    await response.body?.cancel()
    throw new Error(`status ${response.status}`)
  }
  let text = ''
  let id = after ?? ''
  const decoder = new TextDecoder()
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += decoder.decode(chunk, { stream: true })
    const blocks = text.split('\n\n')
    text = blocks.pop() ?? ''
    for (const block of blocks) {
      let event = 'message'
      const data: string[] = []
      for (const line of block.split('\n')) {
        const [, name, value = ''] = /^(\w+): ?([^]*)$/.exec(line) ?? []
        if (name === 'event') event = value
        else if (name === 'id') id = value
        else if (name === 'data') data.push(value)
      }
      if (data.length > 0) yield { event, id, data: JSON.parse(data.join('\n')) as unknown }
    }
  }
}

/** For ever, on one server after the other; ends with `signal`. Tells `onBreak` of every end. */
export async function* follow(
  urls: () => readonly string[],
  where: Where,
  onBreak: (why: string) => void = () => undefined,
): AsyncGenerator<Sent> {
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
