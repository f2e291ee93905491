// A process's registry in the model: who is woken, placed, lost, let go. src/session/registry.ts and hold.ts.
import type { Protocol } from './rules.ts'
import { type Butler, newButler, type Process, type Turn, type World } from './world.ts'

/** Waiting, idle and in a back-off it is not in a slot. */
export const isServing = ({ at }: Butler): boolean => at !== 'line' && at !== 'idle' && at !== 'backoff'

/** A session has work, or may have. */
export function wakeHere(world: World, process: Process, protocol: Protocol, judged?: Turn): void {
  const { butler } = process
  if (!butler) {
    if (process.draining === 'no') process.butler = newcomer(world, judged)
    // Every process that is free is told: who of them it is makes no difference to what may follow.
    else if (protocol.has('passOn')) tellSomebody(world, process)
    return
  }
  if (judged) butler.judged = judged
  if (isServing(butler)) {
    if (protocol.has('wokenWhileServing')) butler.woken = true
  } else queue(world, butler)
}

/** To the end of the line; when nobody else is in it, it is served at once. */
export function queue({ crowded }: World, butler: Butler): void {
  const { at, confirmed } = butler
  if (!confirmed && (at === 'idle' || at === 'rested')) butler.back = 'idle'
  butler.at = 'line'
  if (!crowded) serve(butler)
}

/** A stay in a slot begins. */
export function serve(butler: Butler): void {
  const { judged } = butler
  Object.assign(butler, { woken: false, judged: undefined })
  if (butler.owned && butler.confirmed) butler.at = 'start'
  else Object.assign(butler, { at: butler.owned ? 'busy' : 'lock', judging: judged })
}

/** Who called before now is answered by this look at the row. */
export const lookAtRow = (butler: Butler): void => void Object.assign(butler, { at: 'start', woken: false })

function newcomer(world: World, judged?: Turn): Butler {
  const butler = newButler(judged)
  queue(world, butler)
  return butler
}

/** Leaves the choice of whom to tell to the release of a lock that is not there. */
const tellSomebody = (world: World, { id }: Process) => letGo(world, id, `${id}.0`, true)

/** Gives a lock back, and tells somebody. On one connection a process's commands keep their order. */
function letGo(world: World, by: string, token: string, tell: boolean): void {
  if (world.releases.some((one) => one.by === by && one.token === token && one.flag === tell)) return
  world.releases.push({ by, what: 'release', token, flag: tell })
}

export const hasReleased = (world: World, { id }: Process): boolean =>
  !world.releases.some(({ by }) => by === id)

/** What the registry does with a butler after its stay in a slot. */
export function place(
  world: World,
  process: Process,
  butler: Butler,
  where: 'line' | 'idle' | 'backoff',
): void {
  if (process.draining !== 'no') return leave(world, process, { tell: true })
  if (where === 'line' || (where === 'idle' && butler.woken)) queue(world, butler)
  else butler.at = where
}

/** The butler is gone, and whoever called it meanwhile gets a fresh one. */
export function leave(world: World, process: Process, { tell }: { tell: boolean }): void {
  const { butler } = process
  if (!butler) return
  process.butler = undefined
  if (butler.token !== undefined) letGo(world, process.id, butler.token, tell)
  if (!butler.woken) return
  if (process.draining === 'no') process.butler = newcomer(world, butler.judged)
  else tellSomebody(world, process)
}

/** The row names somebody else. The handler may not have heard of it yet. */
export function lose(world: World, process: Process, letsGo = true): void {
  const turn = process.butler?.said?.turn ?? (process.butler?.at === 'turn' ? process.butler.turn : undefined)
  if (turn) addStray(world, turn)
  if (process.butler && !letsGo) process.butler.token = undefined
  leave(world, process, { tell: true })
}

/** One late write is as good as many, and as good as another's. */
export function addStray(world: World, turn: Turn): void {
  if (world.strays.length === 0) world.strays.push(turn)
}

/** Fires the running turn's signal when it is covered. */
export function heed(butler: Butler, through: number): void {
  butler.stopSeq = Math.max(butler.stopSeq, through)
  if (butler.turn && butler.turn.seq <= butler.stopSeq) butler.signal ??= 'stopped'
}

/** A stop notice: the row says up to where. */
export function hearStop(world: World, process: Process, protocol: Protocol): void {
  const { butler } = process
  if (!butler) return wakeHere(world, process, protocol)
  heed(butler, world.row.stopSeq)
  if (butler.at === 'backoff') queue(world, butler)
  else if (!butler.turn) wakeHere(world, process, protocol)
}
