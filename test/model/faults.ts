// What can go wrong with a process or a store as a whole, and how it comes back. Faults of a single command, commit,
// notice, verdict or handler are where these are.
import { processOf } from '../../src/base/ids.ts'
import { at, type Moves } from './moves.ts'
import { takesWork, turnsOf } from './stores.ts'
import { newProcess, type Process, type World } from './world.ts'

export function faultMoves(moves: Moves, index: number): void {
  const { from } = moves
  const process = at(from, index)
  const { id, state } = process
  const runs = from.row.runningSeq !== null && processOf(from.row.owner ?? '.') === id
  if (state === 'up') {
    moves.fault('crash', 'dies', (world) => {
      if (runs) world.excused = true
      end(world, index, 'dead')
    })
    moves.fault('freeze', 'freezes', (world) => {
      if (runs) world.excused = true
      Object.assign(at(world, index), { state: 'frozen', renewal: undefined })
    })
    if (process.draining === 'no') moves.fault('drain', 'drains', (world) => drain(world, at(world, index)))
  }
  if (state === 'up' && process.draining === 'grace')
    moves.add('hands over', (world) => {
      const one = at(world, index)
      one.draining = 'handover'
      if (one.butler?.at === 'turn') one.butler.signal ??= 'handover'
    })
  if (state === 'up' && process.draining === 'handover' && !process.butler)
    moves.add('stops listening', (world) => void (at(world, index).draining = 'deaf'))
  const isDone = !process.wake && !process.stop && !from.releases.some(({ by }) => by === id)
  if (state === 'up' && process.draining === 'deaf' && isDone)
    moves.add('leaves', (world) => end(world, index, 'left'))
  // It stood still for longer than its lock lives.
  if (state === 'frozen' && !(process.butler?.token !== undefined && from.lock === process.butler.token))
    moves.add('thaws', (world) => thaw(at(world, index)), 'world')
  // While somebody serves, another process more makes no difference.
  if ((state === 'dead' || state === 'left') && !from.processes.some(takesWork))
    moves.add('is replaced', (world) => void (world.processes[index] = newProcess(freshName(world))), 'world')
  if (index > 0) return
  moves.by = undefined
  moves.fault(
    'flush',
    'Redis is flushed',
    (world) => void Object.assign(world, { lock: null, queue: 0, processing: 0 }),
  )
  if (from.run > 0)
    moves.fault('fail-over', 'MySQL forgets the start of the turn', (world) => {
      const { row } = world
      Object.assign(world, {
        run: 0,
        notes: 0,
        row: { ...row, runningSeq: null, owner: null, starts: row.starts - 1 },
      })
      for (const { butler } of world.processes)
        if (butler?.doubt) butler.doubt = { ...butler.doubt, fresh: false }
    })
}

function end(world: World, index: number, state: 'dead' | 'left'): void {
  const { id } = at(world, index)
  world.processes[index] = { ...newProcess(id), state }
  world.releases = world.releases.filter(({ by }) => by !== id)
  world.strays = world.strays.filter(({ owner }) => processOf(owner) !== id)
}

function drain(world: World, process: Process): void {
  const { butler, id } = process
  process.draining = 'grace'
  process.contest = undefined
  if (!butler || !['idle', 'line', 'backoff'].includes(butler.at)) return
  process.butler = undefined
  world.releases.push({
    by: id,
    what: 'release',
    token: butler.token ?? `${id}.0`,
    flag: butler.at !== 'idle',
  })
}

function thaw(process: Process): void {
  process.state = 'up'
  process.renewal = undefined
  if (process.butler) Object.assign(process.butler, { confirmed: false, late: true })
}

function freshName(world: World): string {
  const tokens = [
    world.row.owner,
    world.lock,
    world.late?.token,
    world.stopFor,
    ...turnsOf(world).map(({ owner }) => owner),
  ]
  const used = new Set([
    ...tokens.flatMap((token) => (token ? [processOf(token)] : [])),
    ...world.processes.flatMap(({ id, buried, burial, renewal, butler }) => [
      id,
      ...buried,
      ...[burial?.owner, burial?.lock, renewal?.found, butler?.holder].flatMap((token) =>
        token ? [processOf(token)] : [],
      ),
    ]),
  ])
  return 'ABCDEFGH'.split('').find((name) => !used.has(name)) ?? 'Z'
}
