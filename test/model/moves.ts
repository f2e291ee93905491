// What can happen next in a world. One move = one atomic thing at one store, or one local decision.
import { processOf } from '../../src/base/ids.ts'
import { tokenOf } from '../../src/redis/lock.ts'
import { Violation } from './stores.ts'
import { copy } from './copy.ts'
import type { Butler, Process, World } from './world.ts'
import type { Protocol } from './rules.ts'

/**
 * `step` happens sooner or later by itself, `loop` with a tick of some loop, `expiry` a lock's life later, `sweep` at
 * last, and is counted. `luck` need not happen: a handler that returns although nobody told it that it was stopped.
 * `world`: producers, restarts and thaws, commands that come late. `fault` is paid for.
 */
export type Kind = 'step' | 'loop' | 'sweep' | 'expiry' | 'luck' | 'world' | 'fault'

export interface Move {
  readonly action: string
  /** Whose it is: the process's place in the world. */
  readonly by: number | undefined
  readonly detail: string
  readonly kind: Kind
  readonly to: World
  readonly violation: Violation | undefined
}

export type FaultName =
  | 'crash'
  | 'freeze'
  | 'expiry'
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
  'expiry',
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
  /** Whose moves are being listed. */
  by: number | undefined
  readonly #faults: ReadonlySet<FaultName>

  constructor(from: World, protocol: Protocol, faults: ReadonlySet<FaultName>) {
    this.from = from
    this.protocol = protocol
    this.#faults = faults
  }

  /** `change` returns false when there is nothing to do. One action may have several moves, told apart by their detail. */
  add(action: string, change: (world: World) => void | false, kind: Kind = 'step', detail = ''): void {
    const to = copy(this.from)
    let violation: Violation | undefined
    try {
      if (change(to) === false) return
    } catch (error) {
      if (!(error instanceof Violation)) throw error
      violation = error
    }
    forget(to, this.protocol)
    this.all.push({ action, by: this.by, detail, kind, to, violation })
  }

  fault(fault: FaultName, action: string, change: (world: World) => void | false, detail = ''): void {
    if (!this.mayFail(fault)) return
    const paid = (world: World) => {
      world.faults -= 1
      return change(world)
    }
    this.add(action, paid, 'fault', `${detail} [${fault}]`)
  }

  mayFail(fault: FaultName): boolean {
    return this.from.faults > 0 && this.#faults.has(fault)
  }
}

/** What nobody will ever look at again, or what can change nothing any more: worlds that differ only in it are one. */
function forget(world: World, protocol: Protocol): void {
  const { processes, run, row, lock, late } = world
  for (const one of processes) {
    const { butler, look, renewal } = one
    if (one.buried.length > 0) one.buried = one.buried.filter((id) => isNamed(world, id))
    if (butler) forgetOf(butler, row)
    if (protocol.without !== undefined) continue
    if (look && look.asked?.run !== butler?.turn?.run && look.seen?.run !== run) one.look = undefined
    if (look && !look.asked && look.seen?.run !== run) one.look = undefined
    if (renewal && renewal.token !== butler?.token) one.renewal = undefined
    // A verdict on a turn that is over is refused by the row; that it wakes its judge once more is left out.
    if (one.contest && one.contest.run !== run) one.contest = undefined
    if (butler?.judged && butler.judged.run !== run) butler.judged = undefined
    if (butler?.judging && butler.judging.run !== run) butler.judging = undefined
  }
  if (run === 0) world.excused = false
  // A reference to what is done costs a look at the list, no more.
  world.queue &= -2 << row.doneSeq
  world.processing &= -2 << row.doneSeq
  const held = lock === null ? undefined : tokenOf(lock)
  const matters = (token: string) =>
    token === held || token === late?.token || processes.some(({ butler }) => butler?.token === token)
  world.releases = world.releases.filter(({ token, flag }) => flag || matters(token))
  const compares = late && (late.what !== 'advance' || protocol.has('ownerOnlyAdvance'))
  if (compares && ['release', 'busy', 'advance'].includes(late.what) && late.token !== held)
    if (!processes.some(({ butler }) => butler?.token === late.token)) world.late = undefined
}

/** Each of these is set anew before the butler comes to where it counts. */
function forgetOf(butler: Butler, { doneSeq }: World['row']): void {
  const { at, back } = butler
  if (at !== 'turn') Object.assign(butler, { signal: undefined, noted: false })
  if (at !== 'finish') butler.ends = undefined
  if (at !== 'rest' && back !== 'rest') Object.assign(butler, { more: false, doneSeq: 0 })
  if (at !== 'row' && at !== 'oust' && at !== 'recover') butler.late = false
  if (butler.stopSeq <= doneSeq) butler.stopSeq = 0
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
