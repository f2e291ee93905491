/** Follows a session's transcript: entries after a cursor, once each and in order, until there is no reason to go on. */
import { sleep } from '../base/timing.ts'
import { type Client, type Entry, UnavailableError } from '../index.ts'

const LOOK_MS = 200
const TROUBLE_MS = 1000
const PAGE = 1000

/** Yields for ever, or until the transcript's present end when `once`. Waits out an outage of the database. */
export async function* follow(
  client: Client,
  sessionId: string,
  { after = 0, once = false }: { after?: number | undefined; once?: boolean } = {},
): AsyncGenerator<Entry> {
  for (let cursor = after; ;) {
    const page = await client
      .transcript(sessionId, { after: cursor, limit: PAGE })
      .catch((error: unknown) => {
        if (once || !(error instanceof UnavailableError) || error.code === 'MIGRATION_PENDING') throw error
      })
    if (!page) {
      await sleep(TROUBLE_MS)
      continue
    }
    yield* page.entries
    cursor = page.cursor
    if (page.entries.length > 0) continue
    if (once) return
    await sleep(LOOK_MS)
  }
}

const FINAL: ReadonlySet<unknown> = new Set(['completed', 'stopped', 'failed', 'withdrawn', 'missing'])

/** How a message ended for good, when this entry says so. Retries, hand-overs and lost turns are no ends. */
export function finalOutcome({ type, payload }: Pick<Entry, 'type' | 'payload'>): string | undefined {
  if (type !== 'turn_ended') return undefined
  const { outcome } = Object(payload) as { outcome?: unknown }
  return FINAL.has(outcome) ? String(outcome) : undefined
}
