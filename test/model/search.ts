// Breadth first through every world that can be reached: the first violation found has the shortest story. Then
// backwards: from every world some way must lead, without faults and luck, to where everything accepted is final.
import { butlerMoves } from './butler.ts'
import { codeOf } from './code.ts'
import { faultMoves } from './faults.ts'
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
  /** The most sweeps that any world waits for. */
  readonly sweeps: number
  readonly found: Found | undefined
  /** The search gave up at its limit. */
  readonly cut: boolean
}

export function movesOf(world: World, protocol: Protocol, configuration: Configuration): Move[] {
  const { faults } = configuration
  if (isOver(world)) return []
  const moves = new Moves(world, protocol, new Set(faults))
  producerMoves(moves)
  for (const index of [0, 1]) {
    butlerMoves(moves, index)
    loopMoves(moves, index)
    faultMoves(moves, index)
  }
  backgroundMoves(moves)
  sweepMoves(moves)
  return moves.all
}

/** Nothing is left to be sent, stopped, run or written: what notices still do does not matter. */
const isOver = ({ messages, stops, row, strays, processes }: World): boolean =>
  messages + stops + strays.length === 0 &&
  row.doneSeq === row.inboxSeq &&
  row.runningSeq === null &&
  processes.every(({ butler, state }) => !butler?.turn && !butler?.said && !(state === 'frozen' && butler))

/** Numbers without a known end, in little memory. */
class Numbers {
  #list = new Int32Array(1024)
  length = 0

  push(value: number): void {
    if (this.length === this.#list.length) {
      const longer = new Int32Array(this.length * 2)
      longer.set(this.#list)
      this.#list = longer
    }
    this.#list[this.length++] = value
  }

  at(index: number): number {
    return this.#list[index] ?? 0
  }
}

const FINAL = 1
const HEALTHY = 2

export function search(configuration: Configuration, protocol: Protocol, statesMax = 16_000_000): Result {
  const began = process.cpuUsage()
  const { messages, stops, budget, crowded = false } = configuration
  const first = newWorld({ messages, stops, faults: budget, crowded })
  const known = new Map([[codeOf(first), 0]])
  const parents = new Numbers()
  const choices = new Numbers()
  const traits = new Numbers()
  const [from, to, costs] = [new Numbers(), new Numbers(), new Numbers()]
  parents.push(-1)
  choices.push(-1)
  traits.push(traitsOf(first))
  let level: [number, World][] = [[0, first]]
  let [depth, transitions] = [0, 0]
  const story = (state: number, last?: Move) =>
    tell(state, { first, parents, choices, protocol, configuration, last })
  const result = (found: Found | undefined, sweeps = 0, cut = false): Result => {
    const { user, system } = process.cpuUsage(began)
    const seconds = (user + system) / 1e6
    return { states: known.size, transitions, depth, seconds, sweeps, found, cut }
  }

  for (; level.length > 0; depth++) {
    const next: [number, World][] = []
    for (const [state, world] of level) {
      for (const [choice, move] of movesOf(world, protocol, configuration).entries()) {
        transitions += 1
        const { violation } = move
        if (violation) {
          const { invariant, message } = violation
          return result({ invariant, message, story: story(state, move) })
        }
        const code = codeOf(move.to)
        let target = known.get(code)
        if (target === undefined) {
          target = known.size
          known.set(code, target)
          parents.push(state)
          choices.push(choice)
          traits.push(traitsOf(move.to))
          next.push([target, move.to])
        }
        const granted = move.kind === 'expiry' && world.processes.some((one) => one.state === 'frozen')
        if (move.kind === 'step' || move.kind === 'sweep' || granted) {
          from.push(state)
          to.push(target)
          costs.push(move.kind === 'sweep' ? 1 : 0)
        }
      }
    }
    if (known.size > statesMax) return result(undefined, 0, true)
    level = next
  }

  const waits = backwards(known.size, traits, { from, to, costs })
  let sweeps = 0
  for (let state = 0; state < known.size; state++) {
    if (!(traits.at(state) & HEALTHY)) continue
    const wait = waits[state] ?? -1
    if (wait < 0)
      return result({ invariant: 'I8', message: 'nothing leads on from here', story: story(state) })
    if (wait > (configuration.sweeps ?? Infinity))
      return result({
        invariant: 'I8',
        message: `only ${wait} sweeps lead on from here`,
        story: story(state),
      })
    sweeps = Math.max(sweeps, wait)
  }
  return result(undefined, sweeps)
}

function traitsOf({ row, processes }: World): number {
  const final = row.doneSeq === row.inboxSeq && row.runningSeq === null
  return (final ? FINAL : 0) + (processes.some(takesWork) ? HEALTHY : 0)
}

/** For each state the fewest sweeps to a final one; -1: there is no way. */
function backwards(
  states: number,
  traits: Numbers,
  { from, to, costs }: { from: Numbers; to: Numbers; costs: Numbers },
): Int32Array {
  const starts = new Int32Array(states + 1)
  for (let edge = 0; edge < to.length; edge++) starts[to.at(edge) + 1] = (starts[to.at(edge) + 1] ?? 0) + 1
  for (let state = 0; state < states; state++)
    starts[state + 1] = (starts[state + 1] ?? 0) + (starts[state] ?? 0)
  const edges = new Int32Array(to.length)
  const filled = starts.slice()
  for (let edge = 0; edge < to.length; edge++) {
    const target = to.at(edge)
    edges[filled[target] ?? 0] = edge
    filled[target] = (filled[target] ?? 0) + 1
  }
  const waits = new Int32Array(states).fill(-1)
  let now: number[] = []
  for (let state = 0; state < states; state++) if (traits.at(state) & FINAL) now.push(state)
  for (let sweeps = 0; now.length > 0; sweeps++) {
    const later: number[] = []
    for (let state = now.pop(); state !== undefined; state = now.pop()) {
      if ((waits[state] ?? -1) >= 0) continue
      waits[state] = sweeps
      for (let index = starts[state] ?? 0; index < (starts[state + 1] ?? 0); index++) {
        const edge = edges[index] ?? 0
        const before = from.at(edge)
        if ((waits[before] ?? 0) < 0) (costs.at(edge) > 0 ? later : now).push(before)
      }
    }
    now = later
  }
  return waits
}

function tell(
  state: number,
  run: {
    first: World
    parents: Numbers
    choices: Numbers
    protocol: Protocol
    configuration: Configuration
    last: Move | undefined
  },
): string[] {
  const path: number[] = []
  for (let one = state; one > 0; one = run.parents.at(one)) path.push(run.choices.at(one))
  let world = run.first
  const story: string[] = []
  for (const choice of path.reverse()) {
    const move = movesOf(world, run.protocol, run.configuration)[choice]
    if (!move) throw new Error('the story cannot be told again')
    story.push(move.name)
    world = move.to
  }
  return run.last ? [...story, run.last.name] : story
}
