/**
 * The butlers of this process and the one line they wait in. A slot runs one turn of the butler at the head; a
 * session with more to do goes to the end, so a long backlog starves nobody. Whoever waits without owning its session
 * costs Redis nothing: a session is acquired inside the slot, when its turn has come.
 */
import { Alarm, now, Ticker } from '../base/timing.ts'
import { Butler, type Next } from './butler.ts'
import type { Judged } from './hold.ts'
import type { House } from './house.ts'

/** More sessions than this may not wait here; the sweep finds those who were turned away. */
const LINE_MAX = 10_000

/** The part of {@link House} that the registry itself does not answer. */
export type HouseBase = Omit<House, 'draining' | 'handingOver' | 'maySuspect' | 'mayGoOn'>

export class Registry {
  readonly #house: House
  readonly #concurrency: number
  readonly #butlers = new Map<string, Butler>()
  /** First come, first served. */
  readonly #line = new Set<Butler>()
  readonly #serving = new Map<Butler, Promise<void>>()
  /** Releases and wakes of butlers that left a slot while this process drains. */
  readonly #partings = new Set<Promise<void>>()
  /** Suspects (one crash away from being given up) wait for each other, so that bystanders are not punished. */
  readonly #suspects = new Set<Butler>()
  #suspect: string | undefined
  readonly #backoffs = new Map<Butler, Alarm>()
  /** Oldest first: in the order in which they turned idle. */
  readonly #idle = new Set<Butler>()
  readonly #reaper: Ticker
  #draining = false
  #handingOver = false

  constructor(house: HouseBase) {
    const { tunables, telemetry } = house.stores
    this.#concurrency = tunables.concurrency
    this.#house = {
      ...house,
      draining: () => this.#draining,
      handingOver: () => this.#handingOver,
      mayGoOn: () => !this.#draining && this.#line.size === 0,
      maySuspect: (sessionId) => {
        this.#suspect ??= sessionId
        return this.#suspect === sessionId
      },
    }
    this.#reaper = new Ticker({
      tick: () => this.#reap(),
      intervalMs: tunables.idleReleaseMs / 5,
      onError: (error) => telemetry.emit('background.error', { where: 'registry', error }),
    })
  }

  start(): void {
    this.#reaper.start()
  }

  /** Ends the look after idle butlers; `startDraining` ends the serving. */
  stop(): Promise<void> {
    return this.#reaper.stop()
  }

  get(sessionId: string): Butler | undefined {
    return this.#butlers.get(sessionId)
  }

  /** Slots that could start a turn now. */
  get free(): number {
    return this.#draining ? 0 : Math.max(0, this.#concurrency - this.#serving.size - this.#line.size)
  }

  get running(): number {
    return this.#serving.size
  }

  get waiting(): number {
    return this.#line.size + this.#suspects.size
  }

  /** Sessions this process knows, idle ones included. */
  get size(): number {
    return this.#butlers.size
  }

  /** Butlers whose lock must be kept alive: they own their session, and not as a mere preference. */
  *holding(): Iterable<Butler> {
    const all = [...this.#serving.keys(), ...this.#line, ...this.#suspects, ...this.#backoffs.keys()]
    for (const butler of all) if (butler.hold.owned && !butler.hold.isIdle) yield butler
  }

  /** Butlers with a turn under way. */
  *withTurn(): Iterable<Butler> {
    for (const butler of this.#serving.keys()) if (butler.turn && butler.phase === 'serving') yield butler
  }

  /** A session has work, or may have. `judged`: and its running turn is to be taken from its owner. Passed on while draining. */
  wake(sessionId: string, judged?: Judged): void {
    let butler = this.#butlers.get(sessionId)
    if (!butler) {
      if (this.#draining) return this.#part(this.#house.notifier.wakeSomebody([sessionId]))
      if (this.#line.size >= LINE_MAX) return
      butler = new Butler(this.#house, sessionId)
      this.#butlers.set(sessionId, butler)
    }
    if (judged) butler.judged = judged
    butler.woken = true
    if (butler.phase === 'idle') this.#idle.delete(butler)
    // A back-off looks at the row again: what it waits for may have been stopped.
    else if (butler.phase === 'serving' || butler.phase === 'gone') return
    else if (this.#line.has(butler) || this.#suspects.has(butler)) return
    this.#queue(butler)
  }

  /** A stop notice: fires the running turn's signal, ends a back-off, or gets stopped messages their final state. */
  stopMessages(sessionId: string, through: number): void {
    const butler = this.#butlers.get(sessionId)
    butler?.stop(through)
    if (butler?.phase === 'backoff') this.#queue(butler)
    else if (butler?.turn === undefined) this.wake(sessionId)
  }

  /** The row names somebody else: nothing of this butler counts any more. */
  lose(butler: Butler, why: string): void {
    butler.lose(why)
    this.#forget(butler)
    void butler.hold.release({ wake: true })
  }

  /** Takes butlers out, which release what they own: those that waited long and, if `crowded`, those that own nothing. */
  async giveAway(waitedMs: number, most: number, crowded: boolean): Promise<string[]> {
    // A verdict took seconds to reach and cannot be passed on.
    const isOverdue = ({ hold, since, judged }: Butler) =>
      !judged && (now() - since >= waitedMs || (crowded && !hold.isConfirmed))
    const overdue = [...this.#line, ...this.#suspects].filter(isOverdue).slice(0, most)
    for (const butler of overdue) this.#forget(butler)
    await Promise.all(overdue.map((butler) => butler.hold.release({ wake: false })))
    return overdue.map(({ sessionId }) => sessionId)
  }

  /** Takes no further turn and gives away everything that is not running; resolves with the sessions given away. */
  async startDraining(): Promise<string[]> {
    this.#draining = true
    await this.#reaper.stop()
    const idle = [...this.#idle]
    const waiting = [...this.#line, ...this.#suspects, ...this.#backoffs.keys()]
    for (const butler of [...idle, ...waiting]) this.#forget(butler)
    await Promise.all([...idle, ...waiting].map((butler) => butler.hold.release({ wake: false })))
    return waiting.map(({ sessionId }) => sessionId)
  }

  /** Hands over every turn that still runs, and any whose start is being committed at this moment. */
  handOver(): void {
    this.#handingOver = true
    for (const butler of this.#serving.keys()) butler.turn?.abort('handover')
  }

  /** Resolves when no butler is in a slot any more, and whoever follows has been told. */
  async settled(): Promise<void> {
    while (this.#serving.size + this.#partings.size > 0) {
      await Promise.all([...this.#serving.values(), ...this.#partings])
    }
  }

  /** Cut short by the end of the connection, it would leave a lock behind, or a session that waits for a sweep. */
  #part(parting: Promise<void>): void {
    this.#partings.add(parting)
    void parting.finally(() => this.#partings.delete(parting))
  }

  #queue(butler: Butler): void {
    this.#backoffs.get(butler)?.clear()
    this.#backoffs.delete(butler)
    butler.enter('waiting')
    this.#line.add(butler)
    this.#pump()
  }

  #pump(): void {
    for (const butler of this.#line) {
      if (this.#serving.size >= this.#concurrency) return
      this.#line.delete(butler)
      butler.enter('serving')
      this.#serving.set(
        butler,
        butler.serve().then((next) => {
          this.#serving.delete(butler)
          this.#place(butler, next)
          this.#pump()
        }),
      )
    }
  }

  #place(butler: Butler, next: Next): void {
    if (this.#suspect === butler.sessionId) this.#suspect = undefined
    const gone = next === 'gone' || this.#butlers.get(butler.sessionId) !== butler
    if (gone) {
      this.#forget(butler)
      // Called while it was on its way out: a fresh one looks again, or another process when this one leaves.
      if (butler.woken && next === 'gone') this.wake(butler.sessionId, butler.judged)
    } else if (this.#draining) {
      this.#forget(butler)
      this.#part(butler.hold.release({ wake: true }))
    } else if (next === 'more' || (next === 'idle' && butler.woken)) {
      this.#queue(butler)
    } else if (next === 'idle') {
      butler.enter('idle')
      this.#idle.add(butler)
    } else if (next === 'suspect') {
      butler.enter('waiting')
      this.#suspects.add(butler)
    } else {
      const alarm = new Alarm()
      butler.enter('backoff')
      this.#backoffs.set(butler, alarm)
      alarm.set(next.retryInMs, () => this.#queue(butler))
    }
    this.#admitSuspect()
  }

  #admitSuspect(): void {
    const [suspect] = this.#suspects
    if (!suspect || this.#suspect) return
    this.#suspects.delete(suspect)
    this.#queue(suspect)
  }

  #forget(butler: Butler): void {
    butler.enter('gone')
    this.#line.delete(butler)
    this.#suspects.delete(butler)
    this.#idle.delete(butler)
    this.#backoffs.get(butler)?.clear()
    this.#backoffs.delete(butler)
    if (this.#butlers.get(butler.sessionId) === butler) this.#butlers.delete(butler.sessionId)
  }

  /** Idle locks expire by themselves; all that is left of an idle butler then is this entry. */
  #reap(): void {
    const { idleReleaseMs } = this.#house.stores.tunables
    for (const butler of this.#idle) {
      if (now() - butler.since < idleReleaseMs) return
      this.#forget(butler)
    }
  }
}
