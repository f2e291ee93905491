// Rules for what producers were told. I1 what is there was sent, and what was refused is not there · I6 once · I10 errors
// have the codes that the call may fail with, for a reason, and in time.
import { about, recoveryMs } from './excuses.ts'
import { CONNECTION_LOST } from './http-speaker.ts'
import { type Call, groupBy, text } from './record.ts'
import { type Case, SLACK_MS, type Times, type World } from './world.ts'

/** A message is what its call sent, and exists once. */
export function origins({ facts, calls }: World): Case[] {
  const byMark = groupBy(calls, ({ session, mark }) => `${session} ${mark}`)
  const rows = groupBy(facts.messages, ([place, { payload }]) => {
    return `${place.split(' ')[0]} ${(payload as { mark?: string }).mark}`
  })
  const messages = [...rows].map(([name, found]): Case => {
    const [session = '', mark] = name.split(' ')
    const made = byMark.get(name) ?? []
    const seqs = found.map(([place]) => place.split(' ')[1])
    const first = made.filter(({ outcome, fields }) => outcome === 'ok' && fields['duplicate'] === false)
    const say = (what: string) => ({ problem: `${session}: ${what}` })
    if (found.length > 1) return say(`I6: ${mark} is ${found.length} messages: ${seqs.join(', ')}`)
    if (made.every(({ outcome }) => outcome === 'failed'))
      return say(`I1: message ${seqs[0]} is there although every call for ${mark} was refused`)
    if (first.length > 1)
      return say(`I6: ${first.length} calls for ${mark} were told that they were the first`)
    return {}
  })
  const answers = calls.flatMap(({ name, session, seq, mark, outcome, call }): Case[] => {
    if (name !== 'enqueue' || outcome !== 'ok') return []
    const row = facts.messages.get(`${session} ${seq}`)
    if ((row?.payload as { mark?: string } | undefined)?.mark === mark) return [{}]
    return [{ problem: `${session}: I1: call ${call} was told message ${seq}, which is not the one it sent` }]
  })
  return [...messages, ...answers]
}

const UNAVAILABLE = ['MYSQL_UNAVAILABLE', 'OUTCOME_UNKNOWN']
const REFUSALS: Readonly<Record<string, readonly string[]>> = {
  enqueue: ['QUEUE_FULL'],
  stop: ['SESSION_NOT_FOUND'],
  withdraw: ['NOT_WITHDRAWABLE'],
}

/** A call fails as it may; for want of the database, or of a server, only when something is broken. */
export const codes = (world: World): Case[] =>
  world.calls.map((call): Case => {
    const { name, session, outcome, whenBusy, from, to = from, fields } = call
    const code = text(fields['code'])
    const said = `${session}: I10: call ${call.call} (${name}) failed with ${code}`
    const isLost = code === CONNECTION_LOST
    // Another process that hangs may hold the row; one that ends holds nothing, but takes its connections along.
    const excused = about(world, {
      from: world.wallMs(from),
      // The end of a process is known to its clients before it is to the rig.
      to: world.wallMs(to) + (isLost ? SLACK_MS : 0),
      afterMs: recoveryMs(world),
    }).some(
      ({ gentle, session: keys, name: kind }) =>
        !gentle && keys === undefined && (kind !== 'crash' || isLost),
    )
    if (outcome !== 'failed' && outcome !== 'unknown') return { excused }
    if (isLost || UNAVAILABLE.includes(code ?? ''))
      return { excused, problem: excused ? undefined : `${said} with nothing broken` }
    const refusals = [...(REFUSALS[name] ?? []), ...(whenBusy === 'reject' ? ['SESSION_BUSY'] : [])]
    return { excused, problem: refusals.includes(code ?? '') ? undefined : said }
  })

const NOTIFY_MS = 500

/** What its calls may take; a stop is followed by a read of the transcript, a withdrawal by one of the message. */
const limitMs = ({ enqueueMs, mysqlMs }: Times, name: string): number =>
  enqueueMs + NOTIFY_MS + (name === 'enqueue' ? 0 : mysqlMs * 2) + SLACK_MS

/** Every call ends, and in time, unless its producer was frozen or killed. */
export const deadlines = (world: World): Case[] =>
  world.calls.map(({ call, name, session, from, to }) => {
    const ms = to === undefined ? Infinity : (to - from) / 1e6
    const excused = about(world, { from: world.wallMs(from), to: world.wallMs(to ?? Infinity) }).some(
      (fault) => fault.name.startsWith('producer-') && [...fault.processes].some((desk) => isAt(call, desk)),
    )
    const late = ms > limitMs(world.times, name) && !excused
    return {
      excused,
      problem: late ? `${session}: I10: call ${call} (${name}) ended after ${Math.round(ms)} ms` : undefined,
    }
  })

/** Calls are called after the producer: its desk and its generation there. */
const isAt = (call: string, desk: string) => call.startsWith(`${desk}g`)

/** Who withdrew a message was told the truth. */
export function withdrawals({ facts, calls }: World): Case[] {
  const taken = calls.filter(({ name, outcome }) => name === 'withdraw' && outcome === 'ok')
  return taken.map(({ session, seq, call }: Call) => {
    const ends = facts.entries.get(session)?.filter((one) => one.seq === seq && one.type === 'turn_ended')
    const outcome = ends?.at(-1)?.outcome
    if (outcome === 'withdrawn') return {}
    return { problem: `${session}: I1: message ${seq} ended as ${outcome} although ${call} had withdrawn it` }
  })
}
