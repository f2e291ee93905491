// Rules for waiting (I8): nothing waits without a reason, neither for its first start nor for its next.
import { about, patience } from './excuses.ts'
import { type Case, CLOCK_MS, SLACK_MS, type World } from './world.ts'

/** Of a turn that is run again after a failure: the longest wait before it. */
const RETRY_MS = 200

/** A message begins soon after it was accepted and the one before it has its final state. */
export function lateness(world: World): Case[] {
  const { facts, calls, turns, times, wallMs } = world
  const acceptedAt = new Map<string, number>(
    calls.flatMap(({ name, outcome, session, seq, to }) =>
      name === 'enqueue' && outcome === 'ok' && to !== undefined
        ? [[`${session} ${seq}`, wallMs(to)] as const]
        : [],
    ),
  )
  const last = new Map(turns.map((turn) => [`${turn.session} ${turn.seq}`, turn]))
  const first = new Map(turns.toReversed().map((turn) => [`${turn.session} ${turn.seq}`, turn]))
  return [...facts.messages.keys()].flatMap((place): Case[] => {
    const [session = '', number] = place.split(' ')
    const seq = Number(number)
    const accepted = acceptedAt.get(place)
    const before = last.get(`${session} ${seq - 1}`)
    const entries = facts.entries.get(session) ?? []
    const begun = entries.find((one) => one.seq === seq)?.at
    if (accepted === undefined || begun === undefined) return []
    const free = entries.findLast((one) => one.seq === seq - 1 && one.type === 'turn_ended')?.at ?? 0
    const since = Math.max(accepted, free)
    const processes = [before?.process, first.get(place)?.process].filter((one) => one !== undefined)
    const boundMs = times.sweepMs * 2 + SLACK_MS
    const allowed = patience(world, { session, since, until: begun, processes, boundMs })
    const waited = Math.round(begun - since)
    const late = waited > allowed.boundMs
    const problem = late ? `${session}: I8: message ${seq} waited ${waited} ms without a reason` : undefined
    return [{ excused: allowed.excused, problem }]
  })
}

/** A turn that did not end for good is run again soon: after its end, or after what was done to its process. */
export function restarts(world: World): Case[] {
  const { turns, times, wallMs } = world
  const next = new Map(turns.map((turn) => [`${turn.session} ${turn.seq}.${turn.attempt}`, turn]))
  return turns.flatMap(({ session, seq, attempt, process, startedAt, endedAt, outcome }): Case[] => {
    const again = next.get(`${session} ${seq}.${attempt + 1}`)
    if (!again) return []
    const causes = about(world, { from: startedAt, to: endedAt }).filter(({ processes }) =>
      processes.has(process),
    )
    const ended = causes.filter(({ name }) => name === 'worker-kill' || name === 'crash')
    const from = Math.max(...(ended.length > 0 ? ended : causes).map((cause) => wallMs(cause.from)))
    const since = outcome === 'lost' && causes.length > 0 ? Math.max(startedAt, from) : endedAt
    // Of a process that stands still it is known only when its lock has run out and it has not come back for it.
    const lostMs = ended.length > 0 ? times.ttlMs : times.ttlMs * 2
    const boundMs = times.sweepMs * 2 + SLACK_MS + (outcome === 'lost' ? lostMs : RETRY_MS)
    const processes = again.process === process ? [] : [again.process]
    const allowed = patience(world, { session, since, until: again.startedAt, processes, boundMs, causes })
    const waited = Math.round(again.startedAt - since)
    const late = waited > allowed.boundMs + CLOCK_MS
    const said = `${session}: I8: turn ${seq}.${attempt + 1} started ${waited} ms after ${process} had ${outcome === 'lost' ? 'lost' : 'left'} it`
    return [{ excused: allowed.excused, problem: late ? said : undefined }]
  })
}
