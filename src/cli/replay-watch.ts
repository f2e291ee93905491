/**
 * Watches the sessions of a replay until every sent message has its final state. It reads the sessions' numbers by the
 * page: a look costs as much as there are sessions, whatever the number of messages.
 */
import { now, sleep } from '../base/timing.ts'
import { type Client, UnavailableError } from '../index.ts'
import type { Sent } from './replay-feed.ts'

const PAGE = 1000
/** Looks take at most a tenth of the database's time, and are not closer than this. */
const LOOK_MS = 250
const STALL_MS = 30_000

export class ReplayWatch {
  readonly #client: Client
  readonly #onLook: () => void
  readonly #onStall: () => void
  /** Per session the numbers of its messages that are not known to be final, ascending. */
  readonly #open = new Map<string, number[]>()
  #progressAt = now()
  sent = 0
  done = 0

  /** `onStall` is called whenever nothing was sent or finished for 30 s. */
  constructor(options: { client: Client; onLook: () => void; onStall: () => void }) {
    this.#client = options.client
    this.#onLook = options.onLook
    this.#onStall = options.onStall
  }

  add({ session, seq }: Sent): void {
    const open = this.#open.get(session) ?? []
    open.push(seq)
    this.#open.set(session, open)
    this.sent += 1
    this.#progressAt = now()
  }

  /** Resolves when `feeding` is over and everything sent is final, or when the signal fires. */
  async untilDone(feeding: Promise<void>, signal: AbortSignal): Promise<void> {
    let fed = false
    const wake = new AbortController()
    const end = () => wake.abort()
    signal.addEventListener('abort', end, { once: true })
    feeding.then(() => (fed = true), end)
    while (!wake.signal.aborted && !(fed && this.#open.size === 0)) {
      const start = now()
      await this.#look()
      this.#onLook()
      if (now() - this.#progressAt >= STALL_MS) {
        this.#progressAt = now()
        this.#onStall()
      }
      await sleep(Math.max(LOOK_MS, (now() - start) * 10), wake.signal)
    }
    await feeding
  }

  async #look(): Promise<void> {
    const ids = [...this.#open.keys()].sort()
    try {
      for (let cursor = cursorBefore(ids[0]); cursor !== undefined;) {
        const page = await this.#client.sessions({ ...(cursor && { after: cursor }), limit: PAGE })
        for (const { id, doneSeq } of page) this.#settle(id, doneSeq)
        const end = page.at(-1)?.id
        if (page.length < PAGE || end === undefined) return
        // Other sessions may lie between ours, and are skipped as far as a cursor can.
        const jump = cursorBefore(ids.find((id) => id > end))
        cursor = jump !== undefined && jump < end ? end : jump
      }
    } catch (error) {
      // An outage, which the workers have to wait out too.
      if (!(error instanceof UnavailableError) || error.code === 'MIGRATION_PENDING') throw error
    }
  }

  #settle(id: string, doneSeq: number): void {
    const open = this.#open.get(id)
    if (!open) return
    const left = open.filter((seq) => seq > doneSeq)
    if (left.length === open.length) return
    this.done += open.length - left.length
    this.#progressAt = now()
    if (left.length > 0) this.#open.set(id, left)
    else this.#open.delete(id)
  }
}

/** A cursor somewhere before `id`: its own beginning, which may be empty. */
function cursorBefore(id: string | undefined): string | undefined {
  const shorter = id?.slice(0, -1)
  return shorter === '.' || shorter === '..' ? '' : shorter
}
