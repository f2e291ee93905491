/**
 * Notifications between processes: "there is work", "stop this", "your lock is back, take it". They only make
 * things fast: each may be lost, doubled or forged by somebody with access to the channel, and is a reason to
 * look, nothing more. Messages are plain text, a verb and words: `wake chat-1 chat-2`, `stop chat-1 17`,
 * `retake chat-1 P.token`.
 */
import type { Redis } from 'ioredis'
import { isSessionId } from '../base/ids.ts'
import type { RedisClient } from './connect.ts'
import type { Keys } from './keys.ts'
import { LOOK, wakeNotice } from './notice.ts'
import { script } from './script.ts'
import { Subscription } from './subscription.ts'

const WAKE_CHUNK = 500
const MESSAGE_MAX = 1024 * 1024
const SAMPLE_MAX = 100

const changedScript = script({
  keys: [],
  args: ['channels', 'notice'],
  lua: `for channel in string.gmatch(channels, '%S+') do redis.call('PUBLISH', channel, notice) end`,
  reply: () => undefined,
})

/**
 * Publishes. Every method answers how many subscribers heard it; 0 means nobody did (in a Redis Cluster only
 * the asked node is counted, so there 0 means nothing). They reject when Redis cannot be reached.
 */
export class Publisher {
  readonly #redis: RedisClient
  readonly #keys: Keys

  constructor(redis: RedisClient, keys: Keys) {
    this.#redis = redis
    this.#keys = keys
  }

  /** Tells one process that these sessions have work. Of several messages the least heard counts; none, 0. */
  wakeProcess(processId: string, ids: readonly string[]): Promise<number> {
    return this.#wake(this.#keys.processChannel(processId), ids)
  }

  /** Tells every process. */
  wakeAll(ids: readonly string[]): Promise<number> {
    return this.#wake(this.#keys.wakeChannel, ids)
  }

  /** Tells the owner that messages up to `through` are stopped. */
  stop(processId: string, id: string, through: number): Promise<number> {
    return this.#redis.publish(this.#keys.processChannel(processId), `stop ${id} ${through}`)
  }

  /** Asks the row's owner (its token) to take back a lock that it has lost. */
  retake(processId: string, id: string, owner: string): Promise<number> {
    return this.#redis.publish(this.#keys.processChannel(processId), `retake ${id} ${owner}`)
  }

  /** Tells everybody who watches these sessions that their rows have changed, in one command for all of them. */
  changed(ids: readonly string[]): Promise<void> {
    const channels = ids.map((id) => this.#keys.sessionChannel(id)).join(' ')
    return changedScript(this.#redis, { channels, notice: LOOK })
  }

  async #wake(channel: string, ids: readonly string[]): Promise<number> {
    const sent: Promise<number>[] = []
    for (let from = 0; from < ids.length; from += WAKE_CHUNK) {
      sent.push(this.#redis.publish(channel, wakeNotice(ids.slice(from, from + WAKE_CHUNK))))
    }
    return sent.length === 0 ? 0 : Math.min(...(await Promise.all(sent)))
  }
}

export interface ListenerOptions {
  keys: Keys
  processId: string
  /** Makes a fresh subscriber connection; see `RedisConnection.subscriber`. */
  connect: () => Redis
  /** Interval and deadline of pings in ms: a silent connection is replaced after about three of them. */
  pingMs: number
  /** `directed`: sent to this process only, which therefore is expected to act or to pass it on. */
  onWake: (ids: string[], how: { directed: boolean }) => void
  onStop: (id: string, through: number) => void
  onRetake: (id: string, owner: string) => void
  /** Something that no {@link Publisher} of ours sends; the beginning of it. */
  onJunk: (sample: string) => void
  /** After every (re)subscription: notifications may have been missed before. */
  onSubscribed: () => void
  /** Connection trouble and what the callbacks threw, as often as it happens. */
  onTrouble: (error: unknown) => void
}

/** Hears what is meant for this process, over one connection, for as long as the process lives. */
export class Listener {
  readonly #options: ListenerOptions
  readonly #subscription: Subscription

  constructor(options: ListenerOptions) {
    const { keys, processId, connect, pingMs, onSubscribed, onTrouble } = options
    this.#options = options
    this.#subscription = new Subscription({
      connect,
      pingMs,
      onSubscribed,
      onTrouble,
      channels: [keys.wakeChannel, keys.processChannel(processId)],
      onMessage: (channel, text) => this.#hear(text, channel !== keys.wakeChannel),
    })
  }

  start(): void {
    this.#subscription.start()
  }

  /** Resolves when the connection is closed and no callback comes any more. */
  stop(): Promise<void> {
    return this.#subscription.stop()
  }

  /** Monotonic time since when it has been subscribed without a break; null while it is not. */
  upSinceMs(): number | null {
    return this.#subscription.upSinceMs()
  }

  #hear(text: string, directed: boolean): void {
    const notice = text.length <= MESSAGE_MAX ? parseNotice(text) : null
    if (!notice || (notice.verb !== 'wake' && !directed))
      return this.#options.onJunk(text.slice(0, SAMPLE_MAX))
    if (notice.verb === 'stop') return this.#options.onStop(notice.id, notice.through)
    if (notice.verb === 'retake') return this.#options.onRetake(notice.id, notice.owner)
    if (notice.junk !== undefined) this.#options.onJunk(notice.junk.slice(0, SAMPLE_MAX))
    if (notice.ids.length > 0) this.#options.onWake(notice.ids, { directed })
  }
}

type Notice =
  | { verb: 'wake'; ids: string[]; junk: string | undefined }
  | { verb: 'stop'; id: string; through: number }
  | { verb: 'retake'; id: string; owner: string }

const THROUGH = /^(?:0|[1-9][0-9]{0,15})$/
const OWNER = /^[A-Za-z0-9]{1,64}\.[A-Za-z0-9]{1,64}$/

function parseNotice(text: string): Notice | null {
  const [verb, ...words] = text.split(' ')
  if (verb === 'wake' && words.length > 0) {
    return { verb, ids: words.filter(isSessionId), junk: words.find((word) => !isSessionId(word)) }
  }
  const [id, detail] = words
  if (words.length !== 2 || id === undefined || detail === undefined || !isSessionId(id)) return null
  if (verb === 'stop' && THROUGH.test(detail) && Number.isSafeInteger(Number(detail))) {
    return { verb, id, through: Number(detail) }
  }
  return verb === 'retake' && OWNER.test(detail) ? { verb, id, owner: detail } : null
}
