// Whether every fair run comes to an end: from each world with a healthy process, when no fault, newcomer or lucky
// handler comes any more, whatever is done next in whatever order, everything accepted becomes final. A run is fair when
// what could be done all the time is done at last. Steps take milliseconds, so a sweep comes when nothing else is left to
// do, and before it the expiry of a lock that a frozen process left: those sweeps are counted. Ticks of the other loops
// may come at any time; only where that lets a run go round in circles, each of them falling in with just the wrong
// steps for ever, they come after the steps too.
import { Numbers } from './known.ts'

/** Where a step leads, and what it is. `flip`: the two processes change their places in the code on the way. */
export interface Edge {
  readonly to: number
  readonly action: number
  /** Whose step, as a place in the code. */
  readonly by: 0 | 1 | undefined
  readonly flip: boolean
  readonly kind: (typeof KINDS)[number]
}

export interface Trait {
  readonly final: boolean
  readonly healthy: boolean
}

export interface Stuck {
  readonly state: number
  /** The actions of a run that goes round in circles; none when there is nothing at all to do. */
  readonly actions: readonly number[]
}

export interface Waits {
  /** The most sweeps that any run waits for, and from where. */
  readonly sweeps: number
  readonly worst: number
  /** A world from which some run does not end. */
  readonly stuck: Stuck | undefined
}

const KINDS = ['step', 'loop', 'expiry', 'sweep'] as const

/** The graph of a search: one node per world, in the order in which they were found. */
export class Graph {
  readonly #firsts = new Numbers(Int32Array)
  readonly #to = new Numbers(Int32Array)
  readonly #how = new Numbers(Uint16Array)
  readonly #traits = new Numbers(Uint8Array)
  /** The loops' ticks come after the steps. */
  #slow = false

  add({ final, healthy }: Trait): void {
    this.#traits.push((final ? 1 : 0) + (healthy ? 2 : 0))
  }

  /** The edges of the nodes come in the order of the nodes. */
  open(): void {
    this.#firsts.push(this.#to.length)
  }

  join({ to, action, by, flip, kind }: Edge): void {
    this.#to.push(to)
    this.#how.push(action * 32 + (by === undefined ? 0 : by + 1) * 8 + (flip ? 4 : 0) + KINDS.indexOf(kind))
  }

  #edge(at: number): Edge {
    const how = this.#how.at(at)
    const by = ([undefined, 0, 1] as const)[(how >> 3) & 3]
    return { to: this.#to.at(at), action: how >> 5, by, flip: (how & 4) > 0, kind: KINDS[how & 3] ?? 'step' }
  }

  #rank(at: number): number {
    const kind = this.#how.at(at) & 3
    return kind === 1 && !this.#slow ? 0 : kind
  }

  /** What is done next: all steps, or what comes when there is none. */
  #next(node: number): [from: number, to: number, rank: number] {
    const from = this.#firsts.at(node)
    const to = node + 1 < this.#firsts.length ? this.#firsts.at(node + 1) : this.#to.length
    let rank: number = KINDS.length
    for (let edge = from; edge < to; edge++) rank = Math.min(rank, this.#rank(edge))
    return [from, to, rank]
  }

  #isLeft(node: number): boolean {
    return this.#traits.at(node) === 2
  }

  /** After Tarjan: each circle is looked at when all that it leads to is known. */
  check(loops: 'at any time' | 'after the steps'): Waits {
    this.#slow = loops === 'after the steps'
    const nodes = this.#traits.length
    const order = new Int32Array(nodes)
    const low = new Int32Array(nodes)
    const waits = new Uint8Array(nodes)
    const open = new Numbers(Int32Array)
    const circle = new Int32Array(nodes)
    let [count, circles, most, worst] = [0, 0, 0, 0]
    const path: { node: number; edge: number; to: number; rank: number }[] = []
    const enter = (node: number): Stuck | undefined => {
      const [edge, to, rank] = this.#next(node)
      if (rank === KINDS.length) return { state: node, actions: [] }
      order[node] = low[node] = ++count
      open.push(node)
      path.push({ node, edge, to, rank })
      return undefined
    }
    for (let root = 0; root < nodes; root++) {
      if (!this.#isLeft(root) || order[root]) continue
      let stuck = enter(root)
      for (let here = path.at(-1); here && !stuck; here = path.at(-1)) {
        const { node, rank } = here
        if (here.edge < here.to) {
          const edge = here.edge++
          if (this.#rank(edge) !== rank) continue
          const target = this.#to.at(edge)
          if (!this.#isLeft(target)) continue
          if (!order[target]) stuck = enter(target)
          else if (!circle[target]) low[node] = Math.min(low[node] ?? 0, order[target] ?? 0)
          continue
        }
        path.pop()
        const before = path.at(-1)
        if (before) low[before.node] = Math.min(low[before.node] ?? 0, low[node] ?? 0)
        if (low[node] !== order[node]) continue
        circles += 1
        const members: number[] = []
        for (let one = -1; one !== node;) {
          one = open.at(--open.length)
          members.push(one)
          circle[one] = circles
        }
        const [wait, round] = this.#leave(members, circles, circle, waits)
        for (const one of members) waits[one] = wait
        if (wait > most) [most, worst] = [wait, node]
        if (round) stuck = { state: node, actions: round }
      }
      if (stuck) return { sweeps: most, worst, stuck }
    }
    return { sweeps: most, worst, stuck: undefined }
  }

  /** How many sweeps it takes from worlds that lead to each other; and, when a fair run may stay among them, its actions. */
  #leave(
    members: readonly number[],
    mark: number,
    circle: Int32Array,
    waits: Uint8Array,
  ): [wait: number, round: number[] | undefined] {
    let wait = 0
    const inside: [node: number, edge: Edge][] = []
    for (const node of members) {
      const [from, to, rank] = this.#next(node)
      for (let at = from; at < to; at++) {
        const edge = this.#edge(at)
        if (this.#rank(at) !== rank) continue
        if (circle[edge.to] === mark) inside.push([node, edge])
        wait = Math.max(wait, (waits[edge.to] ?? 0) + (edge.kind === 'sweep' ? 1 : 0))
      }
    }
    return [wait, inside.length > 0 ? this.#round(members, inside) : undefined]
  }

  /**
   * A run that stays here is fair unless some process could do something all the time and never does it. Codes may swap
   * the processes: whose action it is, is followed along the edges; if both orders meet in one world, both do it all.
   */
  #round(members: readonly number[], inside: readonly [number, Edge][]): number[] | undefined {
    const turned = new Map<number, number>([[members[0] ?? 0, 0]])
    const edges = new Map<number, Edge[]>(members.map((node) => [node, []]))
    for (const [node, edge] of inside) edges.get(node)?.push(edge)
    let both = false
    const todo = [members[0] ?? 0]
    for (let node = todo.pop(); node !== undefined; node = todo.pop()) {
      for (const { to, flip } of edges.get(node) ?? []) {
        const turn = (turned.get(node) ?? 0) ^ (flip ? 1 : 0)
        if (!turned.has(to)) todo.push(to)
        else if (turned.get(to) !== turn) both = true
        if (!turned.has(to)) turned.set(to, turn)
      }
    }
    const whose = (node: number, { action, by }: Edge) =>
      action * 4 + (by === undefined ? 2 : both ? 0 : by ^ (turned.get(node) ?? 0))
    const done = new Set(inside.map(([node, edge]) => whose(node, edge)))
    const could = new Map<number, number>()
    for (const node of members) {
      const [from, to, rank] = this.#next(node)
      const here = new Set<number>()
      for (let at = from; at < to; at++) {
        const edge = this.#edge(at)
        if (this.#rank(at) === rank) here.add(whose(node, edge) * 2 + (both ? (edge.by ?? 0) : 0))
      }
      for (const one of here) could.set(one >> 1, (could.get(one >> 1) ?? 0) + 1)
    }
    for (const [one, times] of could) {
      const always = members.length * (both && one % 4 === 0 ? 2 : 1)
      if (times === always && !done.has(one)) return undefined
    }
    return [...new Set(inside.map(([, { action }]) => action))]
  }
}
