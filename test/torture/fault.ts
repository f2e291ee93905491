// What a kind of fault is. It begins at once, and how it is healed comes back; its lane heals it after a random time.
import type { Dice } from './dice.ts'
import type { Stage } from './stage.ts'

export type Heal = () => Promise<unknown> | void

export interface Fault<Target = void> {
  readonly name: string
  readonly weight: number
  /** How long, in lock TTLs. */
  readonly lasts: readonly [low: number, high: number]
  /** Whose turns it may cost: the target's, everybody's, or nobody's. */
  readonly costs: 'target' | 'all' | 'none'
  /** Nothing waits for it longer than for a lost notification. */
  readonly gentle?: true
  begin(stage: Stage, dice: Dice, target: Target): Promise<Heal | void> | Heal | void
}
