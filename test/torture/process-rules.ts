// Rules for processes: nobody ends by itself, except with a message that is meant to take its process down, and nothing
// stays behind in the lists of a session without a fault that kept somebody from clearing it.
import { about, isOf, recoveryMs } from './excuses.ts'
import { leftInOrder, text } from './record.ts'
import { type Case, SLACK_MS, type World } from './world.ts'

export function ends(world: World): Case[] {
  const { facts, history } = world
  const isBomb = (session: string | undefined, seq: number | undefined) =>
    (facts.messages.get(`${session} ${seq}`)?.payload as { do?: string } | undefined)?.do === 'bomb'
  const bombed = (process: string | undefined) =>
    history.some(
      (line) => line.what === 'start' && line.process === process && isBomb(line.session, line.seq),
    )
  return history.flatMap(({ what, name = '', reason, ns, fields = {} }): Case[] => {
    const process = text(fields['process'])
    const excusedFor = (ms: number) =>
      about(world, { from: world.wallMs(ns) - ms, to: world.wallMs(ns), afterMs: SLACK_MS }).some(
        (fault) => !fault.gentle && fault.session === undefined && fault.name !== 'worker-drain',
      )
    switch (what) {
      case 'crashed':
        return [{ problem: `: I10: ${reason}` }]
      case 'ended': {
        if (fields['asked'] === 'kill' || leftInOrder(name, fields)) return [{}]
        if (name === 'SIGABRT' && bombed(process)) return [{}]
        // A server leaves when its grace is over, whatever it has not got rid of.
        if (fields['asked'] === 'terminate' && name === '1' && isHeldUp(world, process, ns))
          return [{ excused: true }]
        return [{ problem: `: I10: worker ${process} ended by itself (${name}): ${text(fields['log'])}` }]
      }
      case 'overdue': {
        const ms = Number(fields['ms'])
        const said = `: I10: worker ${process} had not left ${ms} ms after it was asked to: ${text(fields['log'])}`
        const excused = excusedFor(ms)
        return [{ excused, problem: excused ? undefined : said }]
      }
      case 'unstarted': {
        const excused = excusedFor(Number(fields['ms']))
        return [{ excused, problem: excused ? undefined : `: I10: with nothing broken: ${reason}` }]
      }
      default:
        return []
    }
  })
}

/** Longer than a server takes to leave. */
const GRACE_MS = 6000

/** Whether something kept a process that was leaving from a store. */
const isHeldUp = (world: World, process: string | undefined, ns: number): boolean =>
  about(world, { from: world.wallMs(ns) - GRACE_MS, to: world.wallMs(ns), afterMs: SLACK_MS }).some(
    (fault) =>
      isOf(fault, 'redis') ||
      isOf(fault, 'mysql') ||
      (fault.name !== 'crash' && fault.costs === 'target' && fault.processes.has(process ?? '')),
  )

/**
 * A reference is cleared by the turn of its message, or by the wake that follows it. It stays only when it came after the
 * one and the other was lost, or when Redis went back in time: something happened between the message and its end, or
 * the last call for it. A repeat with its key leaves a reference, too, long after its turn perhaps. What a process had
 * taken stays only if it died, or could not reach Redis.
 */
export function leftovers(world: World): Case[] {
  const { facts, history, calls } = world
  const stays = history.filter(({ what }) => what === 'stays')
  return [...new Map(stays.map((line) => [`${line.session} ${line.name}`, line])).values()].map(
    ({ session = '', name = '', fields }): Case => {
      const seq = Number.parseInt(name, 10)
      const { at: from = 0, payload } = facts.messages.get(`${session} ${seq}`) ?? {}
      const { mark } = Object(payload) as { mark?: string }
      const own = calls.filter((call) => call.session === session && mark !== undefined && call.mark === mark)
      const end = facts.entries.get(session)?.findLast((one) => one.seq === seq)?.at ?? from
      const to = Math.max(end, ...own.map((call) => world.wallMs(call.to ?? call.from)))
      const isTaken = fields?.['list'] === 'processing'
      const excused = about(world, { from, to, afterMs: recoveryMs(world) }).some(
        (fault) => !isTaken || (!fault.gentle && (fault.session ?? session) === session),
      )
      const said = `${session}: I9: its ${text(fields?.['list'])} still holds ${name}, and nothing had been broken`
      return { excused, problem: excused ? undefined : said }
    },
  )
}
