/** Follows a session's transcript: entries after a cursor, once each and in order, until there is no reason to go on. */
import type { Client, Entry } from '../index.ts'

const PAGE = 1000

/** Yields for ever, or until the transcript's present end when `once`. */
export async function* follow(
  client: Client,
  sessionId: string,
  { after = 0, once = false }: { after?: number | undefined; once?: boolean } = {},
): AsyncGenerator<Entry> {
  if (!once) {
    for await (const event of client.subscribe(sessionId, { after })) {
      if (event.type === 'entry') yield event.entry
    }
    return
  }
  for (let cursor = after, size = PAGE; size > 0;) {
    const page = await client.transcript(sessionId, { after: cursor, limit: PAGE })
    yield* page.entries
    ;[cursor, size] = [page.cursor, page.entries.length]
  }
}

const FINAL: ReadonlySet<unknown> = new Set(['completed', 'stopped', 'failed', 'withdrawn', 'missing'])

/** How a message ended for good, when this entry says so. Retries, hand-overs and lost turns are no ends. */
export function finalOutcome({ type, payload }: Pick<Entry, 'type' | 'payload'>): string | undefined {
  if (type !== 'turn_ended') return undefined
  const { outcome } = Object(payload) as { outcome?: unknown }
  return FINAL.has(outcome) ? String(outcome) : undefined
}
