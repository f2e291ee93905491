// One crash point: a life is played, its worker is killed at one reply, somebody takes over, and in the end everything
// must be final and the checker must find nothing.
import type { Entry } from '../../src/index.ts'
import { check } from '../support/checker.ts'
import type { Life } from './lives.ts'
import { Stage, type StageOptions } from './stage.ts'
import { type Counts, Tally, type Trap } from './tally.ts'

export type Place = Omit<Trap, 'spring'>

export interface Verdict {
  readonly problems: readonly string[]
  /** What the reply was an answer to; undefined: the life was over before. */
  readonly request: string | undefined
  /** Replies until everything was final. */
  readonly replies: Counts
  /** From the kill until everything was final, milliseconds. */
  readonly finalMs: number
  /** What happened, if there are problems. */
  readonly story: readonly string[]
}

/** What a worker may do with a reply while nobody hears what it says, milliseconds. */
const LAST_WORDS_MS = 25

/** Without `place` nobody is killed. */
export async function playPoint(options: StageOptions, place?: Place): Promise<Verdict> {
  const { life } = options
  const stage = await Stage.open(options)
  const problems: string[] = []
  let killed: { request: string; at: number } | undefined
  let relief: Promise<unknown> | undefined
  let over = false
  const kill = (request: string) => {
    killed = { request, at: performance.now() }
    stage.deaths += 1
    stage.mute()
    if (place?.when === 'before') stage.victim.kill()
    else setTimeout(() => stage.victim.kill(), LAST_WORDS_MS)
  }
  const count = () => stage.tally.reset(place && { ...place, spring: kill })
  void stage.victim.exited.then((end) => {
    if (over) return
    if (!['SIGKILL', '0'].includes(end))
      problems.push(`The worker ended by itself (${end}): ${stage.victim.log}`)
    relief = stage.relieve().catch((error: unknown) => problems.push(String(error)))
  })
  try {
    await life.before?.(stage)
    if (life.fromStart) count()
    await stage.serve()
    await life.ready?.(stage)
    if (!life.fromStart) count()
    await life.play(stage)
    const replies = stage.tally.counts
    const { deaths } = stage
    await sayGoodbye(stage)
    stage.tally.reset(undefined)
    // Of a worker that dies behind its last turn the lock stays until somebody wants the session.
    if (stage.deaths > deaths) await sayGoodbye(stage)
    await stage.clean()
    const finalMs = performance.now() - (killed?.at ?? Infinity)
    problems.push(...(await judge(stage, options)))
    return { ...(await verdict()), replies, finalMs }
  } catch (error) {
    problems.push(error instanceof Error ? error.message : String(error))
    return await verdict()
  } finally {
    over = true
    await relief
    await stage.close()
  }

  async function verdict(): Promise<Verdict> {
    const story = problems.length > 0 ? await tell(stage) : []
    return { problems, request: killed?.request, replies: new Tally().counts, finalMs: 0, story }
  }
}

/** A session that was served to the end is there for the next message. */
async function sayGoodbye(stage: Stage): Promise<void> {
  const sessions = new Set(stage.accepted.map(({ sessionId }) => sessionId))
  for (const session of sessions) {
    await stage.send({ do: 'echo' }, { session })
    await stage.final(stage.accepted.at(-1)!.seq, session)
  }
}

async function judge(stage: Stage, { life, ground }: StageOptions): Promise<string[]> {
  const { accepted, stops } = stage
  const { mysqlUrl } = ground
  const problems = await check({ mysqlUrl, accepted, stops, history: stage.history() })
  problems.push(...(await repeats(stage, life)))
  const ends = (await entries(stage)).flatMap((one) =>
    one.type === 'turn_ended' ? [{ seq: one.seq, outcome: said(one).outcome }] : [],
  )
  for (const { seq } of accepted.filter(({ sessionId }) => sessionId === 'chat-1')) {
    const { outcome = 'nothing' } = ends.findLast((end) => end.seq === seq) ?? {}
    const allowed = life.ends?.[seq] ?? ['completed']
    if (!allowed.includes(outcome))
      problems.push(`chat-1: message ${seq} ended as ${outcome}, not ${allowed.join(' or ')}`)
  }
  return problems
}

/** What was run again although its handler had not failed must have been in the hands of the process that died. */
async function repeats(stage: Stage, life: Life): Promise<string[]> {
  const survivor = await stage.survivor()
  const broken: string[] = []
  let count = 0
  for (const session of new Set(stage.accepted.map(({ sessionId }) => sessionId))) {
    let started: Entry | undefined
    for (const one of await entries(stage, session)) {
      if (one.type === 'turn_started') started = one
      const { outcome = '' } = one.type === 'turn_ended' ? said(one) : {}
      if (!['lost', 'handed_over'].includes(outcome)) continue
      count += 1
      const turn = `${session}: I4: turn ${one.seq}.${one.attempt} was ${outcome}`
      if (started && said(started).process === survivor)
        broken.push(`${turn}, and nothing had happened to its process`)
      if (outcome === 'handed_over' && !life.drains) broken.push(`${turn}, and nobody drained`)
    }
  }
  const allowed = Math.max(stage.deaths, life.drains ? 1 : 0)
  if (count > allowed)
    broken.push(`I4: ${count} turns were lost or handed over, and at most ${allowed} may be`)
  return broken
}

const said = ({ payload }: Entry) => payload as { outcome?: string; process?: string }

const entries = async (stage: Stage, session = 'chat-1') =>
  (await stage.client.transcript(session, { limit: 1000 })).entries

async function tell(stage: Stage): Promise<string[]> {
  const transcript = (await entries(stage)).map(
    ({ entry, seq, attempt, epoch, type, payload, createdAt }) =>
      `${createdAt} entry ${entry}: ${seq}.${attempt} epoch ${epoch} ${type} ${JSON.stringify(payload).slice(0, 80)}`,
  )
  const lines = stage
    .history()
    .map(({ pid, ns, ...line }) => `${Math.round(ns / 1e6)} ${pid} ${JSON.stringify(line)}`)
  return [...transcript, ...lines.slice(-60)]
}
