// One race: a session is sent messages, stopped in some way or other, and sent more, all at moments that the dice choose,
// while worker processes claim it, die and leave. What the calls answered is noted down, and with each stop the end of
// the transcript just after it had returned: whatever starts behind that has started after the stop.
import { setTimeout as sleep } from 'node:timers/promises'
import { ButlerError, type Client, type StopOptions, type StopReceipt } from '../../src/index.ts'
import { monotonicNs } from '../support/history.ts'
import type { Script } from '../support/probe-handler.ts'
import type { Dice } from '../torture/dice.ts'

/** In monotonic nanoseconds, as the history's lines. */
interface Span {
  readonly from: number
  readonly to: number
}

export interface SentCall extends Span {
  readonly seq: number
  readonly position: number
  /** It stopped everything before it; the transcript's head after it had returned. */
  readonly interrupt?: { readonly head: number }
}

export interface StopCall extends Span {
  readonly asked: Pick<StopOptions, 'through' | 'turn' | 'waitMs'>
  readonly receipt: StopReceipt
  readonly head: number
}

export interface Race {
  readonly session: string
  readonly sent: readonly SentCall[]
  readonly stops: readonly StopCall[]
  /** Codes of stops that were refused: nothing happened. */
  readonly refused: readonly string[]
  /** Calls whose outcome nobody knows: what they may have done cannot be judged. */
  readonly unknown: readonly string[]
}

export interface Clients {
  readonly usual: readonly Client[]
  /** Nothing that it publishes is heard by anybody. */
  readonly unheard: Client
}

const LAST = Number.MAX_SAFE_INTEGER

export async function playRace({ usual, unheard }: Clients, session: string, dice: Dice): Promise<Race> {
  const sent: SentCall[] = []
  const stops: StopCall[] = []
  const refused: string[] = []
  const unknown: string[] = []
  const headOf = async () => (await usual[0]!.transcript(session, { after: LAST })).head
  const attempt = async (what: string, call: () => Promise<void>) => {
    try {
      await call()
    } catch (error) {
      if (!(error instanceof ButlerError)) throw error
      if (error.code === 'NOT_RUNNING' || error.code === 'MESSAGE_NOT_FOUND') refused.push(error.code)
      else unknown.push(`${what}: ${error.code}`)
    }
  }
  const send = (client: Client, payload: Script, interrupt: boolean) =>
    attempt('enqueue', async () => {
      const from = monotonicNs()
      const whenBusy = interrupt ? 'interrupt' : 'enqueue'
      const { seq, position } = await client.enqueue(session, { payload }, { whenBusy })
      const call = { seq, position, from, to: monotonicNs() }
      sent.push(interrupt ? { ...call, interrupt: { head: await headOf() } } : call)
    })
  const stop = (client: Client, asked: StopCall['asked']) =>
    attempt('stop', async () => {
      const from = monotonicNs()
      const receipt = await client.stop(session, asked)
      stops.push({ asked, receipt, from, to: monotonicNs(), head: await headOf() })
    })

  // Everything is thrown beforehand, so that a seed means the same whatever the machine is doing.
  const steps = Array.from({ length: dice.between(2, 6) }, (_, index) => {
    const client = dice.pick(usual)
    const afterMs = pauseOf(dice)
    const stopping = { client: dice.chance(0.1) ? unheard : client, asked: scopeOf(dice) }
    const sending = { script: scriptOf(dice), interrupt: dice.chance(0.15) }
    const isStop = index === 0 || dice.chance(0.5)
    return async () => {
      await sleep(afterMs)
      return isStop ? stop(stopping.client, stopping.asked) : send(client, sending.script, sending.interrupt)
    }
  })
  const first = Array.from({ length: dice.between(1, 3) }, () => scriptOf(dice))
  for (const script of first) await send(dice.pick(usual), script, false)
  await Promise.all(steps.map((step) => step()))
  await send(dice.pick(usual), { do: 'echo' }, false)
  return { session, sent, stops, refused, unknown }
}

/** From at once to after a turn or two; most within the time that a claim and a start take. */
const pauseOf = (dice: Dice): number => dice.between(0, dice.pick([0, 3, 10, 30, 80, 300]))

function scopeOf(dice: Dice): StopCall['asked'] {
  const waitMs = dice.pick([0, 0, 20, 10_000, 10_000])
  const { scope } = dice.weighted([
    { weight: 5, scope: {} },
    { weight: 2, scope: { through: dice.between(1, 4) } },
    { weight: 2, scope: { turn: 'running' as const } },
    { weight: 1, scope: { turn: dice.between(1, 3) } },
  ])
  return { ...scope, waitMs }
}

function scriptOf(dice: Dice): Script {
  const { script } = dice.weighted<{ weight: number; script: Script }>([
    { weight: 3, script: { do: 'echo' } },
    { weight: 4, script: { do: 'sleep', ms: dice.between(1, 100) } },
    { weight: 2, script: { do: 'sleep', ms: dice.between(200, 1500) } },
    { weight: 2, script: { do: 'steps', count: 2, ms: dice.between(0, 30) } },
    { weight: 1, script: { do: 'fail', times: 1 } },
    { weight: 1, script: { do: 'deaf', ms: 700 } },
  ])
  return script
}
