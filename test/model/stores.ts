// The two stores of the model. MySQL: one rule on the locked row per commit, checked against the invariants by what is
// written, not by what the rule says of itself. Redis: the scripts of src/redis, one step each.
import { processOf } from '../../src/base/ids.ts'
import { hasHappened } from '../../src/mysql/doubt.ts'
import { Draft } from '../../src/protocol/draft.ts'
import { runningTurn, type Message } from '../../src/protocol/session-row.ts'
import { idleValue, isIdle, tokenOf } from '../../src/redis/lock.ts'
import type { Butler, Process, Turn, World } from './world.ts'

export class Violation extends Error {
  readonly invariant: string

  constructor(invariant: string, message: string) {
    super(message)
    this.invariant = invariant
  }
}

const fail = (invariant: string, message: string): never => {
  throw new Violation(invariant, message)
}

/** Who writes: the run of a turn, a token that starts or acquires, a verdict. */
export type Writer =
  | { readonly as: 'turn'; readonly run: number }
  | { readonly as: 'owner'; readonly token: string }
  | { readonly as: 'producer' | 'judge' }

const MESSAGES: readonly Message[] = [0, 1, 2, 3, 4].map((seq) => ({
  seq,
  id: `m-${seq}`,
  kind: 'k',
  version: 1,
  source: 'user',
  payload: '1',
  status: null,
  traceparent: null,
  createdAt: '',
}))

const WITHDRAWN = MESSAGES.map((message): Message => ({ ...message, status: 'withdrawn' }))

/** Entry numbers are counted from the running turn's start, so that they need no room in the state. */
export const NOTES_FROM = 100

/** Applies a rule to the row. `ahead`: the message after the running one is read. */
export function commit<R>(world: World, writer: Writer, rule: (draft: Draft) => R, ahead = false): R {
  const before = world.row
  const seq = before.doneSeq + (ahead ? 2 : 1)
  const withdrawn = (world.withdrawn & (1 << seq)) > 0
  const message = seq <= before.inboxSeq ? (withdrawn ? WITHDRAWN : MESSAGES)[seq] : undefined
  const draft = new Draft({ ...before, entrySeq: NOTES_FROM + world.notes }, { message: { seq, message } })
  const result = rule(draft)
  if (!draft.touched) return result
  const after = draft.row
  const started = draft.entries.some(({ type }) => type === 'turn_started')
  const ended = before.runningSeq !== null && (started || after.runningSeq === null)
  const byItself = writer.as === 'turn' && writer.run === world.run
  if (after.doneSeq < before.doneSeq || after.doneSeq > before.doneSeq + (ahead ? 2 : 1))
    fail('I1', `done went from ${before.doneSeq} to ${after.doneSeq}`)
  for (const { seq: marked, status } of draft.statuses) {
    if (marked <= before.doneSeq || (marked > after.doneSeq && status !== 'withdrawn'))
      fail('I1', `message ${marked} got a second final state`)
    if (status === 'withdrawn') world.withdrawn |= 1 << marked
    else if (world.withdrawn & (1 << marked)) fail('I1', `message ${marked} was withdrawn and ${status}`)
  }
  if (writer.as === 'turn' && !byItself) fail('I3', 'a turn wrote that is not the one in the row')
  if (writer.as === 'owner' && after.owner !== writer.token) fail('I3', 'a token that is not the owner wrote')
  if (after.owner !== before.owner && after.owner !== null && after.epoch <= before.epoch)
    fail('I3', 'a new owner without a new epoch')
  if (ended && !byItself && !world.excused)
    fail('I4', `the healthy turn of message ${before.runningSeq} was taken`)
  if (started && before.runningSeq !== null && !byItself) fail('I2', 'a turn started beside a running one')
  if (started && after.runningSeq !== after.doneSeq + 1) fail('I2', 'a turn started out of order')
  if (started && (after.runningSeq ?? 0) <= before.stopSeq)
    fail('I5', `message ${after.runningSeq} started after its stop`)
  if (started && world.withdrawn & (1 << (after.runningSeq ?? 0)))
    fail('I1', `message ${after.runningSeq} started after it was withdrawn`)
  if (ended || started) Object.assign(world, { notes: 0, excused: false, run: started ? freshRun(world) : 0 })
  else if (writer.as === 'turn') world.notes += draft.entries.length
  if (world.notes > 1) fail('I3', 'one append was written twice')
  // What nobody asks for any more: epochs and crashes decide nothing here, a tombstone is done with its messages.
  const stopSeq = after.stopSeq > after.doneSeq ? after.stopSeq : 0
  world.row = { ...after, stopSeq, epoch: 0, entrySeq: 0, handovers: 0, crashes: 0 }
  world.withdrawn &= -2 << after.doneSeq
  settleDoubts(world)
  return result
}

/** An unanswered commit that the row does not show any more will be tried again. Its own maker sets its doubt afterwards. */
function settleDoubts({ row, processes }: World): void {
  for (const { butler } of processes) {
    const { doubt } = butler ?? {}
    if (butler && doubt?.fresh && !hasHappened(row, { ...doubt, result: doubt.said }))
      butler.doubt = { ...doubt, fresh: false }
  }
}

export const nameRunning = (world: World): Turn | undefined => {
  const turn = runningTurn(world.row)
  return turn ? { ...turn, run: world.run } : undefined
}

/** All turns that anybody remembers. */
export const turnsOf = (world: World): Turn[] =>
  [
    ...world.strays,
    ...world.processes.flatMap(({ butler, look, contest, burial }) => [
      butler?.turn,
      butler?.judged,
      butler?.judging,
      butler?.said?.turn,
      butler?.said?.next?.turn,
      butler?.doubt?.said.turn,
      butler?.doubt?.said.next?.turn,
      look?.asked,
      look?.seen,
      contest,
      burial?.turn,
    ]),
  ].filter((turn) => turn !== undefined)

const freshRun = (world: World): number => {
  const used = new Set([world.run, ...turnsOf(world).map(({ run }) => run)])
  for (let run = 1; ; run++) if (!used.has(run)) return run
}

/** A token of this process that nobody remembers, like one that is drawn at random. */
export function freshToken(world: World, process: string): string {
  const { row, lock, releases, late, processes, stopFor } = world
  const used = new Set<string | null | undefined>([row.owner, lock && tokenOf(lock), late?.token, stopFor])
  for (const { token } of releases) used.add(token)
  for (const { owner } of turnsOf(world)) used.add(owner)
  for (const { butler, renewal, burial } of processes) {
    for (const token of [butler?.token, butler?.successor, renewal?.token, burial?.owner, burial?.lock])
      used.add(token)
    for (const value of [butler?.holder, renewal?.found]) if (value) used.add(tokenOf(value))
  }
  for (let number = 1; ; number++) if (!used.has(`${process}.${number}`)) return `${process}.${number}`
}

/** A turn runs, and its owner trusts the lock. */
const isHeld = ({ row, run, processes }: World): boolean =>
  row.runningSeq !== null &&
  processes.some(({ state, butler }) => state === 'up' && butler?.confirmed && butler.turn?.run === run)

export const redis = {
  /** Answers the lock's value when it is somebody else's. */
  acquire(world: World, token: string, idleIsFree = true): string | undefined {
    const { lock } = world
    if (lock !== null && lock !== token && !(idleIsFree && isIdle(lock))) return lock
    world.lock = token
    return undefined
  },
  toBusy(world: World, token: string): boolean {
    if (world.lock !== token && world.lock !== idleValue(token)) return false
    world.lock = token
    return true
  },
  swap(world: World, from: string, to: string): boolean {
    if (world.lock !== from && world.lock !== to) return false
    world.lock = to
    return true
  },
  /** Undefined: held. Otherwise what was found. */
  renew(world: World, token: string, retake: boolean): string | null | undefined {
    const { lock } = world
    if (lock !== null && tokenOf(lock) !== token) return lock
    if (lock === null && !retake) return null
    world.lock = token
    return lock === null ? null : undefined
  },
  release(world: World, token: string): void {
    if (world.lock !== null && tokenOf(world.lock) === token) world.lock = null
  },
  advance(world: World, token: string, more: boolean, anybody = false): 'lost' | 'idle' | 'empty' | number {
    if (world.lock !== token && !anybody) return 'lost'
    const taken = world.queue & -world.queue
    world.processing = taken
    world.queue &= ~taken
    if (taken) return Math.log2(taken)
    if (more) return 'empty'
    if (isHeld(world)) fail('lock', 'the lock was turned idle under a running turn')
    world.lock = idleValue(token)
    return 'idle'
  },
  recover(world: World, token: string): boolean {
    if (world.lock !== token) return false
    world.queue |= world.processing
    world.processing = 0
    return true
  },
}

/** Its process is up and beating. */
export const isUp = (world: World, process: string): boolean =>
  world.processes.some(({ id, state }) => id === process && state === 'up')

/** Its channel has a subscriber: a frozen process still has its sockets. */
export const hears = (world: World, process: string): boolean =>
  world.processes.some(
    ({ id, state, draining }) =>
      id === process && (state === 'up' || state === 'frozen') && draining !== 'deaf',
  )

export const takesWork = ({ state, draining }: Process): boolean => state === 'up' && draining === 'no'

/**
 * Who may be told when a notice goes to somebody, not back to `not`: one that is free, or froze so lately that it still
 * looks free; if nobody is free, everybody.
 */
export function somebody(world: World, not?: string): string[][] {
  const others = world.processes.filter((one) => one.draining === 'no' && one.id !== not)
  const free = others.filter(({ state }) => state === 'up').map(({ id }) => [id])
  const frozen = others.filter(({ state }) => state === 'frozen').map(({ id }) => [id])
  return [...(free.length > 0 ? free : [world.processes.map(({ id }) => id)]), ...frozen]
}

export function wake(world: World, ids: readonly string[]): void {
  for (const one of world.processes) if (ids.includes(one.id) && hears(world, one.id)) one.wake = true
}

/** Whom a notice to a lock's owner reaches. */
export const toOwner = (world: World, owner: string): string[][] =>
  hears(world, processOf(owner)) ? [[processOf(owner)]] : somebody(world)

export const runsTurn = (butler: Butler | undefined, run: number): boolean =>
  butler !== undefined &&
  [
    butler.turn,
    butler.said?.turn,
    butler.said?.next?.turn,
    butler.doubt?.said.turn,
    butler.doubt?.said.next?.turn,
  ].some((turn) => turn?.run === run)
