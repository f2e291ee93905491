// What comes from outside a butler: producers, the sweep, time, and commands that nobody waits for.
import { processOf } from '../../src/base/ids.ts'
import { admit, stop, type Submission } from '../../src/protocol/intake.ts'
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
  const { row, lock } = from
  if (from.messages > 0)
    moves.add(
      `send ${row.inboxSeq + 1}`,
      (world) => {
        world.messages -= 1
        const { inboxSeq } = commit(world, { as: 'producer' }, (draft) => {
          admit(draft.row, SUBMISSION, undefined, 10)
          draft.set({})
          return draft.row
        })
        world.untold |= 1 << inboxSeq
      },
      'world',
    )
  for (let seq = 1; seq <= row.inboxSeq; seq++) {
    if (!(from.untold & (1 << seq))) continue
    const push = (world: World) => {
      world.untold &= ~(1 << seq)
      world.queue |= 1 << seq
    }
    for (const ids of lock === null ? somebody(from) : toOwner(from, tokenOf(lock)))
      moves.add(`tell ${ids.join()} of ${seq}`, (world) => {
        push(world)
        wake(world, ids)
      })
    moves.fault('lost notice', `tell nobody of ${seq}`, push)
    moves.fault('lost notice', `push nothing for ${seq}`, (world) => void (world.untold &= ~(1 << seq)))
  }
  if (from.stops > 0 && row.inboxSeq > 0 && from.stopFor === undefined)
    moves.add(
      `stop up to ${row.inboxSeq}`,
      (world) => {
        world.stops -= 1
        const stopped = commit(world, { as: 'producer' }, (draft) => stop(draft, undefined))
        if (stopped?.pending) world.stopFor = stopped.owner
      },
      'world',
    )
  const { stopFor } = from
  if (stopFor === undefined) return
  const owner = stopFor !== null && hears(from, processOf(stopFor)) ? processOf(stopFor) : undefined
  for (const ids of owner === undefined ? somebody(from) : [[owner]])
    moves.add(`tell ${ids.join()} of the stop`, (world) => {
      world.stopFor = undefined
      if (owner === undefined) wake(world, ids)
      else for (const one of world.processes) if (one.id === owner) one.stop = true
    })
  moves.fault('lost notice', 'tell nobody of the stop', (world) => void (world.stopFor = undefined))
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
    holder !== undefined && isUp(from, holder) ? [holder] : processes.filter(takesWork).map(({ id }) => id)
  for (const id of targets)
    moves.add(
      `sweep: ${id}`,
      (world) => {
        const process = world.processes.find((one) => one.id === id)
        if (!process || process.wake) return false
        process.wake = true
      },
      'sweep',
    )
}

/** Commands that nobody waits for, handlers that were cut off, and time. */
export function backgroundMoves(moves: Moves): void {
  const { from, protocol } = moves
  for (const [index, { by, token, flag }] of from.releases.entries()) {
    if (!isUp(from, by)) continue
    for (const ids of flag ? somebody(from, by) : [[]])
      moves.add(`${by} release${flag ? `, tells ${ids.join()}` : ''}`, (world) => {
        world.releases.splice(index, 1)
        redis.release(world, token)
        wake(world, ids)
      })
    if (flag)
      moves.fault('lost notice', `${by} release, tells nobody`, (world) => {
        world.releases.splice(index, 1)
        redis.release(world, token)
      })
    if (!from.late)
      moves.fault('late command', `${by} release is not answered`, (world) => {
        world.releases.splice(index, 1)
        world.late = { by, what: 'release', token, flag: false }
      })
  }
  const { late } = from
  if (late)
    moves.add(
      `late: ${late.what} of ${late.by}`,
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
    )
  for (const turn of from.strays) {
    if (!isUp(from, processOf(turn.owner))) continue
    moves.add(`${processOf(turn.owner)} late write of message ${turn.seq}`, (world) => {
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
    moves.add('the back-off passes', (world) => void (world.row.retryInMs = null))
  expiryMoves(moves)
}

/** A busy lock expires when nobody keeps it; an idle one whenever it likes. */
function expiryMoves(moves: Moves): void {
  const { lock, processes } = moves.from
  if (lock === null) return
  const expire = (world: World) => void (world.lock = null)
  if (isIdle(lock)) return moves.add('the idle lock expires', expire, 'world')
  const keeper = processes.find(
    ({ state, butler }) => state === 'up' && butler?.token === lock && butler.at !== 'idle',
  )
  if (!keeper) return moves.add('the lock expires', expire, 'expiry')
  moves.fault('cut off', `${keeper.id} cannot renew its lock`, (world) => {
    world.lock = null
    for (const { butler } of world.processes) if (butler?.token === lock) butler.confirmed = false
  })
}
