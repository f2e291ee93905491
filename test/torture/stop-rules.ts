// Rules for stops (I5): after one has returned, nothing of what it covers starts, and what runs hears of it and ends.
import { about, isOf } from './excuses.ts'
import { groupBy } from './record.ts'
import { type Case, CLOCK_MS, SLACK_MS, type World } from './world.ts'

/** No turn starts after a stop of its message has returned, and a receipt names what ran. */
export function stopped({ calls, turns, wallMs }: World): Case[] {
  const bySession = groupBy(turns, ({ session }) => session)
  return calls.flatMap(({ name, session, outcome, whenBusy, seq = 0, from, to = Infinity, fields, call }) => {
    const through = name === 'stop' ? Number(fields['through']) : whenBusy === 'interrupt' ? seq - 1 : 0
    if (outcome !== 'ok' || fields['duplicate'] === true || through === 0) return []
    const covered = (bySession.get(session) ?? []).filter((turn) => turn.seq <= through)
    const named = covered.find(
      (turn) =>
        name === 'stop' &&
        turn.startedAt < wallMs(from) - CLOCK_MS &&
        turn.endedAt > wallMs(to) + CLOCK_MS &&
        fields['running'] !== turn.seq,
    )
    if (named)
      return [{ problem: `${session}: I5: stop ${call} did not say that message ${named.seq} was running` }]
    const late = covered.filter((turn) => turn.startedAt > wallMs(to) + CLOCK_MS)
    if (late.length === 0) return [{}]
    return late.map((turn) => ({
      problem: `${session}: I5: turn ${turn.seq}.${turn.attempt} started after ${call} had stopped it`,
    }))
  })
}

const HEARD = new Set(['signal', 'end', 'abort', 'threw'])

/** What a stop finds running hears of it soon and ends soon, whatever becomes of notifications: Redis excuses nothing. */
export function heard(world: World): Case[] {
  const { facts, calls, history, turns, times, wallMs } = world
  const lines = groupBy(history, ({ session }) => session)
  const boundMs = times.lookMs * 2 + SLACK_MS
  return calls.flatMap(({ name, session, outcome, to = Infinity, fields: { running }, call }): Case[] => {
    if (name !== 'stop' || outcome !== 'ok' || typeof running !== 'number') return []
    const stopAt = wallMs(to)
    const turn = turns.find((one) => {
      return one.session === session && one.seq === running && one.startedAt <= stopAt && one.endedAt > stopAt
    })
    // It had ended before the answer came.
    if (!turn) return [{}]
    const started = lines
      .get(session)
      ?.findLast((line) => line.what === 'start' && line.seq === running && line.ns < to)
    const hasHeard = lines.get(session)?.some(({ what, seq, attempt, ns }) => {
      return HEARD.has(what) && seq === running && attempt === started?.attempt && ns < to + boundMs * 1e6
    })
    const ended = facts.entries.get(session)?.some((one) => {
      return (
        one.type === 'turn_ended' &&
        one.seq === running &&
        one.at > stopAt - CLOCK_MS &&
        one.at < stopAt + boundMs
      )
    })
    // Whoever was to end it may hold the session's row.
    const excused = about(world, { from: stopAt, to: stopAt + boundMs, afterMs: times.ttlMs }).some(
      (fault) => !fault.gentle && (isOf(fault, 'mysql') || fault.processes.has(turn.process)),
    )
    const say = (what: string) => [
      { excused, problem: excused ? undefined : `${session}: I5: message ${running} ${what} ${boundMs} ms` },
    ]
    if (started && !hasHeard && !ended) return say(`had not heard of stop ${call} after`)
    return ended ? [{ excused }] : say(`had not ended when stop ${call} was older than`)
  })
}
