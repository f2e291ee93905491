/**
 * Judges from the transcripts what became of the messages that were accepted, and whether a promise was broken. Pure:
 * the caller reads the entries.
 */
import type { Entry } from '../index.ts'
import type { Deeds } from './play.ts'

interface Start {
  readonly attempt: number
  readonly process: string
  readonly atMs: number
}

interface End {
  readonly outcome: string
  readonly atMs: number
}

/** One message, as its session's transcript tells it. */
interface Story {
  readonly session: string
  readonly seq: number
  readonly ids: string[]
  readonly starts: Start[]
  /** One for each start, or a single one for a message that never started. */
  readonly ends: End[]
  replies: number
  /** Step key → attempt that finished it. */
  readonly steps: Map<string, number>
  repeatedSteps: number
  /** Call id → its results so far. */
  readonly calls: Map<string, number>
}

export interface Account {
  readonly lines: string[]
  /** What should not have happened; empty when every promise was kept. */
  readonly broken: string[]
}

const FINAL: ReadonlySet<string> = new Set(['completed', 'stopped', 'failed', 'withdrawn', 'missing'])

export function account(transcripts: ReadonlyMap<string, readonly Entry[]>, deeds: Deeds): Account {
  const entries = [...transcripts.values()].flat()
  const stories = [...transcripts].flatMap(([session, list]) => tell(session, list))
  const outcomes = stories.map(({ ends }) => ends.at(-1)?.outcome ?? 'open')
  const count = (outcome: string) => outcomes.filter((one) => one === outcome).length
  const faults = {
    lost: deeds.sent.filter(
      ({ session, id }) => !isDone(stories.find((one) => one.session === session && one.ids.includes(id))),
    ).length,
    doubled: stories.filter((story) => isDoubled(story)).length,
    'out of order': [...transcripts.values()].reduce((sum, list) => sum + disorder(list), 0),
  }
  const again = stories.filter(({ starts }) => starts.length > 1)
  const kept = again.reduce((sum, { starts, steps }) => {
    const last = starts.at(-1)?.attempt ?? 0
    return sum + [...steps.values()].filter((attempt) => attempt < last).length
  }, 0)
  const repeated = stories.reduce((sum, story) => sum + story.repeatedSteps, 0)
  const dangling = stories
    .flatMap(({ calls }) => [...calls.values()])
    .filter((results) => results !== 1).length
  const late = startedAfterStop(transcripts.get(deeds.stop.session) ?? [], deeds)
  const failed = stories.length - count('completed') - count('stopped') - count('open')
  const broken = [
    ...Object.entries(faults).flatMap(([what, many]) => (many > 0 ? [`messages ${what}: ${many}`] : [])),
    ...(repeated > 0 ? [`finished steps that ran again: ${repeated}`] : []),
    ...(dangling > 0 ? [`tool calls without exactly one result: ${dangling}`] : []),
    ...(late > 0 ? [`messages started after they were stopped: ${late}`] : []),
    ...(failed > 0 ? [`messages that failed: ${failed}`] : []),
  ]
  const lines = columns([
    ['transcript entries', `${entries.length} in ${transcripts.size} sessions`],
    [
      'messages accepted',
      `${deeds.sent.length}: ${count('completed')} completed, ${count('stopped')} stopped`,
    ],
    [`${deeds.kill.name} killed`, takeovers(again, deeds)],
    [`${deeds.drain.name} drained`, handovers(again, deeds)],
    [`${deeds.stop.session} stopped`, stops(stories, deeds)],
    ['steps not repeated', `${kept} finished before their worker went, ${repeated} ran again`],
    ...Object.entries(faults).map(([what, many]): [string, string] => [`messages ${what}`, String(many)]),
  ])
  return { lines, broken }
}

function tell(session: string, entries: readonly Entry[]): Story[] {
  const stories = new Map<number, Story>()
  for (const { seq, type, attempt, payload, callId, stepKey, createdAt } of entries) {
    let story = stories.get(seq)
    if (!story) {
      story = {
        session,
        seq,
        ids: [],
        starts: [],
        ends: [],
        replies: 0,
        steps: new Map(),
        repeatedSteps: 0,
        calls: new Map(),
      }
      stories.set(seq, story)
    }
    const fields = Object(payload) as { id?: string; process?: string; outcome?: string; step?: string }
    const atMs = Date.parse(createdAt)
    if (type === 'message') story.ids.push(fields.id ?? '')
    if (type === 'turn_started') story.starts.push({ attempt, process: fields.process ?? '', atMs })
    if (type === 'turn_ended') story.ends.push({ outcome: fields.outcome ?? '', atMs })
    if (type === 'reply') story.replies += 1
    if (type === 'step' && stepKey !== null) story.steps.set(stepKey, attempt)
    if (type === 'tool_call' && callId !== null) {
      story.calls.set(callId, 0)
      if (story.steps.has(fields.step ?? '')) story.repeatedSteps += 1
    }
    if (type === 'tool_result' && callId !== null) story.calls.set(callId, (story.calls.get(callId) ?? 0) + 1)
  }
  return [...stories.values()]
}

const isDone = (story: Story | undefined): boolean => FINAL.has(story?.ends.at(-1)?.outcome ?? '')

function isDoubled({ ids, ends, replies }: Story): boolean {
  return ids.length > 1 || replies > 1 || ends.filter(({ outcome }) => FINAL.has(outcome)).length > 1
}

/** Holes, epochs that fall, and turns that begin before the one before them has its final state. */
function disorder(entries: readonly Entry[]): number {
  let [faults, done, epoch] = [0, 0, 0]
  entries.forEach((entry, index) => {
    if (entry.entry !== index + 1 || entry.epoch < epoch) faults += 1
    epoch = entry.epoch
    if (entry.type === 'turn_started' && entry.seq !== done + 1) faults += 1
    const { outcome = '' } = Object(entry.payload) as { outcome?: string }
    if (entry.type === 'turn_ended' && FINAL.has(outcome)) done = entry.seq
  })
  return faults
}

function startedAfterStop(entries: readonly Entry[], { stop }: Deeds): number {
  return entries.filter(
    ({ type, seq, createdAt }) =>
      type === 'turn_started' && seq <= stop.through && Date.parse(createdAt) > stop.returnedAtMs,
  ).length
}

/** How long the turns of the killed worker stood still, by the database's clock. */
function takeovers(again: readonly Story[], { kill }: Deeds): string {
  const gaps = gapsAfter(again, kill.process, 'lost').map(({ startedAtMs }) => startedAtMs - kill.atMs)
  return gaps.length === 0
    ? 'nothing ran there'
    : `${turns(gaps)} started again elsewhere after ${seconds(Math.max(...gaps))}`
}

function handovers(again: readonly Story[], { drain }: Deeds): string {
  const gaps = gapsAfter(again, drain.process, 'handed_over').map(
    ({ endedAtMs, startedAtMs }) => startedAtMs - endedAtMs,
  )
  const how =
    gaps.length === 0
      ? 'nothing had to be handed over'
      : `${turns(gaps)} handed over within ${seconds(Math.max(...gaps))}`
  return `${how}; it was gone after ${seconds(drain.tookMs)}, exit code ${drain.exitCode}`
}

function gapsAfter(again: readonly Story[], process: string, outcome: string) {
  return again.flatMap(({ starts, ends }) =>
    starts.flatMap((start, index) => {
      const [end, next] = [ends[index], starts[index + 1]]
      if (start.process !== process || end?.outcome !== outcome || !next) return []
      return [{ endedAtMs: end.atMs, startedAtMs: next.atMs }]
    }),
  )
}

function stops(stories: readonly Story[], { stop }: Deeds): string {
  const covered = stories.filter(
    ({ session, seq, ends }) =>
      session === stop.session && seq <= stop.through && ends.at(-1)?.outcome === 'stopped',
  )
  const ran = covered.find(({ starts }) => starts.length > 0)
  const waited = covered.filter(({ starts }) => starts.length === 0).length
  const end = ran?.ends.at(-1)
  const running = end
    ? `the running message ended ${seconds(Math.max(0, end.atMs - stop.atMs))} after Stop`
    : 'the running message was already done'
  return `${running}, ${waited} that waited never started`
}

const turns = (list: readonly unknown[]): string => (list.length === 1 ? '1 turn' : `${list.length} turns`)

const seconds = (ms: number): string => `${(ms / 1000).toFixed(2)} s`

function columns(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([name]) => name.length))
  return rows.map(([name, value]) => `  ${name.padEnd(width)}  ${value}`)
}
