// What a kind of fault is. It begins at once, and how it is healed comes back; its lane heals it after a random time.
import type { Dice } from './dice.ts'
import type { Stage } from './stage.ts'

/** `false`: it turned out that the fault had met nothing. */
export type Heal = () => Promise<unknown> | boolean | void

export interface Fault<Target = void> {
  readonly name: string
  readonly weight: number
  /** How long, in lock TTLs. */
  readonly lasts: readonly [low: number, high: number]
  /** Whose turns it may cost: the target's, everybody's, or nobody's. `handover`: it only moves the target's turns. */
  readonly costs: 'target' | 'handover' | 'all' | 'none'
  /** No process has an answer from the store meanwhile. */
  readonly silences?: true
  /** Nothing waits for it longer than for a lost notification. */
  readonly gentle?: true
  /** Whether it can do anything to that target. */
  readonly fits?: (target: Target) => boolean
  /** `false`: there was nothing to break. */
  begin(stage: Stage, dice: Dice, target: Target): Promise<Heal | false | void> | Heal | false | void
}
