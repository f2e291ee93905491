/**
 * What can be tuned, and what each number means: the page to read before changing one. Types and words only;
 * options.ts enforces the values (defaults, bounds, relations), and a test compares the two.
 */

/** What a client or worker may be tuned by. Milliseconds are whole; bounds are inclusive. */
export interface Tunables {
  /**
   * A busy lock lives this long after its last renewal; a frozen owner blocks its session no longer. Default
   * 30000; 1000 to 300000.
   */
  readonly lockTtlMs: number
  /**
   * Busy locks are renewed this often; below half of lockTtlMs, so that one lost renewal loses nothing.
   * Default lockTtlMs / 3 (10000); 50 to 150000.
   */
  readonly renewMs: number
  /**
   * An idle session stays with its butler this long; at least lockTtlMs. Default 300000; 1000 to 86400000.
   */
  readonly idleReleaseMs: number
  /**
   * How often the fleet looks for work that nobody was told of. Default lockTtlMs / 6 (5000); 100 to 300000.
   */
  readonly sweepMs: number
  /** How often a process shows that it lives. Default lockTtlMs / 40 (750); 10 to 60000. */
  readonly heartbeatMs: number
  /**
   * A heartbeat counts this long; at least twice heartbeatMs. Default lockTtlMs / 10 (3000); 50 to 300000.
   */
  readonly heartbeatTtlMs: number
  /**
   * A process is dead when it had no subscription for this long and no heartbeat; at least three times
   * heartbeatMs. Default lockTtlMs / 12 (2500); 50 to 300000.
   */
  readonly deadAfterMs: number
  /**
   * A running owner that was asked for its lock is hung when it had no heartbeat for this long. Default
   * lockTtlMs * 4 / 30 (4000); 100 to 300000.
   */
  readonly hungAfterMs: number
  /**
   * How often a refused acquirer repeats its request to the running owner. Default lockTtlMs / 30 (1000); 10
   * to 60000.
   */
  readonly retakeMs: number
  /**
   * How often a process compares its running turns with their rows (stop, ownership). Default lockTtlMs / 6
   * (5000); 100 to 300000.
   */
  readonly lookMs: number
  /** The same while renewals are unconfirmed or Redis is gone. Default lockTtlMs / 30 (1000); 10 to 60000. */
  readonly lookFastMs: number
  /**
   * A full process gives a waiting session away after this long. Default lockTtlMs / 10 (3000); 50 to
   * 3600000.
   */
  readonly giveAwayMs: number
  /** Turns that run at the same time in a process. Default 100; 1 to 10000. */
  readonly concurrency: number
  /** A message has failed after this many failures of its handler. Default 3; 1 to 100. */
  readonly maxFailures: number
  /** A message has failed after taking this many processes down with it. Default 3; 1 to 100. */
  readonly maxCrashes: number
  /** A message has failed after this many starts, for whatever reason. Default 20; 1 to 10000. */
  readonly maxStarts: number
  /**
   * Waits after the first, second, … failure of a message; the last repeats. 1 to 100 entries of 0 to
   * 604800000. Default [1000, 5000].
   */
  readonly retryDelaysMs: readonly number[]
  /**
   * Running turns may finish for this long while a process drains; 0 hands them over at once. Default 25000;
   * 0 to 86400000.
   */
  readonly drainGraceMs: number
  /**
   * A handler may take this long to return after its signal; then it is detached. Default 5000; 0 to 3600000.
   */
  readonly stopGraceMs: number
  /** Longest turn; then it ends like a stop, with reason `timeout`. Default 1800000; 100 to 604800000. */
  readonly turnTimeoutMs: number
  /**
   * Longest silence of a turn (no entry, no delta, no call to progress); then it ends the same way. Above
   * turnTimeoutMs it never bites. Default 600000; 100 to 604800000.
   */
  readonly progressTimeoutMs: number
  /**
   * A process with this many detached handlers drains and exits, since it can no longer free its memory.
   * Default 10; 1 to 10000.
   */
  readonly maxDetached: number
  /**
   * Largest message payload, as UTF-8 bytes of its JSON. Keep twice this below the server's
   * max_allowed_packet. Default 1048576; 64 to 33554432.
   */
  readonly payloadMaxBytes: number
  /**
   * Largest transcript entry, counted alike; at least payloadMaxBytes, since a message becomes an entry.
   * Default 4194304; 64 to 33554432.
   */
  readonly entryMaxBytes: number
  /** Deepest nesting of a payload or entry. Default 64; 1 to 512. */
  readonly payloadMaxDepth: number
  /** Messages that may wait in a session; one more is refused. Default 1000; 1 to 1000000. */
  readonly queueMax: number
  /**
   * Deltas kept of a running attempt for readers that come later; the oldest go. Default 20000; 1 to 1000000.
   */
  readonly liveMaxDeltas: number
  /** The same in bytes; also the largest delta. Default 1048576; 1024 to 33554432. */
  readonly liveMaxBytes: number
  /**
   * A watcher that takes nothing while this many events come in is cut off, with a cursor to go on from.
   * Default 10000; 1 to 1000000.
   */
  readonly watchMaxEvents: number
  /** The same in bytes. Default 16777216; 1024 to 1073741824. */
  readonly watchMaxBytes: number
  /** Deadline of one enqueue or stop against MySQL, repeats included. Default 10000; 100 to 300000. */
  readonly enqueueTimeoutMs: number
  /**
   * Deadline of the notification in Redis after a commit; missing it costs a sweep, never the message.
   * Default 500; 10 to 60000.
   */
  readonly notifyTimeoutMs: number
  /**
   * Deadline of a Redis command; below renewMs, so that a lost renewal is known before the next. Default
   * min(1000, renewMs / 2) (1000); 10 to 60000.
   */
  readonly redisTimeoutMs: number
  /** Deadline of a MySQL statement, and of getting a connection. Default 5000; 100 to 300000. */
  readonly mysqlTimeoutMs: number
  /** MySQL connections of a process, whatever the number of sessions. Default 10; 2 to 100. */
  readonly mysqlPoolSize: number
  /**
   * First part of every key and channel in Redis; alike in all processes of a fleet. 1 to 32 of A-Z a-z 0-9 .
   * _ - and, inside, colons. Default butler.
   */
  readonly prefix: string
  /** What is removed, and when; nothing is unless asked for. Default {}. */
  readonly retention: Retention
}

/**
 * Ages after which rows may go; the default is never. Each 1000 to 315360000000 (ten years): days, not
 * timers.
 */
export interface Retention {
  /** Finished messages; their idempotency keys are forgotten with them. */
  readonly messagesMs?: number | undefined
  /** Transcript entries of finished turns; readers with an older cursor get a `resync`. */
  readonly entriesMs?: number | undefined
  /** The rows of deleted sessions. */
  readonly deletedMs?: number | undefined
}

/** Any part of {@link Tunables}; `undefined` means the default. */
export type TunablesInput = { readonly [K in keyof Tunables]?: Tunables[K] | undefined }
