// Counts the replies that a worker gets over all its connections, and springs a trap at one of them.
//
// What is about a session counts apart for each store, so that the n-th such reply is about the same one in every run.
// Heartbeats, elections, roll calls, sweeps and connections that are being set up come when they come: they are `loops`.

export const KINDS = ['redis', 'mysql', 'loops'] as const
export type Kind = (typeof KINDS)[number]
export type When = 'before' | 'after'
export type Counts = Readonly<Record<Kind, number>>

export interface Trap {
  readonly kind: Kind
  /** The how-many-th reply of that kind. */
  readonly at: number
  /** Before the worker gets it, or after. */
  readonly when: When
  /** Told what the reply is an answer to. */
  readonly spring: (request: string) => void
}

export class Tally {
  #counts: Record<Kind, number> = { redis: 0, mysql: 0, loops: 0 }
  #trap: Trap | undefined

  get counts(): Counts {
    return { ...this.#counts }
  }

  /** Counting starts here. */
  reset(trap: Trap | undefined): void {
    this.#counts = { redis: 0, mysql: 0, loops: 0 }
    this.#trap = trap
  }

  /** One more. `deliver` is how it gets to the worker; false: it must not. */
  add(kind: Kind, request: string, deliver: () => void): boolean {
    this.#counts[kind] += 1
    const trap = this.#trap
    if (!trap || trap.kind !== kind || trap.at !== this.#counts[kind]) {
      deliver()
      return true
    }
    if (trap.when === 'after') deliver()
    trap.spring(request)
    return false
  }
}
