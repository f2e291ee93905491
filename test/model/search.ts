// Breadth first through every world that can be reached: the first violation found has the shortest story. Then every
// fair run from there must come to an end.
import { butlerMoves } from './butler.ts'
import { Coder } from './code.ts'
import { faultMoves } from './faults.ts'
import { Known, Numbers } from './known.ts'
import { Graph } from './liveness.ts'
import { loopMoves } from './loops.ts'
import { type FaultName, type Move, Moves } from './moves.ts'
import { backgroundMoves, producerMoves, sweepMoves } from './outside.ts'
import type { Protocol } from './rules.ts'
import { takesWork } from './stores.ts'
import { newWorld, type World } from './world.ts'

export interface Configuration {
  readonly messages: number
  readonly stops: number
  readonly budget: number
  readonly faults: readonly FaultName[]
  /** Others wait for the slot: turns are not started in the commit of the last one, sessions are given away. */
  readonly crowded?: boolean
  /** The last message interrupts. */
  readonly interrupts?: boolean
  readonly withdrawals?: number
  /** How many sweeps anything may wait for at most. */
  readonly sweeps?: number
}

export interface Found {
  readonly invariant: string
  readonly message: string
  readonly story: readonly string[]
}

export interface Result {
  readonly states: number
  readonly transitions: number
  readonly depth: number
  readonly seconds: number
  /** The most sweeps that any run waits for. */
  readonly sweeps: number
  readonly found: Found | undefined
  /** The search gave up at its limit. */
  readonly cut: boolean
  /** Only if the loops' ticks come after the steps, every run ends. */
  readonly slow?: boolean
}

function movesOf(world: World, protocol: Protocol, faults: ReadonlySet<FaultName>): Move[] {
  if (isOver(world)) return []
  const moves = new Moves(world, protocol, faults)
  producerMoves(moves)
  for (const index of [0, 1]) {
    moves.by = index
    butlerMoves(moves, index)
    loopMoves(moves, index)
    faultMoves(moves, index)
  }
  moves.by = undefined
  backgroundMoves(moves)
  sweepMoves(moves)
  return moves.all
}

/** Nothing is left to be sent: no turn can start any more, and none that runs is left to write. */
const isOver = ({ messages, row }: World): boolean =>
  messages === 0 && row.doneSeq === row.inboxSeq && row.runningSeq === null

const traitOf = ({ row, processes }: World) => ({
  final: row.doneSeq === row.inboxSeq && row.runningSeq === null,
  healthy: processes.some(takesWork),
})

export function search(configuration: Configuration, protocol: Protocol, statesMax = 10_000_000): Result {
  const began = process.cpuUsage()
  const { messages, stops, budget, crowded = false, interrupts = false, withdrawals = 0 } = configuration
  const faults = new Set(configuration.faults)
  const first = newWorld({ messages, stops, withdrawals, faults: budget, crowded, interrupts })
  const [known, coder, graph] = [new Known(), new Coder(), new Graph()]
  const [parents, choices] = [new Numbers(Int32Array), new Numbers(Uint8Array)]
  const actions: string[] = []
  const numbers = new Map<string, number>()
  let [depth, transitions] = [0, 0]
  const find = (world: World, parent: number, choice: number): number | undefined => {
    const { bytes, length } = coder.encode(world)
    const before = known.count
    found = known.add(bytes, length)
    if (known.count === before) return undefined
    parents.push(parent)
    choices.push(choice)
    graph.add(traitOf(world))
    return found
  }
  let found = 0
  const result = (invariant = '', message = '', story: string[] = [], sweeps = 0, cut = false): Result => {
    const { user, system } = process.cpuUsage(began)
    const seconds = (user + system) / 1e6
    const what = invariant ? { invariant, message, story } : undefined
    return { states: known.count, transitions, depth, seconds, sweeps, found: what, cut }
  }
  const story = (state: number, last?: Move): string[] => {
    const path: number[] = []
    for (let one = state; one > 0; one = parents.at(one)) path.push(choices.at(one))
    const told: string[] = []
    let world = first
    const tell = (move: Move) => {
      const by = move.by === undefined ? '' : `${world.processes[move.by]?.id} `
      told.push(`${by}${move.action} ${move.detail}`.trim())
      world = move.to
    }
    for (const choice of path.reverse()) {
      const move = movesOf(world, protocol, faults)[choice]
      if (!move) throw new Error('the story cannot be told again')
      tell(move)
    }
    if (last) tell(last)
    return told
  }

  find(first, -1, 0)
  for (let level: World[] = [first], state = 0; level.length > 0; depth++) {
    const next: World[] = []
    for (const world of level) {
      graph.open()
      const { swapped } = coder.encode(world)
      const hasFrozen = world.processes.some((one) => one.state === 'frozen')
      for (const [choice, move] of movesOf(world, protocol, faults).entries()) {
        transitions += 1
        const { violation, action, kind, by, to } = move
        if (violation) return result(violation.invariant, violation.message, story(state, move))
        if (find(to, state, choice) !== undefined) next.push(to)
        if (kind === 'luck' || kind === 'world' || kind === 'fault' || (kind === 'expiry' && !hasFrozen))
          continue
        let number = numbers.get(action)
        if (number === undefined) numbers.set(action, (number = actions.push(action) - 1))
        graph.join({
          to: found,
          action: number,
          by: by === undefined ? undefined : (by === 1) === swapped ? 0 : 1,
          flip: swapped !== coder.swapped,
          kind,
        })
      }
      state += 1
    }
    if (known.count > statesMax) return result('', '', [], 0, true)
    level = next
  }

  const strict = graph.check('at any time')
  const { sweeps, worst, stuck } = strict.stuck?.actions.length ? graph.check('after the steps') : strict
  if (stuck) {
    const round = stuck.actions.map((action) => actions[action]).join(', ')
    const message = round ? `a run may go round in circles from here: ${round}` : 'nothing leads on from here'
    return result('I8', message, story(stuck.state))
  }
  if (sweeps > (configuration.sweeps ?? Infinity))
    return result('I8', `some run waits for ${sweeps} sweeps`, story(worst))
  return { ...result('', '', [], sweeps), slow: strict.stuck !== undefined }
}
