// One crash point: a life is played, its worker is killed at one reply, somebody takes over, and in the end everything
// must be final and the checker must find nothing.
import { check } from '../support/checker.ts'
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
    await sayGoodbye(stage)
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
  const { accepted, stops, deaths } = stage
  const { mysqlUrl } = ground
  const problems = await check({ mysqlUrl, accepted, stops, history: stage.history() })
  const ends = (await entries(stage)).flatMap(({ seq, type, payload }) =>
    type === 'turn_ended' ? [{ seq, outcome: (payload as { outcome: string }).outcome }] : [],
  )
  const lost = ends.filter(({ outcome }) => outcome === 'lost').length
  if (lost > deaths) problems.push(`chat-1: I4: ${lost} turns were lost, but ${deaths} processes died`)
  for (const { seq } of accepted.filter(({ sessionId }) => sessionId === 'chat-1')) {
    const outcome = ends.findLast((end) => end.seq === seq)?.outcome ?? 'nothing'
    const allowed = life.ends?.[seq] ?? ['completed']
    if (!allowed.includes(outcome))
      problems.push(`chat-1: message ${seq} ended as ${outcome}, not ${allowed.join(' or ')}`)
  }
  return problems
}

const entries = async (stage: Stage) => (await stage.client.transcript('chat-1', { limit: 1000 })).entries

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
