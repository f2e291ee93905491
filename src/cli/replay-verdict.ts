/** Reads back what became of a replay: every session's transcript for the check, and its times for the latencies. */
import { type Audit, type Client, NotFoundError } from '../index.ts'
import type { Sent } from './replay-feed.ts'
import { type Problem, TranscriptCheck } from './transcript-check.ts'

/** Sessions read at the same time. */
const WIDTH = 6
const PAGE = 1000

/** Every problem of every session; empty when all is well. */
export async function judge(
  client: Client,
  bySession: ReadonlyMap<string, readonly Sent[]>,
): Promise<Problem[]> {
  const checks: TranscriptCheck[] = []
  await inParallel([...bySession], async ([session, sent]) => {
    const check = new TranscriptCheck(session, sent)
    checks.push(check)
    check.end(await readThrough(client, session, check))
  })
  if (checks.some((check) => check.hasReplies)) for (const check of checks) check.checkReplies()
  return checks.flatMap(({ problems }) => problems)
}

/** Returns the number of the last entry that the session says it has. */
async function readThrough(client: Client, session: string, check: TranscriptCheck): Promise<number> {
  try {
    for (let after = 0; ;) {
      const { entries, cursor, head } = await client.transcript(session, { after, limit: PAGE })
      for (const entry of entries) check.next(entry)
      if (entries.length === 0) return head
      after = cursor
    }
  } catch (error) {
    // Deleted since: the check says what is lost.
    if (error instanceof NotFoundError) return 0
    throw error
  }
}

/** Milliseconds from acceptance to the end, for each sent message that has ended. */
export async function readDoneMs(
  audit: Audit,
  bySession: ReadonlyMap<string, readonly Sent[]>,
): Promise<number[]> {
  const values: number[] = []
  await inParallel([...bySession], async ([session, sent]) => {
    const ours = new Set(sent.map(({ seq }) => seq))
    for (let after = Math.min(...ours) - 1, more = true; more;) {
      const page = await audit.times(session, { after, limit: PAGE })
      for (const { seq, acceptedAt, endedAt } of page) {
        if (ours.has(seq) && endedAt !== null) values.push(Date.parse(endedAt) - Date.parse(acceptedAt))
      }
      after = page.at(-1)?.seq ?? after
      more = page.length === PAGE
    }
  })
  return values
}

async function inParallel<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const left = items.values()
  const lane = async () => {
    for (const item of left) await work(item)
  }
  await Promise.all(Array.from({ length: WIDTH }, lane))
}
