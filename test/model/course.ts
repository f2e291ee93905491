// How a butler goes on after an answer, and how a doubt about its lock is settled. src/session/butler.ts, renewer.ts.
import { processOf } from '../../src/base/ids.ts'
import { tokenOf } from '../../src/redis/lock.ts'
import { leave, lookAtRow, lose, place } from './registry.ts'
import type { Protocol } from './rules.ts'
import { redis, wake } from './stores.ts'
import type { Butler, Process, Said, World } from './world.ts'

/** What to do after a start. */
export function meet(world: World, process: Process, butler: Butler, answer: Said): void {
  switch (answer.outcome) {
    case 'started':
      return void Object.assign(butler, { at: 'begin', said: answer })
    case 'skipped':
      butler.said = undefined
      return lookAtRow(butler)
    case 'unheld':
      butler.said = undefined
      if (butler.confirmed) return lookAtRow(butler)
      return void (butler.at = 'busy')
    case 'nothing':
      return void Object.assign(butler, { at: 'rest', more: false, doneSeq: answer.doneSeq, said: undefined })
    case 'later':
      butler.said = undefined
      return place(world, process, butler, 'backoff')
    default:
      butler.said = undefined
      return lose(world, process)
  }
}

/** What follows a turn's end. */
export function goOn(world: World, process: Process, butler: Butler): void {
  const { said: end, stopSeq } = butler
  Object.assign(butler, { said: undefined, ends: undefined, signal: undefined, noted: false })
  if (end?.as === 'handed_over') return leave(world, process, { tell: true })
  if (end?.as === 'retrying')
    return place(world, process, butler, stopSeq > (end.doneSeq ?? 0) ? 'line' : 'backoff')
  if (!end?.next)
    return void Object.assign(butler, { at: 'rest', more: end?.more ?? false, doneSeq: end?.doneSeq ?? 0 })
  meet(world, process, butler, end.next)
}

/** The first half of a renewal, at Redis. What it finds strange is settled by the row. */
export function renew(
  world: World,
  process: Process,
  butler: Butler,
  protocol: Protocol,
  awaited = false,
): void {
  const { token = '' } = butler
  const found = redis.renew(world, token, protocol.has('retake'))
  if (found === undefined) butler.confirmed = true
  else if (!protocol.has('lostMeansRow')) lose(world, process)
  else process.renewal = { token, found, ours: false, awaited }
}

/** The second half, at MySQL; the third one, should there be one, at Redis again. */
export function settle(world: World, process: Process, protocol: Protocol): void {
  const { renewal, butler } = process
  process.renewal = undefined
  if (!renewal || !butler || butler.token !== renewal.token || !butler.owned) return
  const { token, found, ours, awaited } = renewal
  if (ours) {
    if (redis.swap(world, found ?? '', token)) butler.confirmed = true
  } else if (world.row.owner !== token) return lose(world, process, protocol.has('loserLetsGo'))
  else if (!awaited && isIdling(butler) && protocol.has('earlyStartWaits')) return
  else if (found === null) butler.confirmed = true
  else {
    const stranger = processOf(tokenOf(found))
    if ((stranger === process.id && protocol.has('lockFollows')) || process.buried.includes(stranger))
      return void (process.renewal = { ...renewal, ours: true })
    // It learns from the row that the session is not its own, and gives the lock back.
    wake(world, [stranger])
  }
  if (awaited) resume(world, process)
}

/** It has turned idle behind the renewal, or waits for what its own look at the lock says. */
export const isIdling = ({ at, back }: Butler): boolean =>
  at === 'rested' || at === 'idle' || at === 'verify' || back === 'idle'

/** A butler that waited for the renewal goes on. */
export function resume(world: World, process: Process): void {
  const { butler } = process
  if (butler?.at !== 'verify') return
  const { back } = butler
  butler.back = undefined
  if (back === 'ended') return goOn(world, process, butler)
  if (back === 'start') {
    if (butler.confirmed) return lookAtRow(butler)
    // The lock is a stranger's, who was woken.
    butler.token = undefined
    return leave(world, process, { tell: false })
  }
  if (butler.confirmed && back) butler.at = back
  else leave(world, process, { tell: true })
}
