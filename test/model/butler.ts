// One butler's stay in a slot, move by move: src/session/butler.ts, hold.ts, turn.ts and turn-end.ts.
import { processOf } from '../../src/base/ids.ts'
import { tokenOf } from '../../src/redis/lock.ts'
import { goOn, meet, renew, resume } from './course.ts'
import { butlerAt, type Moves } from './moves.ts'
import { hasReleased, heed, leave, lookAtRow, place, queue, serve } from './registry.ts'
import { freshToken, redis, wake } from './stores.ts'
import { acquireRule, finishRule, startRule, turnMoves } from './turn.ts'
import type { Butler, Command, Process, Said, World } from './world.ts'

export function butlerMoves(moves: Moves, index: number): void {
  const { from, protocol } = moves
  const process = from.processes[index]
  const butler = process?.butler
  if (!process || !butler || process.state !== 'up') return
  const move = (what: string, change: (world: World, process: Process, butler: Butler) => void | false) =>
    moves.add(what, (world) => change(world, ...butlerAt(world, index)))
  const command = (
    what: Command['what'],
    change: (world: World, process: Process, butler: Butler) => void | false,
  ) => {
    if (!hasReleased(from, process)) return
    move(what === 'busy' ? 'toBusy' : what === 'lock' ? 'acquire lock' : what, change)
    if (from.late) return
    moves.fault('late command', `${what} is not answered`, (world) => {
      const [one, its] = butlerAt(world, index)
      if (what === 'lock') its.token = freshToken(world, one.id)
      world.late = { by: one.id, what, token: its.token ?? '', flag: its.more }
      if (protocol.has('letGoUnanswered') || what === 'lock') return leave(world, one, { tell: false })
      queue(world, its)
    })
  }
  /** A commit, and one whose answer is lost: it is tried again, and settled by the row. */
  const transaction = (
    what: string,
    rule: (world: World, process: Process, butler: Butler) => Said,
    next: (world: World, process: Process, butler: Butler, said: Said) => void,
  ) => {
    move(what, (world, one, its) => {
      const { doubt } = its
      its.doubt = undefined
      const said = doubt?.fresh && protocol.has('settleByComparing') ? doubt.said : rule(world, one, its)
      next(world, one, its, said)
    })
    if (butler.doubt) return
    moves.fault('lost commit', `${what} is not answered`, (world) => {
      const [one, its] = butlerAt(world, index)
      const { row: before } = world
      const said = rule(world, one, its)
      if (world.row === before) return false
      its.doubt = { fresh: true, before, row: world.row, said }
    })
  }

  switch (butler.at) {
    case 'line':
      move('serve', (_world, _one, its) => serve(its))
      break
    case 'busy':
      command('busy', (world, one, its) => {
        its.confirmed = redis.toBusy(world, its.token ?? '')
        const { said } = its
        Object.assign(its, { said: undefined, back: undefined })
        if (!its.confirmed) return void Object.assign(its, { at: 'lock', token: undefined, owned: false })
        its.judging = undefined
        if (said) meet(world, one, its, said)
        else lookAtRow(its)
      })
      // Asked at the same time as the lock: without its answer, only what must not run may be finished.
      if (butler.said || butler.back !== 'idle') break
      move('start early', (world, _one, its) => {
        const confirmed = its.confirmed && !protocol.has('earlyStartWaits')
        const said = startRule(world, { ...its, confirmed }, protocol)
        if (said.outcome === 'unheld') return false
        its.said = said
      })
      break
    case 'lock':
      command('lock', (world, one, its) => {
        Object.assign(its, { token: freshToken(world, one.id), owned: false, confirmed: false, late: false })
        const holder = redis.acquire(world, its.token ?? '', protocol.has('idleIsFree'))
        if (holder === undefined) return void (its.at = 'row')
        const owner = processOf(tokenOf(holder))
        if ((owner === one.id && protocol.has('ownLeftover')) || one.buried.includes(owner))
          return void Object.assign(its, { at: 'oust', holder })
        its.token = undefined
        if (owner !== one.id) wake(world, [owner])
        leave(world, one, { tell: false })
      })
      break
    case 'oust':
      if (!hasReleased(from, process)) break
      move('swap', (world, one, its) => {
        if (redis.swap(world, its.holder ?? '', its.token ?? '')) its.at = 'row'
        else {
          its.token = undefined
          leave(world, one, { tell: false })
        }
        its.holder = undefined
      })
      break
    case 'row':
      transaction('acquire', acquireRule(protocol), (world, one, its, said) => {
        its.judging = undefined
        if (said.outcome === 'acquired')
          return void Object.assign(its, { at: 'recover', owned: true, confirmed: !its.late })
        if (said.outcome === 'refused') one.contest = said.turn
        leave(world, one, { tell: said.outcome === 'late' })
      })
      // The call gives up; what it sent may still be done, and then names a token that nobody holds.
      moves.fault('lost commit', 'acquire gives up', (world) => {
        const [one, its] = butlerAt(world, index)
        if (acquireRule(protocol)(world, one, its).outcome !== 'acquired') return false
        leave(world, one, { tell: protocol.has('giveUpTells') })
      })
      break
    case 'recover':
      if (!hasReleased(from, process)) break
      if (butler.late) move('leaves: late', (world, one) => leave(world, one, { tell: true }))
      move('recover', (world, _one, its) => {
        if (redis.recover(world, its.token ?? '')) return lookAtRow(its)
        Object.assign(its, { at: 'verify', back: 'start', confirmed: false })
      })
      break
    case 'start':
      if (process.draining !== 'no' && !butler.doubt) {
        move('leaves: draining', (world, one) => leave(world, one, { tell: true }))
        break
      }
      transaction('start', (world, _one, its) => startRule(world, its, protocol), meet)
      break
    case 'begin':
      move('begin', (_world, one, its) => {
        Object.assign(its, {
          at: 'turn',
          turn: its.said?.turn,
          said: undefined,
          noted: false,
          signal: undefined,
        })
        if (protocol.has('heedBeforeHandler')) heed(its, 0)
        if (one.draining === 'handover') its.signal ??= 'handover'
      })
      moves.fault('error', 'fails after its start', (world) => {
        const [one, its] = butlerAt(world, index)
        world.excused = world.run === its.said?.turn?.run
        leave(world, one, { tell: true })
      })
      break
    case 'turn':
      turnMoves(moves, index, process, butler)
      break
    case 'finish':
      if (butler.ends === 'handed_over' && !protocol.has('handOverFirst')) {
        move('leaves: handed over', (world, one) => leave(world, one, { tell: true }))
        break
      }
      for (const goesOn of from.crowded ? [true, false] : [true])
        transaction(
          goesOn ? 'finish' : 'finish, others wait',
          finishRule(protocol, goesOn),
          (world, one, its, said) => {
            if (said.outcome === 'lost') return leave(world, one, { tell: true })
            Object.assign(its, { at: 'ended', said })
          },
        )
      break
    case 'ended': {
      const end = (world: World, one: Process, its: Butler) => {
        its.turn = undefined
        if (its.successor === undefined) return goOn(world, one, its)
        Object.assign(its, { at: 'succeed', holder: its.token, token: its.successor, successor: undefined })
        if (!protocol.has('lockFollows')) goOn(world, one, Object.assign(its, { holder: undefined }))
      }
      const takeAlong = butler.said?.next?.outcome === 'started'
      move(takeAlong ? 'takeAlong' : 'ended', (world, one, its) => {
        if (takeAlong) redis.advance(world, its.token ?? '', true)
        end(world, one, its)
      })
      if (takeAlong && !from.late)
        moves.fault('late command', 'takeAlong is not answered', (world) => {
          const [one, its] = butlerAt(world, index)
          world.late = { by: one.id, what: 'advance', token: its.token ?? '', flag: true }
          end(world, one, its)
        })
      break
    }
    case 'succeed':
      move('swap to the new token', (world, one, its) => {
        const swapped = redis.swap(world, its.holder ?? '', its.token ?? '')
        its.holder = undefined
        if (!swapped) return void Object.assign(its, { at: 'verify', back: 'ended' })
        its.confirmed = true
        goOn(world, one, its)
      })
      break
    case 'verify':
      if (process.renewal === undefined && hasReleased(from, process))
        move('verify', (world, one, its) => {
          renew(world, one, its, protocol, true)
          if (one.renewal === undefined) resume(world, one)
        })
      break
    case 'rest':
      if (process.draining !== 'no') {
        move('leaves: draining', (world, one, its) => leave(world, one, { tell: its.more }))
        break
      }
      command('advance', (world, one, its) => {
        const step = redis.advance(world, its.token ?? '', its.more, !protocol.has('ownerOnlyAdvance'))
        if (step === 'lost') return void Object.assign(its, { at: 'verify', back: 'rest', confirmed: false })
        if (step === 'idle') return void Object.assign(its, { at: 'rested', confirmed: false })
        // A reference to something finished is left over: look again.
        if (step === 'empty' || its.more || step > its.doneSeq) place(world, one, its, 'line')
      })
      break
    case 'rested':
      move('rests', (world, one, its) => place(world, one, its, 'idle'))
      break
    case 'idle':
      break
    case 'backoff':
      if (from.row.retryInMs === null) move('back-off is over', (world, _one, its) => queue(world, its))
      break
  }
}
