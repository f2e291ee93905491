// What can happen next in a world. One move = one atomic thing at one store, or one local decision.
import { processOf } from '../../src/base/ids.ts'
import { Violation } from './stores.ts'
import { copy, type Butler, type Process, type World } from './world.ts'
import type { Protocol } from './rules.ts'

/**
 * `step` happens sooner or later by itself; `sweep` and `expiry` too, but are counted or only granted. `luck` need not
 * happen: a handler that returns although nobody told it that it was stopped. `world`: producers, restarts and thaws,
 * commands that come late. `fault` is paid for.
 */
export type Kind = 'step' | 'sweep' | 'expiry' | 'luck' | 'world' | 'fault'

export interface Move {
  readonly name: string
  readonly kind: Kind
  readonly to: World
  readonly violation: Violation | undefined
}

export type FaultName =
  | 'crash'
  | 'freeze'
  | 'cut off'
  | 'flush'
  | 'lost notice'
  | 'lost commit'
  | 'late command'
  | 'wrong verdict'
  | 'drain'
  | 'throw'
  | 'detach'
  | 'fail-over'
  | 'error'

export const FAULTS: readonly FaultName[] = [
  'crash',
  'freeze',
  'cut off',
  'flush',
  'lost notice',
  'lost commit',
  'late command',
  'wrong verdict',
  'drain',
  'throw',
  'detach',
  'fail-over',
  'error',
]

export class Moves {
  readonly from: World
  readonly protocol: Protocol
  readonly all: Move[] = []
  readonly #faults: ReadonlySet<FaultName>

  constructor(from: World, protocol: Protocol, faults: ReadonlySet<FaultName>) {
    this.from = from
    this.protocol = protocol
    this.#faults = faults
  }

  /** `change` returns false when there is nothing to do. */
  add(name: string, change: (world: World) => void | false, kind: Kind = 'step'): void {
    const to = copy(this.from)
    let violation: Violation | undefined
    try {
      if (change(to) === false) return
    } catch (error) {
      if (!(error instanceof Violation)) throw error
      violation = error
    }
    if (this.protocol.has('lookAtAsked')) forgetSettled(to)
    for (const one of to.processes)
      if (one.buried.length > 0) one.buried = one.buried.filter((id) => isNamed(to, id))
    this.all.push({ name, kind, to, violation })
  }

  fault(fault: FaultName, name: string, change: (world: World) => void | false): void {
    if (this.from.faults === 0 || !this.#faults.has(fault)) return
    this.add(
      `${name} [${fault}]`,
      (world) => {
        world.faults -= 1
        return change(world)
      },
      'fault',
    )
  }
}

/** Answers that can change nothing any more: what they are about is over, and nothing with its name comes again. */
function forgetSettled({ processes, run }: World): void {
  for (const one of processes) {
    const { butler, look, renewal } = one
    if (look && look.asked?.run !== butler?.turn?.run && look.seen?.run !== run) one.look = undefined
    if (look && !look.asked && look.seen?.run !== run) one.look = undefined
    if (renewal && renewal.token !== butler?.token && butler?.at !== 'verify') one.renewal = undefined
  }
}

/** Whether a verdict about this process can still matter. */
const isNamed = ({ processes, lock, row, late }: World, id: string): boolean =>
  processes.some((one) => one.id === id && (one.state === 'up' || one.state === 'frozen')) ||
  [lock, row.owner, late?.token].some((token) => token && processOf(token) === id)

/** The same process in the world that a move makes. */
export function at(world: World, index: number): Process {
  const process = world.processes[index]
  if (!process) throw new Error(`no process ${index}`)
  return process
}

export function butlerAt(world: World, index: number): [Process, Butler] {
  const process = at(world, index)
  if (!process.butler) throw new Error(`no butler in ${process.id}`)
  return [process, process.butler]
}
