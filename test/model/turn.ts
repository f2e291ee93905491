// A turn in the model: its start, its handler, its end, and the acquisition before it. src/session/hold.ts, turn.ts and
// turn-end.ts; the rules are those of src/protocol.
import type { Ending, StartLimits } from '../../src/protocol/turn-rules.ts'
import { butlerAt, type Moves } from './moves.ts'
import { addStray, leave } from './registry.ts'
import type { Protocol } from './rules.ts'
import { commit, freshToken, nameRunning, NOTES_FROM } from './stores.ts'
import type { Butler, Process, Said, World } from './world.ts'

const MAX_FAILURES = 2

const limits = (confirmed: boolean): StartLimits => ({
  maxStarts: 20,
  maxCrashes: 3,
  version: 1,
  runs: () => true,
  maySuspect: () => true,
  holdsLock: () => confirmed,
})

export function turnMoves(moves: Moves, index: number, process: Process, butler: Butler): void {
  const { from, protocol } = moves
  const { turn, signal, noted } = butler
  if (!turn) return
  const note = (world: World) =>
    commit(world, { as: 'turn', run: turn.run }, (draft) => protocol.append(draft, turn, NOTES_FROM)).outcome
  if (!noted && !signal) {
    moves.add('append', (world) => {
      const [one, its] = butlerAt(world, index)
      if (note(world) === 'lost') leave(world, one, { tell: true })
      else its.noted = true
    })
    moves.fault('lost commit', 'append is not answered', (world) => note(world) === 'appended' && undefined)
  }
  const end = (world: World, ends: Butler['ends']) =>
    void Object.assign(butlerAt(world, index)[1], { at: 'finish', ends })
  if (signal) {
    const ends = signal === 'handover' ? 'handed_over' : 'stopped'
    moves.add('handler heeds its signal', (world) => end(world, ends))
    moves.fault('detach', 'handler ignores its signal', (world) => {
      end(world, ends)
      addStray(world, turn)
      if (ends === 'stopped') butlerAt(world, index)[1].successor = freshToken(world, process.id)
    })
    return
  }
  const untold = from.row.stopSeq >= turn.seq
  moves.add('handler returns', (world) => end(world, 'completed'), untold ? 'luck' : 'step')
  // What it left behind may still try to write.
  moves.fault('throw', 'handler throws', (world) => {
    end(world, 'threw')
    addStray(world, turn)
  })
}

export function startRule(
  world: World,
  { token = '', confirmed, stopSeq }: Butler,
  protocol: Protocol,
): Said {
  const writer = { as: 'owner', token } as const
  return said(
    world,
    commit(world, writer, (draft) => protocol.start(draft, token, limits(confirmed), stopSeq)),
  )
}

/** What was said, with the run that has just begun. */
function said(world: World, { outcome, ...rest }: { outcome: string; doneSeq?: number }): Said {
  return { outcome, doneSeq: rest.doneSeq ?? 0, turn: outcome === 'started' ? nameRunning(world) : undefined }
}

export const acquireRule =
  (protocol: Protocol) =>
  (world: World, _process: Process, { token = '', late, judging }: Butler): Said => {
    const { outcome } = commit(world, { as: 'owner', token }, (draft) => {
      if (late) return { outcome: 'late' as const }
      if (judging) protocol.evict(draft, judging, 'hung')
      return protocol.acquire(draft, token)
    })
    return { outcome, turn: outcome === 'refused' ? nameRunning(world) : undefined }
  }

export const finishRule =
  (protocol: Protocol, goesOn: boolean) =>
  (
    world: World,
    { draining }: Process,
    { turn, ends, successor, token = '', confirmed, stopSeq }: Butler,
  ): Said => {
    if (!turn) return { outcome: 'lost' }
    const next = goesOn && draining === 'no' && (ends === 'completed' || ends === 'threw')
    let begun: ReturnType<Protocol['start']> | undefined
    let as = ''
    const finished = commit(
      world,
      { as: 'turn', run: turn.run },
      (draft) => {
        const ending = endingOf(ends, draft.row.failures, draft.row.stopSeq >= turn.seq)
        const result = protocol.finish(draft, turn, ending, successor)
        as = ending.as
        const more = result.outcome === 'finished' && result.doneSeq < result.inboxSeq
        if (next && more && as !== 'retrying')
          begun = protocol.start(draft, token, limits(confirmed), stopSeq)
        return result
      },
      next && world.row.doneSeq + 2 <= world.row.inboxSeq,
    )
    if (finished.outcome === 'lost') return { outcome: 'lost' }
    const { doneSeq, inboxSeq } = finished
    return { outcome: 'finished', as, more: inboxSeq > doneSeq, doneSeq, next: begun && said(world, begun) }
  }

function endingOf(ends: Butler['ends'], failures: number, stopped: boolean): Ending {
  if (ends === 'threw' && failures + 1 >= MAX_FAILURES) return { as: 'failed', error: '{}' }
  if (ends === 'threw') return stopped ? { as: 'stopped' } : { as: 'retrying', error: '{}', delayMs: 1 }
  if (ends === 'completed') return { as: 'completed', entries: [] }
  return ends === 'handed_over' ? { as: 'handed_over' } : { as: 'stopped' }
}
