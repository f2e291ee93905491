/**
 * A worker process: everything that serves sessions here, started and stopped in the right order. Only wires.
 */
import { checkOptions, whole } from '../base/arguments.ts'
import { ClosedError } from '../base/errors.ts'
import { newProcessId } from '../base/ids.ts'
import type { Telemetry } from '../base/telemetry.ts'
import { sleep, withDeadline } from '../base/timing.ts'
import { isNotAdmitted } from '../mysql/trouble.ts'
import { MESSAGE_VERSION } from '../protocol/session-row.ts'
import { Listener } from '../redis/wake.ts'
import { Contests } from './contests.ts'
import { Dispatcher } from './dispatcher.ts'
import { Checkup, type Health, type HealthOptions } from './health.ts'
import { assertMigrated, isMigrationPending } from './migration.ts'
import { Notifier } from './notifier.ts'
import { Presence } from './presence.ts'
import { Reconciler } from './reconciler.ts'
import { Registry } from './registry.ts'
import { Renewer } from './renewer.ts'
import { Responder } from './responder.ts'
import { RollCall } from './roll-call.ts'
import { type Connections, openStores, type Stores } from './stores.ts'
import { Sweeper } from './sweeper.ts'
import type { Handler } from './handler.ts'
import { Handlers } from './handlers.ts'

export interface WorkerOptions extends Connections {
  /** Runs messages of every kind that `handlers` does not name. */
  readonly handler?: Handler | undefined
  /** Handlers by message kind. A process leaves kinds that it has no handler for to others. */
  readonly handlers?: Readonly<Record<string, Handler>> | undefined
}

export interface DrainOptions {
  /** How long running turns may go on before they are handed over, milliseconds. Default: `drainGraceMs`. */
  readonly graceMs?: number | undefined
}

/** After the grace: for handing over what still runs, when the stores answer slowly or not at all. */
const HAND_OVER_MS = 5000

const PHASES = { new: 'starting', running: undefined, draining: 'draining', stopped: 'stopped' } as const

/** Why a worker ended; see {@link Worker.ended}. */
export type WorkerEnd = 'stopped' | 'overloaded'

/**
 * Duties: 1 take sessions and run their turns, 2 keep what it took, 3 look after others' sessions when their process
 * is gone, 4 let go of everything in order.
 */
export class Worker {
  /** Names this process in locks, rows and logs; random, never reused. */
  readonly processId = newProcessId()
  /**
   * Resolves when the worker has let go of everything: after `stop()`, or by itself (`overloaded`) when too many
   * handlers ignored their signal (`maxDetached`); the process should exit then, only that ends them.
   */
  readonly ended: Promise<WorkerEnd>
  readonly #stores: Stores
  readonly #notifier: Notifier
  readonly #registry: Registry
  readonly #renewer: Renewer
  readonly #reconciler: Reconciler
  readonly #contests: Contests
  readonly #rollCall: RollCall
  readonly #sweeper: Sweeper
  readonly #presence: Presence
  readonly #listener: Listener
  readonly #dispatcher: Dispatcher
  readonly #checkup: Checkup
  #end: (how: WorkerEnd) => void = () => {}
  #detached = 0
  #state: 'new' | 'running' | 'draining' | 'stopped' = 'new'
  #drained: Promise<void> | undefined
  #stopped: Promise<void> | undefined

  /**
   * Connects in the background; serves nothing before `start()`. Throws InvalidInputError for options that cannot be meant.
   * `version`: the newest form of messages it understands; another one only in tests of two versions side by side.
   */
  constructor(options: WorkerOptions, version = MESSAGE_VERSION) {
    const { handler, handlers, ...connections } = Object(options) as WorkerOptions
    const by = new Handlers(handler, handlers)
    this.ended = new Promise((resolve) => (this.#end = resolve))
    const stores = (this.#stores = openStores(connections))
    const { telemetry, tunables } = stores
    const { processId } = this
    const hearingSince = () => this.#listener.upSinceMs()
    const isDead = (id: string) => this.#rollCall.isDead(id)
    this.#notifier = new Notifier(stores, processId, version)
    this.#registry = new Registry({
      processId,
      stores,
      notifier: this.#notifier,
      isDead,
      version,
      handlerFor: (kind) => by.for(kind),
      onHeld: (sessionId, lockValue) => void this.#dispatcher.passOn(sessionId, lockValue),
      onContested: (sessionId, running) => this.#contests.add(sessionId, running),
      onUnrunnable: (sessionId, message) => void this.#dispatcher.findCapable(sessionId, message),
      onDetached: (handlerDone) => this.#countDetached(handlerDone),
      verify: async (sessionId) => {
        const butler = this.#registry.get(sessionId)
        if (butler) await this.#renewer.renew([butler])
      },
    })
    this.#renewer = new Renewer({ stores, registry: this.#registry, processId, isDead })
    this.#reconciler = new Reconciler({
      stores,
      registry: this.#registry,
      processId,
      hurried: () => hearingSince() === null || this.#renewer.late,
    })
    telemetry.on('mysql.trouble', () => this.#reconciler.doubt())
    this.#contests = new Contests({
      stores,
      hearingSince,
      isDead,
      onSuspect: (id) => this.#rollCall.suspect(id),
      onVerdict: (sessionId, judged) => this.#registry.wake(sessionId, judged),
    })
    this.#rollCall = new RollCall({
      stores,
      processId,
      hearingSince,
      onWork: (ids) => void this.#dispatcher.share(ids),
    })
    this.#sweeper = new Sweeper({
      stores,
      processId,
      onSuspect: (id, sessionId, lockValue) => this.#rollCall.suspect(id, sessionId, lockValue),
      onUnrunnable: (session, { kind, version: needed }) =>
        telemetry.emit('message.unrunnable', { session, kind, version: needed }),
      onWork: (ids) => ids.forEach((id) => this.#registry.wake(id)),
    })
    this.#presence = new Presence({
      stores,
      processId,
      state: () => ({
        version,
        kinds: by.kinds,
        free: this.#reconciler.answered ? this.#registry.free : 0,
        draining: this.#state !== 'running',
      }),
    })
    this.#dispatcher = new Dispatcher({
      stores,
      processId,
      version,
      notifier: this.#notifier,
      registry: this.#registry,
      onFull: () => this.#presence.soon(),
      onDeaf: (id, sessionId, lockValue) => this.#rollCall.suspect(id, sessionId, lockValue),
    })
    const responder = new Responder({
      stores,
      notifier: this.#notifier,
      registry: this.#registry,
      renewer: this.#renewer,
      reconciler: this.#reconciler,
      dispatcher: this.#dispatcher,
      serving: () => this.#state === 'running',
    })
    this.#listener = new Listener({
      keys: stores.keys,
      processId,
      connect: () => stores.redis.subscriber(),
      pingMs: Math.min(tunables.renewMs / 2, 5000),
      onWake: (ids, { directed }) => responder.wake(ids, directed),
      onStop: (sessionId) => responder.stop(sessionId),
      onRetake: (sessionId) => responder.retake(sessionId),
      onJunk: (sample) => telemetry.emit('channel.junk', { sample }),
      onSubscribed: () => {
        this.#presence.soon()
        this.#renewer.soon()
        this.#reconciler.soon()
        this.#sweeper.soon()
      },
      onTrouble: (error) => telemetry.emit('redis.trouble', { error }),
    })
    this.#checkup = new Checkup({
      stores,
      phase: () => PHASES[this.#state],
      signs: {
        redis: () => this.#presence.unseen,
        mysql: () => !this.#reconciler.answered,
        deaf: () => hearingSince() === null,
        renewals: () => this.#renewer.late || this.#renewer.overdue,
        looks: () => this.#reconciler.overdue,
        sweep: () => this.#sweeper.overdue,
        'roll-call': () => this.#rollCall.overdue,
      },
    })
  }

  /**
   * Begins to serve sessions. Returns at once; a store that is away is waited for in the background. Repeating it is
   * harmless. When a `stop()` comes in the middle of it, it resolves and the worker does not serve: see `stats().state`.
   * @throws ClosedError after `stop()` or `drain()`. UnavailableError MIGRATION_PENDING.
   */
  async start(): Promise<void> {
    if (this.#state === 'draining' || this.#state === 'stopped') {
      throw new ClosedError('CLOSED', 'This worker was stopped: make a new one with createWorker.')
    }
    if (this.#state === 'new') await this.#checkMigrations()
    if (this.#state !== 'new') return
    this.#state = 'running'
    this.#listener.start()
    for (const part of this.#parts()) part.start()
    this.#stores.telemetry.emit('worker.started', {
      process: this.processId,
      concurrency: this.#stores.tunables.concurrency,
    })
  }

  /**
   * Takes no further turns, lets running ones finish within the grace, hands the rest over to other processes.
   * Resolves when nothing runs here any more; `stop()` then closes the connections. Rejects only for options that cannot
   * be meant, and has done nothing then. A worker that is drained before its start never starts.
   */
  async drain(options: DrainOptions = {}): Promise<void> {
    await (this.#drained ??= this.#drain(this.#graceOf(options)))
  }

  /** Drains, then closes everything of ours. May be called before `start()` and more than once. */
  async stop(options: DrainOptions = {}): Promise<void> {
    await (this.#stopped ??= this.#stop(this.#graceOf(options)))
  }

  #graceOf(options: DrainOptions): number {
    checkOptions(options, ['graceMs'])
    return whole('graceMs', options.graceMs ?? this.#stores.tunables.drainGraceMs, 0)
  }

  /** Whether this process should get work: honest also when both stores answer a ping and nothing is served. */
  health(options: HealthOptions = {}): Health {
    return this.#checkup.health(options)
  }

  /** What this process is doing right now. */
  stats(): { state: string; running: number; waiting: number; sessions: number; detached: number } {
    const { running, waiting, size } = this.#registry
    return { state: this.#state, running, waiting, sessions: size, detached: this.#detached }
  }

  /** Listens to an event of the telemetry catalogue; returns what ends that. */
  on: Telemetry['on'] = (event, listener) => this.#stores.telemetry.on(event, listener)

  /** Everything that ticks. */
  #parts() {
    return [
      this.#presence,
      this.#sweeper,
      this.#rollCall,
      this.#contests,
      this.#dispatcher,
      this.#registry,
      this.#reconciler,
      this.#renewer,
      this.#checkup,
    ]
  }

  /** A worker on an unprepared database would only fail later, once per message. An outage is no reason to refuse. */
  async #checkMigrations(): Promise<void> {
    try {
      await assertMigrated(this.#stores.mysql.db)
    } catch (error) {
      // Neither a missing migration nor a wrong password mends itself; an outage does.
      if (isMigrationPending(error) || isNotAdmitted(error)) throw error
      this.#stores.telemetry.emit('mysql.trouble', { error })
    }
  }

  async #drain(graceMs: number): Promise<void> {
    // One that never ran has nothing to let go of; it must not begin either.
    if (this.#state === 'new') this.#state = 'stopped'
    if (this.#state !== 'running') return
    this.#state = 'draining'
    const { telemetry } = this.#stores
    telemetry.emit('worker.draining', { process: this.processId, running: this.#registry.running })
    this.#presence.soon()
    // They give work to whoever has a free slot, which from now on is somebody else. One may hang on a store meanwhile.
    const loops = [this.#sweeper, this.#contests, this.#dispatcher, this.#rollCall]
    const [left] = await Promise.all([this.#registry.startDraining(), ...loops.map((loop) => loop.stop())])
    await this.#notifier.wakeSomebody(left)
    const settled = this.#registry.settled()
    const grace = new AbortController()
    await Promise.race([settled, sleep(graceMs, grace.signal)])
    grace.abort()
    this.#registry.handOver()
    // With a store away a hand-over may not get through; the sweep of the others finds the rows then.
    await withDeadline(
      settled,
      HAND_OVER_MS,
      () => new Error('Some sessions could not be handed over in time.'),
    ).catch((error: unknown) => telemetry.emit('background.error', { where: 'drain', error }))
  }

  async #stop(graceMs: number): Promise<void> {
    await (this.#drained ??= this.#drain(graceMs))
    const wasRunning = this.#state === 'draining'
    this.#state = 'stopped'
    await this.#listener.stop()
    // The last directed wakes may still be on their way to somebody else.
    await this.#notifier.settled()
    if (wasRunning) await Promise.all(this.#parts().map((part) => part.stop()))
    await this.#stores.close()
    this.#stores.telemetry.emit('worker.stopped', { process: this.processId })
    this.#end('stopped')
  }

  #countDetached(handlerDone: Promise<void>): number {
    this.#detached += 1
    void handlerDone.then(() => (this.#detached -= 1))
    const detached = this.#detached
    if (detached < this.#stores.tunables.maxDetached || this.#state !== 'running') return detached
    const error = new Error(`${detached} handlers ignored their signal and still run: this worker gives up.`)
    this.#stores.telemetry.emit('background.error', { where: 'worker', error })
    this.#end('overloaded')
    void this.stop()
    return detached
  }
}
