// A process of the campaign with watchers: each watches a session and has noted down what it is given. A watcher goes on
// behind its last event whenever its connection ends, and leaves by itself now and then.
// `node watchers.js '<WatchersOptions as JSON>'`; SIGTERM ends it in order, once it has said that it is ready.
import { setTimeout as sleep } from 'node:timers/promises'
import type { WatchEvent } from '../../src/index.ts'
import { goOn } from '../service/stream.ts'
import { type Note, scribe } from '../support/history.ts'
import { Dice } from './dice.ts'
import { type Address, speakerAt } from './speaker.ts'

export interface WatcherOptions {
  readonly name: string
  readonly session: string
  /** It comes after a while, and has half of what others have seen by then. */
  readonly later: boolean
}

export interface WatchersOptions {
  readonly to: Address
  readonly history: string
  readonly seed: number
  readonly name: string
  readonly watchers: readonly WatcherOptions[]
}

const LATER_MS = [1000, 6000] as const
/** How long a watcher stays until it leaves and comes back. */
const STAYS_MS = [1000, 12_000] as const
const PAUSE_MS = [200, 600] as const

class Watchers {
  readonly #options: WatchersOptions
  readonly #note: (note: Note) => void
  readonly #over = new AbortController()
  /** The last entry that somebody has seen, by session. */
  readonly #seen = new Map<string, number>()

  constructor(options: WatchersOptions) {
    this.#options = options
    this.#note = scribe(options.history, options.name)
  }

  async run(): Promise<void> {
    const speaker = speakerAt(this.#options.to)
    const watch = async ({ name, session, later }: WatcherOptions) => {
      const dice = Dice.of(this.#options.seed, 'watch', name)
      if (later) await sleep(dice.between(...LATER_MS))
      let after = String(Math.floor((this.#seen.get(session) ?? 0) / 2))
      const connect = (cursor = after) => {
        this.#note({ what: 'watches', session, name, fields: { after: (after = cursor) } })
        const leaves = AbortSignal.timeout(dice.between(...STAYS_MS))
        return speaker.subscribe(session, { after, signal: AbortSignal.any([this.#over.signal, leaves]) })
      }
      for await (const event of this.#follow(name, session, connect)) this.#saw(name, session, event)
    }
    process.stdout.write('ready\n')
    await Promise.all(this.#options.watchers.map(watch))
    await speaker.close()
  }

  end(): void {
    this.#over.abort()
  }

  #follow(name: string, session: string, connect: (cursor?: string) => AsyncIterable<WatchEvent>) {
    const { signal } = this.#over
    const cursorOf = ({ cursor }: WatchEvent) => cursor
    return goOn(connect, { signal, cursorOf, pauseMs: PAUSE_MS }, (reason) =>
      this.#note({ what: 'broke', session, name, reason: reason.slice(0, 200) }),
    )
  }

  #saw(name: string, session: string, event: WatchEvent): void {
    // How a session stands is not replayed: nothing of it is promised.
    if (event.type === 'state') return
    const seq = event.type === 'entry' ? { seq: event.entry.seq } : {}
    this.#note({ what: 'saw', session, name, ...seq, fields: { ...event } })
    if (event.type !== 'entry') return
    this.#seen.set(session, Math.max(this.#seen.get(session) ?? 0, event.entry.entry))
  }
}

process.stdin.on('end', () => process.exit(2)).resume()
const watchers = new Watchers(JSON.parse(process.argv[2] ?? '{}') as WatchersOptions)
process.on('SIGTERM', () => watchers.end())
await watchers.run()
process.exit(0)
