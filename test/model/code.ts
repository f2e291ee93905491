// A world as a few bytes, the same for worlds that differ only in names: tokens, processes and runs are numbered in the
// order in which they appear, and the two processes may be swapped.
import { isIdle, tokenOf } from '../../src/redis/lock.ts'
import { processOf } from '../../src/base/ids.ts'
import type { At, Burial, Butler, Command, Process, Said, Turn, World } from './world.ts'

const PLACES: readonly At[] = [
  'line',
  'busy',
  'lock',
  'oust',
  'row',
  'recover',
  'start',
  'begin',
  'turn',
  'finish',
  'ended',
  'succeed',
  'verify',
  'rest',
  'rested',
  'idle',
  'backoff',
]
const ENDS = [undefined, 'completed', 'threw', 'stopped', 'handed_over'] as const
const OUTCOMES = ['', 'started', 'skipped', 'unheld', 'nothing', 'later', 'lost', 'acquired', 'finished']
const FINISHED = [undefined, '', 'completed', 'stopped', 'failed', 'retrying', 'handed_over']
const COMMANDS: readonly Command['what'][] = ['release', 'lock', 'busy', 'renew', 'advance']
const SIGNALS = [undefined, 'stopped', 'handover'] as const
const STATES = ['up', 'frozen', 'dead', 'left'] as const
const DRAINING = ['no', 'grace', 'handover', 'deaf'] as const

/** What of a process does not depend on names; mostly it tells the two apart. */
function shapeOf({ state, draining, wake, stop, butler, renewal, look, contest, burial }: Process): number {
  const place = butler
    ? 1 + PLACES.indexOf(butler.at) * 4 + (butler.owned ? 2 : 0) + (butler.woken ? 1 : 0)
    : 0
  const rest = (wake ? 1 : 0) + (stop ? 2 : 0) + (renewal ? 4 : 0) + (look ? 8 : 0) + (contest ? 16 : 0)
  return place * 1024 + rest * 32 + (burial ? 16 : 0) + STATES.indexOf(state) * 4 + DRAINING.indexOf(draining)
}

export class Coder {
  /** The code of the last world, and whether its processes stand in the other order there. */
  bytes = new Uint8Array(512)
  length = 0
  swapped = false
  #processes: string[] = []
  #tokens: string[] = []
  #runs: number[] = []
  #other = new Uint8Array(512)

  /** Of the two orders the one with the smaller code. */
  encode(world: World): this {
    const [a, b] = world.processes
    if (!a || !b) throw new Error('two processes')
    const order = shapeOf(a) - shapeOf(b)
    this.swapped = order > 0
    if (this.swapped) this.#world(world, b, a)
    else this.#world(world, a, b)
    if (order !== 0) return this
    const [one, { length }] = [this.bytes, this]
    this.bytes = this.#other
    this.#other = one
    this.#world(world, b, a)
    this.swapped = isLess(this.bytes, this.length, one, length)
    if (!this.swapped) Object.assign(this, { length, bytes: one }).#other = this.bytes
    return this
  }

  #world(world: World, a: Process, b: Process): void {
    this.length = 0
    this.#processes = [a.id, b.id]
    this.#tokens = []
    this.#runs = [0]
    const { row } = world
    this.#put(row.inboxSeq * 16 + row.doneSeq * 4 + row.stopSeq)
    this.#put((row.runningSeq ?? 0) * 16 + row.failures * 2 + (row.retryInMs === null ? 0 : 1))
    this.#put(row.starts)
    this.#put(world.queue * 16 + world.processing)
    this.#put(world.untold * 16 + world.withdrawn)
    this.#put(world.notes * 16 + world.messages * 4 + world.stops)
    this.#put(world.faults * 64 + world.withdrawals * 16 + world.strays.length * 2 + (world.excused ? 1 : 0))
    this.#token(row.owner)
    this.#run(world.run)
    this.#token(world.lock)
    this.#process(a)
    this.#process(b)
    if (world.stopFor === undefined) this.#put(0)
    else this.#token(world.stopFor, 1)
    for (const turn of world.strays) this.#turn(turn)
    // Only the order among those of one process makes a difference.
    const { releases } = world
    const sorted =
      releases.length < 2 ? releases : [...releases].sort((x, y) => this.#name(x.by) - this.#name(y.by))
    for (const command of sorted) this.#command(command)
    this.#put(0)
    if (world.late) this.#command(world.late)
  }

  #put(number: number): void {
    if (number > 255) throw new Error(`${number} does not fit`)
    this.bytes[this.length++] = number
  }

  #name(id: string): number {
    const known = this.#processes.indexOf(id)
    return known >= 0 ? known : this.#processes.push(id) - 1
  }

  /** Its number, and at its first appearance whose it is. */
  #token(value: string | null | undefined, plus = 0): void {
    if (value === null || value === undefined) return this.#put(plus)
    const token = tokenOf(value)
    const known = this.#tokens.indexOf(token)
    if (known >= 0) return this.#put((known + 1) * 4 + (isIdle(value) ? 2 : 0) + plus)
    this.#put(this.#tokens.push(token) * 4 + (isIdle(value) ? 2 : 0) + plus)
    this.#put(this.#name(processOf(token)))
  }

  #run(run: number): void {
    const known = this.#runs.indexOf(run)
    this.#put(known >= 0 ? known : this.#runs.push(run) - 1)
  }

  #turn(turn: Turn | undefined): void {
    if (!turn) return this.#put(0)
    this.#put(turn.seq * 16 + turn.starts)
    this.#token(turn.owner)
    this.#run(turn.run)
  }

  #command({ by, what, token, flag }: Command): void {
    this.#put(1 + COMMANDS.indexOf(what) * 2 + (flag ? 1 : 0))
    this.#put(this.#name(by))
    this.#token(token)
  }

  #process(process: Process): void {
    const { state, draining, wake, stop, butler, renewal, look, contest, buried, burial } = process
    this.#put(STATES.indexOf(state) * 16 + DRAINING.indexOf(draining) * 4 + (wake ? 1 : 0) + (stop ? 2 : 0))
    this.#put(
      (renewal ? (renewal.ours ? 2 : 1) : 0) +
        (look ? (look.orphan ? 8 : 4) : 0) +
        (contest ? 16 : 0) +
        (burial ? 32 : 0) +
        buried.length * 64,
    )
    this.#butler(butler)
    if (renewal) {
      this.#token(renewal.token, renewal.awaited ? 1 : 0)
      this.#token(renewal.found)
    }
    if (look) {
      this.#put(look.stopSeq)
      this.#turn(look.asked)
      this.#turn(look.seen)
    }
    if (contest) this.#turn(contest)
    for (const id of buried) this.#put(this.#name(id))
    if (burial) this.#burial(burial)
  }

  #burial({ owner, lock, turn }: Burial): void {
    this.#token(owner)
    this.#token(lock)
    this.#turn(turn)
  }

  #butler(butler: Butler | undefined): void {
    if (!butler) return this.#put(0)
    const { at, back, owned, confirmed, late, woken, noted, more, doubt, said, judged, judging, turn } =
      butler
    const flags = [owned, confirmed, late, woken, noted, more].reduce(
      (sum, flag) => sum * 2 + (flag ? 1 : 0),
      0,
    )
    this.#put(1 + PLACES.indexOf(at))
    this.#put(flags)
    this.#put(butler.stopSeq * 4 + butler.doneSeq)
    this.#put(SIGNALS.indexOf(butler.signal) * 8 + ENDS.indexOf(butler.ends))
    this.#put((back === undefined ? 0 : 1 + PLACES.indexOf(back)) * 4 + (doubt ? (doubt.fresh ? 2 : 1) : 0))
    this.#token(butler.token)
    const extras = [butler.successor, butler.holder, judged, judging, turn, said]
    this.#put(extras.reduce((sum: number, one) => sum * 2 + (one ? 1 : 0), 0))
    if (butler.successor) this.#token(butler.successor)
    if (butler.holder) this.#token(butler.holder)
    for (const one of [judged, judging, turn]) if (one) this.#turn(one)
    if (said) this.#said(said)
    // A stale doubt is never looked at.
    if (doubt?.fresh) this.#said(doubt.said)
  }

  #said(said: Said | undefined): void {
    if (!said) return this.#put(0)
    this.#put(1 + OUTCOMES.indexOf(said.outcome))
    this.#put(FINISHED.indexOf(said.as) * 8 + (said.doneSeq ?? 0) * 2 + (said.more ? 1 : 0))
    this.#turn(said.turn)
    this.#said(said.next)
  }
}

function isLess(a: Uint8Array, aLength: number, b: Uint8Array, bLength: number): boolean {
  const length = Math.min(aLength, bLength)
  for (let index = 0; index < length; index++) {
    const difference = (a[index] ?? 0) - (b[index] ?? 0)
    if (difference !== 0) return difference < 0
  }
  return aLength < bLength
}
