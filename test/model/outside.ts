// What comes from outside a butler: producers, the sweep, time, and commands that nobody waits for.
import { processOf } from '../../src/base/ids.ts'
import { admit, stop, type Submission, withdraw } from '../../src/protocol/intake.ts'
import { isIdle, tokenOf } from '../../src/redis/lock.ts'
import type { Moves } from './moves.ts'
import {
  commit,
  hears,
  isUp,
  NOTES_FROM,
  redis,
  somebody,
  takesWork,
  toOwner,
  Violation,
  wake,
} from './stores.ts'
import type { World } from './world.ts'

const SUBMISSION: Submission = {
  sessionId: 's',
  id: 'm',
  key: 'm',
  fingerprint: '',
  kind: 'k',
  source: 'user',
  payload: '1',
  whenBusy: 'enqueue',
  traceparent: null,
  retryOf: null,
}

export function producerMoves(moves: Moves): void {
  const { from } = moves
  const { row } = from
  if (from.messages > 0)
    moves.add(
      'send',
      (world) => {
        world.messages -= 1
        const { inboxSeq } = commit(world, { as: 'producer' }, (draft) => {
          admit(
            draft.row,
            { ...SUBMISSION, whenBusy: interrupts(world) ? 'interrupt' : 'enqueue' },
            undefined,
            10,
          )
          draft.set({})
          return draft.row
        })
        world.untold |= 1 << inboxSeq
      },
      'world',
      String(row.inboxSeq + 1),
    )
  for (let seq = 1; seq <= row.inboxSeq; seq++) {
    if (from.untold & (1 << seq)) noticeMoves(moves, seq)
    if (from.withdrawals > 0 && !(from.withdrawn & (1 << seq)) && seq > row.doneSeq)
      moves.add(
        'withdraw',
        (world) => {
          world.withdrawals -= 1
          commit(world, { as: 'producer' }, (draft) => withdraw(draft, seq))
        },
        'world',
        String(seq),
      )
  }
  if (from.stops > 0 && row.inboxSeq > 0 && from.stopFor === undefined)
    moves.add(
      'stop',
      (world) => {
        world.stops -= 1
        const stopped = commit(world, { as: 'producer' }, (draft) => stop(draft, undefined))
        if (stopped?.pending) world.stopFor = stopped.owner
      },
      'world',
      `up to ${row.inboxSeq}`,
    )
  stopMoves(moves)
}

const interrupts = ({ messages, interrupts: one }: World): boolean => one && messages === 0

/** A reference is left, and whoever has the lock is told, or somebody. */
function noticeMoves(moves: Moves, seq: number): void {
  const { from } = moves
  const { lock, row } = from
  const stops = seq === row.inboxSeq && interrupts(from)
  const push = (world: World) => {
    world.untold &= ~(1 << seq)
    world.queue |= 1 << seq
  }
  const owner = lock === null ? undefined : processOf(tokenOf(lock))
  for (const ids of lock === null ? somebody(from) : toOwner(from, tokenOf(lock)))
    moves.add(
      `tell of ${seq}`,
      (world) => {
        push(world)
        wake(world, ids)
        if (stops && owner !== undefined) sayStop(world, owner)
      },
      'step',
      ids.join(),
    )
  moves.fault('lost notice', `tell nobody of ${seq}`, push)
  moves.fault('lost notice', `push nothing for ${seq}`, (world) => void (world.untold &= ~(1 << seq)))
}

function stopMoves(moves: Moves): void {
  const { stopFor } = moves.from
  if (stopFor === undefined) return
  const owner = stopFor !== null && hears(moves.from, processOf(stopFor)) ? processOf(stopFor) : undefined
  for (const ids of owner === undefined ? somebody(moves.from) : [[owner]])
    moves.add(
      'tell of the stop',
      (world) => {
        world.stopFor = undefined
        if (owner === undefined) wake(world, ids)
        else sayStop(world, owner)
      },
      'step',
      ids.join(),
    )
  moves.fault('lost notice', 'tell nobody of the stop', (world) => void (world.stopFor = undefined))
}

function sayStop(world: World, id: string): void {
  for (const one of world.processes) if (one.id === id && hears(world, id)) one.stop = true
}

/** One process per tick looks for work that nobody alive is running. */
export function sweepMoves(moves: Moves): void {
  const { from, protocol } = moves
  const { row, lock, processes } = from
  if (!protocol.has('sweep') || !processes.some(takesWork)) return
  if (row.doneSeq >= row.inboxSeq || row.retryInMs !== null) return
  if (row.runningSeq !== null && row.owner !== null && isUp(from, processOf(row.owner))) return
  const holder = lock !== null && !isIdle(lock) ? processOf(tokenOf(lock)) : undefined
  const targets =
    holder !== undefined && isUp(from, holder) && hears(from, holder)
      ? [holder]
      : processes.filter(takesWork).map(({ id }) => id)
  for (const id of targets)
    moves.add(
      'sweep',
      (world) => {
        const process = world.processes.find((one) => one.id === id)
        if (!process || process.wake) return false
        process.wake = true
      },
      'sweep',
      id,
    )
}

/** Commands that nobody waits for, handlers that were cut off, and time. */
export function backgroundMoves(moves: Moves): void {
  const { from, protocol } = moves
  for (const [index, { by, token, flag }] of from.releases.entries()) {
    // On one connection they keep their order.
    if (!isUp(from, by) || from.releases.findIndex((one) => one.by === by) < index) continue
    moves.by = from.processes.findIndex(({ id }) => id === by)
    const release = (world: World) => {
      world.releases.splice(index, 1)
      redis.release(world, token)
    }
    for (const ids of flag ? somebody(from, by) : [[]])
      moves.add(
        'release',
        (world) => {
          release(world)
          wake(world, ids)
        },
        'step',
        flag ? `and tells ${ids.join()}` : '',
      )
    if (flag) moves.fault('lost notice', 'release', release, 'and tells nobody')
    if (!from.late)
      moves.fault('late command', 'release is not answered', (world) => {
        world.releases.splice(index, 1)
        world.late = { by, what: 'release', token, flag: false }
      })
  }
  moves.by = undefined
  const { late } = from
  if (late)
    moves.add(
      'comes late',
      (world) => {
        const { what, token, flag } = late
        world.late = undefined
        if (what === 'release') redis.release(world, token)
        if (what === 'lock') redis.acquire(world, token)
        if (what === 'busy') redis.toBusy(world, token)
        if (what === 'renew') redis.renew(world, token, protocol.has('retake'))
        if (what === 'advance') redis.advance(world, token, flag, !protocol.has('ownerOnlyAdvance'))
      },
      'world',
      `${late.what} of ${late.by}`,
    )
  for (const turn of from.strays) {
    if (!isUp(from, processOf(turn.owner))) continue
    moves.add('a handler that was cut off writes', (world) => {
      world.strays.pop()
      // Its number is an old one: the only harm it could do is to believe that its entry was kept.
      const { outcome } = commit(world, { as: 'turn', run: turn.run }, (draft) =>
        protocol.append(draft, turn, NOTES_FROM - 1),
      )
      if (outcome === 'appended' && world.run !== turn.run)
        throw new Violation('I3', 'a lost turn was told that it wrote')
    })
  }
  if (from.row.retryInMs !== null)
    moves.add('the back-off passes', (world) => void (world.row = { ...world.row, retryInMs: null }))
  expiryMoves(moves)
}

/** A busy lock expires when nobody keeps it; an idle one whenever it likes. */
function expiryMoves(moves: Moves): void {
  const { lock, processes } = moves.from
  if (lock === null) return
  // Whatever an earlier renewal still confirms is over then too.
  const expire = (world: World) => {
    world.lock = null
    for (const one of world.processes) {
      if (one.butler?.token === tokenOf(lock)) one.butler.confirmed = false
      if (one.renewal?.token === tokenOf(lock)) one.renewal = undefined
    }
  }
  if (isIdle(lock)) return moves.add('the idle lock expires', expire, 'world')
  const keeper = processes.find(
    ({ state, butler }) => state === 'up' && butler?.token === lock && butler.at !== 'idle',
  )
  if (!keeper) return moves.add('the lock expires', expire, 'expiry')
  moves.fault('expiry', `the lock of ${keeper.id} expires`, expire)
}
