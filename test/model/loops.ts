// The loops that look after what went wrong, and the notices: src/session/renewer.ts, reconciler.ts, contests.ts,
// roll-call.ts and dispatcher.ts.
import { processOf } from '../../src/base/ids.ts'
import { tokenOf } from '../../src/redis/lock.ts'
import { isIdling, renew, settle } from './course.ts'
import { at, butlerAt, type Moves } from './moves.ts'
import { hasReleased, hearStop, heed, isServing, leave, lose, wakeHere } from './registry.ts'
import { commit, hears, nameRunning, redis, runsTurn, somebody, takesWork, wake } from './stores.ts'
import type { Process, Turn, World } from './world.ts'

export function loopMoves(moves: Moves, index: number): void {
  const process = moves.from.processes[index]
  if (process?.state !== 'up') return
  noticeMoves(moves, index, process)
  renewMoves(moves, index, process)
  lookMoves(moves, index, process)
  if (process.contest) contestMoves(moves, index, process.contest)
  if (process.burial) burialMoves(moves, index)
  else if (takesWork(process) && moves.protocol.has('bury')) rollCallMoves(moves, index)
  if (moves.from.crowded && process.butler?.at === 'line') giveAwayMoves(moves, index, process)
}

function noticeMoves(moves: Moves, index: number, on: Process): void {
  for (const notice of ['wake', 'stop'] as const) {
    if (!on[notice]) continue
    moves.add(`hears a ${notice}`, (world) => {
      const process = at(world, index)
      process[notice] = false
      if (notice === 'stop') hearStop(world, process, moves.protocol)
      else wakeHere(world, process, moves.protocol)
    })
    moves.fault('lost notice', `misses a ${notice}`, (world) => void (at(world, index)[notice] = false))
  }
}

/** A renewal that would change nothing is left out. */
function renewMoves(moves: Moves, index: number, process: Process): void {
  const { from, protocol } = moves
  const { butler, renewal, id } = process
  if (renewal) {
    if (!renewal.ours || hasReleased(from, process))
      moves.add(
        renewal.ours ? 'settles its renewal by the lock' : 'settles its renewal by the row',
        (world) => settle(world, at(world, index), protocol),
      )
  } else if (butler?.owned && hasReleased(from, process)) {
    if (isIdling(butler)) return
    const { token = '', confirmed } = butler
    if (confirmed && from.lock === token) return
    if (from.lock === null && !protocol.has('retake')) return
    moves.add('renew', (world) => renew(world, ...butlerAt(world, index), protocol), 'loop')
    if (from.late) return
    moves.fault('late command', 'renew is not answered', (world) => {
      world.late = { by: id, what: 'renew', token, flag: false }
    })
  }
}

const same = (a: Turn | undefined, b: Turn | undefined) =>
  a?.owner === b?.owner && a?.seq === b?.seq && a?.starts === b?.starts

function lookMoves(moves: Moves, index: number, process: Process): void {
  const { from, protocol } = moves
  const { id, butler, look } = process
  if (!look) {
    const running = nameRunning(from)
    const seen = running && processOf(running.owner) === id ? running : undefined
    const asked = butler?.turn
    // A question that nobody could act on is left out.
    if (protocol.has('lookAtAsked')) {
      const news = butler !== undefined && from.row.stopSeq > butler.stopSeq
      if (asked ? same(asked, seen) && !news : !seen || (butler && isServing(butler))) return
    }
    moves.add(
      'look',
      (world) => {
        at(world, index).look = { asked, seen, stopSeq: world.row.stopSeq, orphan: false }
      },
      'loop',
    )
  } else if (look.orphan) {
    moves.add('releaseOrphan', (world) => {
      const one = at(world, index)
      const { seen } = look
      one.look = undefined
      const released =
        seen && commit(world, { as: 'judge' }, (draft) => protocol.evict(draft, seen, 'orphan'))
      if (released?.evicted) wakeHere(world, one, protocol)
    })
  } else
    moves.add('reconcile', (world) => {
      const one = at(world, index)
      const { seen } = look
      one.look = undefined
      const asked = protocol.has('lookAtAsked') ? look.asked : one.butler?.turn
      if (asked && one.butler?.turn?.run === asked.run) confirm(world, one, asked)
      const orphan = seen && protocol.has('orphans') && !(one.butler && isServing(one.butler))
      if (orphan) one.look = { ...look, orphan }
    })

  function confirm(world: World, one: Process, asked: Turn): void {
    const { butler } = one
    if (!look || !butler) return
    const again = same(look.seen, asked) ? look.seen : nameRunning(world)
    const stopSeq = same(look.seen, asked) ? look.stopSeq : world.row.stopSeq
    if (same(again, asked) && (protocol.has('lookAtAsked') || same(look.seen, asked))) {
      if (protocol.has('stopTick') && stopSeq > butler.stopSeq) heed(butler, stopSeq)
    } else if (!protocol.has('lookAtAsked') || world.row.owner !== asked.owner) {
      lose(world, one)
    }
  }
}

function contestMoves(moves: Moves, index: number, contest: Turn): void {
  const { from, protocol } = moves
  const { buried } = at(from, index)
  if (from.lock !== null && tokenOf(from.lock) === contest.owner)
    return moves.add('contest is over', (world) => void (at(world, index).contest = undefined))
  const judge = (world: World) => {
    const one = at(world, index)
    one.contest = undefined
    wakeHere(world, one, protocol, contest)
  }
  const owner = from.processes.find((one) => one.id === processOf(contest.owner))
  // A healthy owner takes its lock back long before it could be judged.
  const healthy = owner?.state === 'up' && runsTurn(owner.butler, contest.run) && protocol.has('retake')
  const gone = (owner === undefined || !hears(from, owner.id)) && !buried.includes(processOf(contest.owner))
  if (!healthy && !gone && protocol.has('contests')) moves.add('verdict: hung', judge, 'loop')
  if (healthy)
    moves.fault('wrong verdict', 'verdict: hung', (world) => {
      if (world.run === contest.run) world.excused = true
      judge(world)
    })
}

function rollCallMoves(moves: Moves, index: number): void {
  const { from } = moves
  const { id, buried } = at(from, index)
  const { row, lock } = from
  const named = new Set(
    [row.owner, lock && tokenOf(lock)].flatMap((token) => (token ? [processOf(token)] : [])),
  )
  named.delete(id)
  const bury = (dead: string) => (world: World) => {
    const one = at(world, index)
    const owner =
      row.owner !== null && processOf(row.owner) === dead && row.doneSeq < row.inboxSeq
        ? row.owner
        : undefined
    one.buried = [...new Set([...one.buried, dead])].sort()
    one.burial = {
      owner,
      turn: owner === undefined ? undefined : nameRunning(world),
      lock: lock !== null && processOf(tokenOf(lock)) === dead ? tokenOf(lock) : undefined,
    }
  }
  for (const dead of named) {
    // It was buried, and has left nothing since.
    const isDone = row.runningSeq === null && (lock === null || processOf(tokenOf(lock)) !== dead)
    if (isDone && buried.includes(dead)) continue
    if (!hears(from, dead)) moves.add('bury', bury(dead), 'loop', dead)
    else
      moves.fault(
        'wrong verdict',
        'bury',
        (world) => {
          if (row.owner !== null && processOf(row.owner) === dead) world.excused = true
          bury(dead)(world)
        },
        dead,
      )
  }
  const back = buried.filter((one) => hears(from, one))
  if (back.length > 0)
    moves.add(
      'sees the dead again',
      (world) => {
        const one = at(world, index)
        one.buried = one.buried.filter((dead) => !back.includes(dead))
      },
      'loop',
    )
}

function burialMoves(moves: Moves, index: number): void {
  const { protocol } = moves
  const { id, burial } = at(moves.from, index)
  if (!burial) return
  const { turn, owner, lock } = burial
  if (turn)
    return moves.add("ends the dead one's turn", (world) => {
      at(world, index).burial = { owner, lock, turn: undefined }
      commit(world, { as: 'judge' }, (draft) => protocol.evict(draft, turn, 'dead'))
    })
  moves.add("deletes the dead one's lock", (world) => {
    const one = at(world, index)
    one.burial = undefined
    for (const token of [owner, lock]) if (token !== undefined) redis.release(world, token)
    if (takesWork(one)) wakeHere(world, one, protocol)
    else for (const ids of somebody(world, id).slice(0, 1)) wake(world, ids)
  })
}

function giveAwayMoves(moves: Moves, index: number, { id, butler }: Process): void {
  const other = moves.from.processes.find((one) => one.id !== id && takesWork(one))
  if (!other || butler?.judged) return
  moves.add(
    'giveAway',
    (world) => {
      const one = at(world, index)
      if (one.butler?.token === undefined) wake(world, [other.id])
      leave(world, one, { tell: true })
    },
    'loop',
  )
}
