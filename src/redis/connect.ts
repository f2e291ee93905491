/**
 * The connections of a process to Redis: one for commands, and a maker of subscriber connections. Called once
 * by the client and the worker. Whatever the source, the *behaviour* is set here: a command is answered or
 * refused within its deadline, is never sent twice, and never waits in a queue to happen later, when nobody
 * expects it any more.
 *
 * A caller's own client is therefore a recipe (address, credentials, TLS), not a connection to share: it is
 * duplicated with our behaviour and otherwise left alone.
 */
import { Redis } from 'ioredis'
import type { Cluster, RedisOptions } from 'ioredis'
import { InvalidInputError, UnavailableError } from '../base/errors.ts'
import { Alarm, backoffMs, withDeadline } from '../base/timing.ts'
import { parseRedisUrl } from './address.ts'

/** What every primitive of this folder accepts. */
export type RedisClient = Redis | Cluster

/** By its own mark rather than `instanceof`: a caller's client may come from another copy of ioredis. */
export const isCluster = (client: RedisClient): client is Cluster => client.isCluster

export interface RedisConnection {
  /** For every command but SUBSCRIBE. Commands reject within the deadline; see {@link toUnavailable}. */
  readonly commands: RedisClient
  /** Whether this is a Redis Cluster, where PUBLISH and PUBSUB NUMSUB speak for one node only. */
  readonly cluster: boolean
  /**
   * A new, not yet connected connection for subscriptions (in a cluster, to one of its nodes). It does not
   * reconnect: its user replaces it, which also finds a new primary. Throws when a cluster knows no node at
   * the moment.
   */
  readonly subscriber: () => Redis
  /** Answers what is in flight, within the deadline, and disconnects. Subscribers belong to their users. */
  close(): Promise<void>
}

export interface ConnectOptions {
  /** Deadline of a command, and how long commands wait for the very first connection, in ms. */
  timeoutMs: number
  /** Everything that goes wrong with the connection, as often as it does: limit the rate before logging. */
  onTrouble: (error: Error) => void
  /** The connection is (again) usable. */
  onReady: () => void
}

/**
 * Connects in the background; never throws because Redis is down. Until the first connection is ready (or has
 * failed) commands wait for it, up to `timeoutMs`; later a missing connection refuses them at once.
 * Throws {@link InvalidInputError} `INVALID_OPTIONS` when the source cannot be used.
 */
export function connectRedis(source: string | RedisClient, options: ConnectOptions): RedisConnection {
  const { timeoutMs } = options
  const template = typeof source === 'string' ? parseRedisUrl(source) : checkClient(source)
  const commands = open(template, timeoutMs)
  const firstWait = new Alarm()
  let ready = false
  let closing = false
  commands.on('error', (error: Error) => options.onTrouble(error))
  commands.on('node error', (error: Error) => options.onTrouble(error))
  commands.on('ready', () => {
    ready = true
    options.onReady()
  })
  commands.on('close', () => {
    // A server that closes politely causes no 'error' event.
    if (ready && !closing) options.onTrouble(new Error('The connection to Redis was closed.'))
    ready = false
  })
  endFirstWait(commands, firstWait, timeoutMs)
  return {
    commands,
    cluster: isCluster(commands),
    subscriber: () =>
      new Redis({ ...subscriberTemplate(template, commands), ...subscriberBehaviour(timeoutMs) }),
    close: async () => {
      closing = true
      firstWait.clear()
      // QUIT answers what was sent before it; without a connection it is refused at once.
      await withDeadline(commands.quit(), timeoutMs, () => new Error('late')).catch(() => undefined)
      commands.disconnect()
    },
  }
}

/** Any failure of a command as the error that callers know; `cause` keeps what ioredis said. */
export function toUnavailable(error: unknown): UnavailableError {
  if (error instanceof UnavailableError) return error
  const reason = error instanceof Error ? error.message : String(error)
  return new UnavailableError(
    'REDIS_UNAVAILABLE',
    `Redis did not answer as expected (${reason}). Nothing is lost: MySQL has the truth, ` +
      'and work resumes when Redis is back.',
    { cause: error },
  )
}

function checkClient(client: RedisClient): RedisClient {
  if (typeof client !== 'object' || client === null || typeof client.duplicate !== 'function') {
    throw new InvalidInputError(
      'INVALID_OPTIONS',
      'redis must be a Redis URL or an ioredis Redis or Cluster client.',
    )
  }
  if (client.options.keyPrefix) {
    throw new InvalidInputError(
      'INVALID_OPTIONS',
      'The ioredis client has a keyPrefix, which channels would not get. Remove it and set our prefix.',
    )
  }
  return client
}

function open(template: RedisOptions | RedisClient, timeoutMs: number): RedisClient {
  const behaviour = commandBehaviour(timeoutMs)
  if (!('duplicate' in template)) return new Redis({ ...template, ...behaviour, retryStrategy: reconnectMs })
  if (!isCluster(template)) return template.duplicate({ ...behaviour, retryStrategy: reconnectMs })
  return template.duplicate([], {
    redisOptions: behaviour,
    clusterRetryStrategy: reconnectMs,
    enableOfflineQueue: true,
    enableAutoPipelining: false,
    scaleReads: 'master',
    lazyConnect: false,
  })
}

const reconnectMs = (attempt: number): number => backoffMs(attempt, 25, 200)

function commandBehaviour(timeoutMs: number) {
  return {
    connectionName: 'session-butler',
    commandTimeout: timeoutMs,
    connectTimeout: Math.max(timeoutMs, 2_000),
    // A blackholed connection would only be noticed by the kernel after minutes; unanswered commands show it
    // sooner.
    socketTimeout: timeoutMs * 3,
    keepAlive: 10_000,
    // The two belong together: without a re-send, a cut command of ioredis 6.0.0 never settles
    // (redis/ioredis#2193) unless the failed connection refuses everything, which is what 0 retries mean.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    maxLoadingRetryTime: 500,
    sentinelRetryStrategy: reconnectMs,
    // A demoted primary: the name or the Sentinels lead to the new one.
    reconnectOnError: (error: Error) => error.message.includes('READONLY'),
    enableOfflineQueue: true,
    // Pipelines must stay within one slot and one answer must not wait for another command's.
    enableAutoPipelining: false,
    lazyConnect: false,
    readOnly: false,
    stringNumbers: false,
    replyMapping: 'legacy',
  } satisfies RedisOptions
}

const subscriberBehaviour = (timeoutMs: number) =>
  ({
    ...commandBehaviour(timeoutMs),
    connectionName: 'session-butler-subscriber',
    lazyConnect: true,
    autoResubscribe: false,
    retryStrategy: null,
  }) satisfies RedisOptions

function subscriberTemplate(template: RedisOptions | RedisClient, commands: RedisClient): RedisOptions {
  if (!('duplicate' in template)) return template
  if (!isCluster(commands)) return commands.options
  // Any node will do: the cluster passes every PUBLISH on to all of them.
  const nodes = commands.nodes('master')
  const node = nodes[Math.floor(Math.random() * nodes.length)]
  if (!node) throw toUnavailable(new Error('no node of the cluster is known'))
  return node.options
}

/**
 * ioredis queues commands while it connects. That is wanted once, at the start, and never again: a command
 * that waited through an outage would take or release a lock long after its sender stopped counting on it.
 */
function endFirstWait(client: RedisClient, alarm: Alarm, timeoutMs: number): void {
  const end = () => {
    alarm.clear()
    client.options.enableOfflineQueue = false
    // ioredis has no public way to refuse what is queued.
    const queued = client as unknown as {
      flushQueue(error: Error, options?: { commandQueue: boolean }): void
    }
    queued.flushQueue(new Error('Redis is not reachable.'), { commandQueue: false })
  }
  client.once('ready', end)
  client.once('close', end)
  alarm.set(timeoutMs, end)
}
