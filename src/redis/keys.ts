/**
 * The names of everything in Redis: keys and channels. Nothing else builds one, so that two installations
 * with different prefixes never meet, and all keys of a session share its hash tag (and therefore a cluster
 * slot).
 */

/** Names under one prefix, for example `butler:{chat-1}:lock`. */
export class Keys {
  readonly prefix: string

  /** The set of the ids of all worker processes. */
  readonly processes: string
  /** The channel every process hears. Channels carry the prefix too: ioredis would not add it. */
  readonly wakeChannel: string

  constructor(prefix: string) {
    this.prefix = prefix
    this.processes = `${prefix}:processes`
    this.wakeChannel = `${prefix}:wake`
  }

  /** String: the owner's token, or `token/idle`. */
  lock(sessionId: string): string {
    return `${this.prefix}:{${sessionId}}:lock`
  }

  /** List of references, pushed on the left and taken from the right. */
  queue(sessionId: string): string {
    return `${this.prefix}:{${sessionId}}:queue`
  }

  /** List of the references the owner took and has not finished. */
  processing(sessionId: string): string {
    return `${this.prefix}:{${sessionId}}:processing`
  }

  /** The running turn's deltas. */
  live(sessionId: string): string {
    return `${this.prefix}:{${sessionId}}:live`
  }

  /** A process's heartbeat; missing means that it is dead, frozen or cut off. */
  process(processId: string): string {
    return `${this.prefix}:proc:${processId}`
  }

  /** What processes race for when only one of them should do something, such as one round of the sweep. */
  tick(name: string): string {
    return `${this.prefix}:tick:${name}`
  }

  /** Heard by one process only: directed wakes, stops, requests to take a lock back. */
  processChannel(processId: string): string {
    return `${this.prefix}:process:${processId}`
  }

  /** Heard by everybody who watches the session. */
  sessionChannel(sessionId: string): string {
    return `${this.prefix}:{${sessionId}}:events`
  }
}
