// A world as a short text, the same for worlds that differ only in names: tokens, processes and runs are numbered in the
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
const OUTCOMES = ['', 'started', 'skipped', 'unheld', 'nothing', 'later', 'acquired', 'finished']
const FINISHED = [undefined, '', 'completed', 'stopped', 'failed', 'retrying', 'handed_over']
const COMMANDS: readonly Command['what'][] = ['release', 'lock', 'busy', 'renew', 'advance']
const SIGNALS = [undefined, 'stopped', 'handover'] as const
const CHARACTERS = Array.from({ length: 128 }, (_, number) => String.fromCharCode(number + 48))
const STATES = ['up', 'frozen', 'dead', 'left'] as const
const DRAINING = ['no', 'grace', 'handover'] as const

/** The world's code: the smaller one of the two orders of its processes. */
export function codeOf(world: World): string {
  const [a, b] = world.processes
  if (!a || !b) throw new Error('two processes')
  const order = shapeOf(a) - shapeOf(b)
  if (order !== 0) return order < 0 ? new Code(world, a, b).text : new Code(world, b, a).text
  const one = new Code(world, a, b).text
  const other = new Code(world, b, a).text
  return one < other ? one : other
}

/** What of a process does not depend on names; mostly it tells the two apart. */
function shapeOf({ state, draining, wake, stop, butler, renewal, look }: Process): number {
  const place = butler
    ? 1 + PLACES.indexOf(butler.at) * 4 + (butler.owned ? 2 : 0) + (butler.woken ? 1 : 0)
    : 0
  const rest = (wake ? 1 : 0) + (stop ? 2 : 0) + (renewal ? 4 : 0) + (look ? 8 : 0)
  return place * 256 + rest * 16 + STATES.indexOf(state) * 4 + DRAINING.indexOf(draining)
}

class Code {
  text = ''
  readonly #processes: string[]
  readonly #tokens: string[] = []
  readonly #runs: number[] = [0]

  constructor(world: World, a: Process, b: Process) {
    this.#processes = [a.id, b.id]
    const { row } = world
    this.#put(
      row.inboxSeq,
      row.doneSeq,
      row.stopSeq,
      row.runningSeq ?? 9,
      row.starts,
      row.failures,
      row.crashes,
    )
    this.#put(row.retryInMs === null ? 0 : 1, world.queue, world.processing, world.untold, world.notes)
    this.#put(world.messages, world.stops, world.faults, (world.excused ? 1 : 0) + world.strays.length * 2)
    this.#token(row.owner)
    this.#run(world.run)
    this.#token(world.lock)
    this.#process(a)
    this.#process(b)
    if (world.stopFor === undefined) this.#put(0)
    else this.#token(world.stopFor, 1)
    for (const turn of world.strays) this.#turn(turn)
    // Their order makes no difference: they are of different processes, or the tokens differ.
    for (const command of [...world.releases].sort((x, y) => this.#rank(x) - this.#rank(y)))
      this.#command(command)
    this.#put(0)
    if (world.late) this.#command(world.late)
  }

  #put(...numbers: number[]): void {
    for (const number of numbers) this.text += CHARACTERS[number] ?? '?'
  }

  #rank({ by, token }: Command): number {
    return this.#name(by) * 100 + this.#tokens.indexOf(token)
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
    this.#put(
      (this.#tokens.push(token) - 1 + 1) * 4 + (isIdle(value) ? 2 : 0) + plus,
      this.#name(processOf(token)),
    )
  }

  #run(run: number): void {
    const known = this.#runs.indexOf(run)
    this.#put(known >= 0 ? known : this.#runs.push(run) - 1)
  }

  #turn(turn: Turn | undefined): void {
    if (!turn) return this.#put(0)
    this.#put(turn.seq * 8 + turn.starts)
    this.#token(turn.owner)
    this.#run(turn.run)
  }

  #command({ by, what, token, flag }: Command): void {
    this.#put(1 + COMMANDS.indexOf(what) * 2 + (flag ? 1 : 0), this.#name(by))
    this.#token(token)
  }

  #process(process: Process): void {
    const { state, draining, wake, stop, butler, renewal, look, contest, buried, burial } = process
    const notices = (wake ? 1 : 0) + (stop ? 2 : 0)
    this.#put(STATES.indexOf(state) * 12 + DRAINING.indexOf(draining) * 4 + notices)
    this.#butler(butler)
    this.#put(renewal ? (renewal.ours ? 2 : 1) : 0)
    if (renewal) {
      this.#token(renewal.token)
      this.#token(renewal.found)
    }
    this.#put(look ? (look.orphan ? 2 : 1) : 0)
    if (look) {
      this.#put(look.stopSeq)
      this.#turn(look.asked)
      this.#turn(look.seen)
    }
    this.#turn(contest)
    this.#put(buried.length, ...buried.map((id) => this.#name(id)))
    this.#burial(burial)
  }

  #burial(burial: Burial | undefined): void {
    this.#put(burial ? 1 : 0)
    if (!burial) return
    this.#token(burial.owner)
    this.#token(burial.lock)
    this.#turn(burial.turn)
  }

  #butler(butler: Butler | undefined): void {
    if (!butler) return this.#put(0)
    const flags = [butler.owned, butler.confirmed, butler.late, butler.woken, butler.noted, butler.more]
    this.#put(1 + PLACES.indexOf(butler.at))
    this.#put(flags.reduce((sum, flag) => sum * 2 + (flag ? 1 : 0), 0))
    this.#put(butler.stopSeq * 4 + butler.doneSeq)
    this.#put(SIGNALS.indexOf(butler.signal) * 8 + ENDS.indexOf(butler.ends))
    this.#put(butler.back === undefined ? 0 : 1 + PLACES.indexOf(butler.back))
    this.#token(butler.token)
    this.#token(butler.successor)
    this.#token(butler.holder)
    this.#turn(butler.judged)
    this.#turn(butler.turn)
    this.#said(butler.said)
    this.#put(butler.doubt ? (butler.doubt.fresh ? 2 : 1) : 0)
    // A stale doubt is never looked at.
    if (butler.doubt?.fresh) this.#said(butler.doubt.said)
  }

  #said(said: Said | undefined): void {
    if (!said) return this.#put(0)
    this.#put(
      1 + OUTCOMES.indexOf(said.outcome),
      FINISHED.indexOf(said.as),
      (said.doneSeq ?? 0) * 2 + (said.more ? 1 : 0),
    )
    this.#turn(said.turn)
    this.#said(said.next)
  }
}
