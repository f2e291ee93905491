// Rules for how turns and messages end. I1 recorded once, by the handler's own end · I4 stopped only by a stop, failed only
// by the handler, lost only for a reason · I10 a failure has its error.
import type { Entry } from '../support/checker-facts.ts'
import { about, bothSilent, isOf } from './excuses.ts'
import { type Call, groupBy, text } from './record.ts'
import { type Case, CLOCK_MS, type World } from './world.ts'

/** As the system under test is set up. */
const [FAILURES_MAX, CRASHES_MAX, STARTS_MAX] = [3, 3, 20]

interface Script {
  readonly do?: string
  readonly times?: number
}

/** Each end of a message or turn is what somebody asked for, or what its script does. */
export function endings(world: World): Case[] {
  const { facts, calls } = world
  const bySession = groupBy(calls, ({ session }) => session)
  return [...facts.entries].flatMap(([session, entries]) => {
    const own = bySession.get(session) ?? []
    const made = entries.filter(({ type }) => type === 'turn_ended' || type === 'error')
    return made.map((one, index): Case => {
      const { seq, outcome } = one
      const script = (facts.messages.get(`${session} ${seq}`)?.payload as Script | undefined) ?? {}
      const say = (what: string) => ({ problem: `${session}: ${what}` })
      if (one.type === 'error') {
        const before = entries.filter((entry) => entry.seq === seq && entry.entry < one.entry)
        const isFinal = made[index + 1]?.outcome === 'failed'
        const wrong = wrongError(world, one, { script, before, isFinal })
        return wrong ? say(`I4: message ${seq} (${script.do}) ${wrong}`) : {}
      }
      if (outcome === 'missing') return say(`I1: message ${seq} ended as missing`)
      if (outcome === 'stopped' && !own.some((call) => mayStop(call, seq)))
        return say(`I4: message ${seq} was stopped although nobody had asked for it`)
      const taken = own.filter(
        ({ name, fields }) => name === 'withdraw' && Number(fields['seq'] ?? seq) === seq,
      )
      if (outcome === 'withdrawn' && taken.every((call) => call.outcome === 'failed'))
        return say(`I4: message ${seq} was withdrawn although nobody had asked for it`)
      const error = made[index - 1]
      if ((outcome === 'failed' || outcome === 'retrying') && !isErrorOf(error, one))
        return say(`I10: message ${seq} ended as ${outcome} without its error`)
      return {}
    })
  })
}

/** What is wrong with an error, if anything: only some scripts throw, and giving up has its conditions. */
function wrongError(
  world: World,
  error: Entry,
  { script, before, isFinal }: { script: Script; before: readonly Entry[]; isFinal: boolean },
): string | undefined {
  const count = (type: string, outcome?: string, verdict?: string) =>
    before.filter(
      (one) =>
        one.type === type && one.outcome === outcome && (!verdict || one.payload?.['verdict'] === verdict),
    ).length
  switch (text(error.payload?.['code'])) {
    case 'COUNTED_OUT': {
      const [deaths, starts] = [count('turn_ended', 'lost', 'dead'), count('turn_started')]
      if (deaths >= CRASHES_MAX || starts >= STARTS_MAX) return undefined
      return `was counted out after ${deaths} deaths and ${starts} starts`
    }
    case 'TURN_TIMEOUT': {
      const began = before.findLast(({ type }) => type === 'turn_started')?.at ?? error.at
      const ranMs = error.at - began
      if (ranMs < world.times.turnTimeoutMs - CLOCK_MS) return `timed out after ${Math.round(ranMs)} ms`
      const faults = about(world, { from: began, to: error.at }).filter(
        ({ gentle, session }) => !gentle && !session,
      )
      return script.do === 'hang' || faults.length > 0 ? undefined : 'timed out although it does not hang'
    }
    default: {
      if (script.do !== 'fail' || error.attempt > (script.times ?? Infinity))
        return `failed with ${JSON.stringify(error.payload)}`
      const strikes = count('turn_ended', 'retrying') + 1
      return isFinal && strikes < FAILURES_MAX ? `was given up at failure ${strikes}` : undefined
    }
  }
}

const isErrorOf = (error: Entry | undefined, end: Entry) =>
  error?.type === 'error' && error.seq === end.seq && error.attempt === end.attempt

/** Whether the call may have raised the tombstone over `seq`. */
function mayStop({ name, outcome, seq: own, fields, whenBusy }: Call, seq: number): boolean {
  if (outcome === 'failed') return false
  if (name === 'stop') return outcome !== 'ok' || Number(fields['through']) >= seq
  return name === 'enqueue' && whenBusy === 'interrupt' && (outcome !== 'ok' || (own ?? 0) > seq)
}

/** A turn ends as itself; what is completed has been handled to its end, in that attempt, and has one reply. */
export function completions({ facts, history }: World): Case[] {
  const handled = new Set(
    history.flatMap(({ what, session, seq, attempt }) =>
      what === 'end' ? [`${session} ${seq}.${attempt}`] : [],
    ),
  )
  return [...facts.entries].flatMap(([session, entries]) => {
    let open: Entry | undefined
    return entries.flatMap((one): Case[] => {
      const started = open
      if (one.type === 'turn_started') open = one
      if (one.type !== 'turn_ended') return []
      open = undefined
      const [name, say] = [
        `${one.seq}.${one.attempt}`,
        (problem: string) => [{ problem: `${session}: ${problem}` }],
      ]
      if (started && (started.seq !== one.seq || started.attempt !== one.attempt))
        return say(`I3: turn ${started.seq}.${started.attempt} ended as ${name}`)
      if (one.outcome !== 'completed') return [{}]
      if (!handled.has(`${session} ${name}`))
        return say(`I1: turn ${name} is completed, and no handler had come to its end`)
      const replies = entries.filter(({ type, seq }) => type === 'reply' && seq === one.seq)
      if (replies.length !== 1 || replies[0]?.attempt !== one.attempt)
        return say(`I4: message ${one.seq} is completed with ${replies.length} replies`)
      return [{}]
    })
  })
}

/** Whose signal has fired writes nothing any more. */
export const writes = ({ history }: World): Case[] =>
  history.flatMap(({ what, session, seq, attempt }): Case[] => {
    if (what === 'refused') return [{}]
    if (what !== 'wrote') return []
    return [{ problem: `${session}: I3: turn ${seq}.${attempt} wrote after its signal had fired` }]
  })

/** A turn is lost only for a reason. Of every turn it is asked whether it could have been. */
export function losses(world: World): Case[] {
  return world.turns.map(({ session, seq, attempt, process, startedAt, endedAt, outcome, verdict }) => {
    const faults = about(world, { from: startedAt, to: endedAt + CLOCK_MS, afterMs: world.times.ttlMs })
    const has = (test: (fault: (typeof faults)[number]) => boolean) => faults.some(test)
    const excused =
      has(({ costs, processes }) => costs === 'all' || (costs === 'target' && processes.has(process))) ||
      // Neither store confirmed it for a TTL.
      bothSilent(faults) ||
      // Its process left, and could not say so.
      (has(({ costs, processes }) => costs === 'handover' && processes.has(process)) &&
        has((fault) => isOf(fault, 'mysql'))) ||
      // The answer to its start was lost, and its process gave up.
      (verdict === 'orphan' && has((fault) => isOf(fault, 'mysql')))
    if (outcome !== 'lost' || excused) return { excused }
    return {
      problem: `${session}: I4: turn ${seq}.${attempt} was taken from ${process} (${verdict}) without a reason`,
    }
  })
}

/** Only a process that drains hands its turns over. */
export function handOvers(world: World): Case[] {
  return world.turns.map(({ session, seq, attempt, process, startedAt, endedAt, outcome }) => {
    const faults = about(world, { from: startedAt, to: endedAt + CLOCK_MS, afterMs: world.times.ttlMs })
    const excused = faults.some(({ costs, processes }) => costs === 'handover' && processes.has(process))
    if (outcome !== 'handed_over' || excused) return { excused }
    return {
      problem: `${session}: I4: turn ${seq}.${attempt} was handed over by ${process}, which did not drain`,
    }
  })
}
