// One session in the model: what the stores hold, and where each of two worker processes stands in its code. A world is
// changed only while it is fresh (see `copy`); turns and the like are shared and never changed.
import type { SessionRow, TurnName } from '../../src/protocol/session-row.ts'
import { row } from '../protocol/rows.ts'

/** A turn as the row named it. `run` is known to the checks only: no two starts ever share one. */
export interface Turn extends TurnName {
  readonly run: number
}

/** Where a butler is: what it does next. */
export type At =
  | 'line' // in the registry's line
  | 'busy' // its own idle lock is to turn busy
  | 'lock' // SET NX
  | 'oust' // a lock that nobody holds any more is in the way
  | 'row' // acquire
  | 'recover'
  | 'start'
  | 'begin' // the start is committed, its answer on the way
  | 'turn' // the handler runs
  | 'finish'
  | 'ended' // the end is committed, its answer on the way
  | 'succeed' // the lock is to follow the row's new token
  | 'verify' // the lock is in doubt: renew it, then go on at `back`
  | 'rest' // advance
  | 'rested' // the lock is idle, the answer on the way
  | 'idle'
  | 'backoff'

export type Ends = 'completed' | 'threw' | 'stopped' | 'handed_over'

/** What a rule said, as far as the butler goes on with it. */
export interface Said {
  readonly outcome: string
  readonly turn?: Turn | undefined
  readonly as?: string
  /** Of a finish: MySQL has more. */
  readonly more?: boolean
  readonly doneSeq?: number
  readonly next?: Said | undefined
}

/** A commit whose answer was lost; `fresh` while the row still shows that it happened. */
export interface Doubt {
  readonly fresh: boolean
  readonly before: SessionRow
  readonly row: SessionRow
  readonly said: Said
}

export interface Butler {
  at: At
  token: string | undefined
  owned: boolean
  confirmed: boolean
  /** It stood still between lock and row. */
  late: boolean
  stopSeq: number
  woken: boolean
  /** To be taken from its owner: by the next stay in a slot, by this one. */
  judged: Turn | undefined
  judging: Turn | undefined
  turn: Turn | undefined
  signal: 'stopped' | 'handover' | undefined
  /** The handler's one entry is written, as far as the turn knows. */
  noted: boolean
  ends: Ends | undefined
  /** The handler ignored its signal: the row's next owner token. */
  successor: string | undefined
  said: Said | undefined
  doubt: Doubt | undefined
  more: boolean
  doneSeq: number
  /** Where to go on after `verify`, or `idle` while the idle lock is not busy again; the lock that `oust` is to replace. */
  back: At | undefined
  holder: string | undefined
}

/** A renewal that found its lock missing (`null`, now retaken) or a stranger's, and is to read the row. */
export interface Renewal {
  readonly token: string
  readonly found: string | null
  /** The row was read and is ours: the stranger's lock is to be replaced. */
  readonly ours: boolean
  /** A butler waits for it, at `verify`; a tick's never asks for an idle lock. */
  readonly awaited: boolean
}

/** An answer to the reconciler's question: the turn that was known when it was asked, and the one that the row named. */
export interface Look {
  readonly asked: Turn | undefined
  readonly seen: Turn | undefined
  readonly stopSeq: number
  /** Judged: a row that names us for a turn that we do not run. */
  readonly orphan: boolean
}

/** A dead process's turn is to be ended, its lock deleted, the work shared. */
export interface Burial {
  readonly owner: string | undefined
  readonly turn: Turn | undefined
  readonly lock: string | undefined
}

export interface Process {
  id: string
  state: 'up' | 'frozen' | 'dead' | 'left'
  /** `deaf`: nothing runs any more, and it has stopped listening. */
  draining: 'no' | 'grace' | 'handover' | 'deaf'
  /** Notices on their way. */
  wake: boolean
  stop: boolean
  butler: Butler | undefined
  renewal: Renewal | undefined
  look: Look | undefined
  contest: Turn | undefined
  /** Processes it holds for dead. */
  buried: readonly string[]
  burial: Burial | undefined
}

/** A command to Redis that nobody waits for: a release under way, or any other that timed out and comes late. */
export interface Command {
  readonly by: string
  readonly what: 'release' | 'lock' | 'busy' | 'renew' | 'advance'
  readonly token: string
  /** release: tell somebody. advance: MySQL has more. */
  readonly flag: boolean
}

export interface World {
  /** Never changed, only replaced. */
  row: SessionRow
  /** Checks only: the run that `runningSeq` stands for; whether its owner gave cause to take it away; its entries. */
  run: number
  excused: boolean
  notes: number
  lock: string | null
  /** References, as bits by seq: which one is taken first makes no difference, it only says that there is work. */
  queue: number
  processing: number
  processes: Process[]
  /** Accepted messages whose producer has not told anybody yet, as bits by seq. */
  untold: number
  /** Messages that were taken back, as bits by seq. */
  withdrawn: number
  /** The owner whom the caller of stop is to tell; null: somebody. */
  stopFor: string | null | undefined
  releases: Command[]
  late: Command | undefined
  /** Turns that were lost or cut off, whose handler may still write once. */
  strays: Turn[]
  messages: number
  stops: number
  withdrawals: number
  faults: number
  /** Other sessions wait for the slots of both processes. */
  readonly crowded: boolean
  /** The last message interrupts. */
  readonly interrupts: boolean
}

export const newProcess = (id: string): Process => ({
  id,
  state: 'up',
  draining: 'no',
  wake: false,
  stop: false,
  butler: undefined,
  renewal: undefined,
  look: undefined,
  contest: undefined,
  buried: [],
  burial: undefined,
})

type Left = Pick<World, 'messages' | 'stops' | 'withdrawals' | 'faults' | 'crowded' | 'interrupts'>

export const newWorld = (left: Left): World => ({
  row: row({ id: 's' }),
  run: 0,
  excused: false,
  notes: 0,
  lock: null,
  queue: 0,
  processing: 0,
  processes: [newProcess('A'), newProcess('B')],
  untold: 0,
  withdrawn: 0,
  stopFor: undefined,
  releases: [],
  late: undefined,
  strays: [],
  ...left,
})

export const newButler = (judged?: Turn): Butler => ({
  at: 'line',
  token: undefined,
  owned: false,
  confirmed: false,
  late: false,
  stopSeq: 0,
  woken: false,
  judged,
  judging: undefined,
  turn: undefined,
  signal: undefined,
  noted: false,
  ends: undefined,
  successor: undefined,
  said: undefined,
  doubt: undefined,
  more: false,
  doneSeq: 0,
  back: undefined,
  holder: undefined,
})
