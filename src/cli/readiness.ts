/**
 * Whether a server should be sent requests, for `/readyz`: its database answers, or did seconds ago. Anybody may
 * ask, so the database is asked once a second at most.
 */
import type { Client } from '../index.ts'
import { now, withDeadline } from '../base/timing.ts'

const ASK_MS = 1000
const ANSWER_MS = 2000
/** An outage that is over sooner is waited out by the requests themselves. */
const GRACE_MS = 5000

/** Resolves with what is wrong, by name; nothing when all is well. */
export function readinessOf(client: Client): () => Promise<readonly string[]> {
  let asked: { readonly at: number; readonly answered: Promise<void> } | undefined
  let silentSince: number | undefined
  const ask = async () => {
    try {
      await withDeadline(client.sessions({ limit: 1 }), ANSWER_MS, () => new Error('The database is silent.'))
      silentSince = undefined
    } catch {
      // Reported by whoever needs it; here it only counts.
      silentSince ??= now()
    }
  }
  return async () => {
    if (!asked || now() - asked.at >= ASK_MS) asked = { at: now(), answered: ask() }
    await asked.answered
    return silentSince !== undefined && now() - silentSince > GRACE_MS ? ['mysql'] : []
  }
}
