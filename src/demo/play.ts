/**
 * The play: questions come in, and meanwhile one worker is killed, another is drained as in a deploy, and somebody
 * presses Stop. Says what it did and when; what came of it is for the transcripts to tell.
 */
import { sleep } from '../base/timing.ts'
import { type Client, type Entry, NotFoundError } from '../index.ts'
import { scriptOf } from './agent.ts'
import type { Board } from './board.ts'
import { type Fleet, type Running, type Sent, signal } from './fleet.ts'

/** What was done to whom; times by the wall clock, milliseconds. */
export interface Deeds {
  readonly sent: readonly Sent[]
  readonly kill: { readonly name: string; readonly process: string; readonly atMs: number }
  readonly drain: {
    readonly name: string
    readonly process: string
    readonly tookMs: number
    readonly exitCode: number | null
  }
  readonly stop: {
    readonly session: string
    readonly through: number
    readonly atMs: number
    readonly returnedAtMs: number
  }
}

export const SESSIONS = ['parlour', 'kitchen', 'library', 'cellar', 'garden', 'attic']

/** Questions come in during this share of the time; the rest is for the last answers. */
const ASKING = 0.75
/** About how long a turn takes, seconds; a session gets its next question a little sooner. */
const TURN_SECONDS = 7
const SETTLE_MS = 90_000

interface Props {
  readonly fleet: Fleet
  readonly client: Client
  readonly board: Board
  readonly seconds: number
}

export async function play(props: Props): Promise<Deeds> {
  const { fleet, board, seconds } = props
  fleet.startProducer()
  await Promise.all(['Anna', 'Ben', 'Clara'].map((name) => fleet.hire(name)))
  board.news('Anna, Ben and Clara serve; the first questions come in')
  const asking = ask(props)
  asking.catch(() => undefined) // awaited below
  const beganAt = Date.now()
  const act = (share: number) => sleep(beganAt + share * seconds * 1000 - Date.now())
  await act(0.25)
  const kill = await killOne(props)
  const successor = fleet.hire('Dora')
  successor.catch(() => undefined)
  await act(0.5)
  await successor
  const drain = await drainOne(props)
  await act(0.65)
  const stop = await stopOne(props, new Set([kill.session, drain.session]))
  await asking
  await settled(props)
  return { sent: fleet.sent, kill, drain, stop }
}

/** Every session gets a question now and then, each at its own time. */
async function ask({ fleet, seconds }: Props): Promise<void> {
  const rounds = Math.max(2, Math.round((seconds * ASKING) / (TURN_SECONDS - 1)))
  const pauseMs = (seconds * ASKING * 1000) / rounds / SESSIONS.length
  for (let index = 0; index < rounds * SESSIONS.length; index++) {
    const session = SESSIONS[index % SESSIONS.length] ?? ''
    await fleet.send(session, index % (SESSIONS.length - 1))
    // The first questions at once, so that there is something to see.
    if (index >= SESSIONS.length - 1) await sleep(pauseMs)
  }
}

/** In mid-turn, with a finished step behind it: what is lost is what was being said. */
const inMidTurn = ({ attempt, steps }: Running): boolean => attempt === 1 && steps > 0

async function killOne({ fleet, board }: Props) {
  await fleet.send(pick(), 2)
  const { worker, session } = await fleet.turn(inMidTurn)
  const atMs = Date.now()
  board.news(`kill -9 ${worker.name}, in the middle of a turn of the ${session}`)
  await signal(worker.child, 'SIGKILL')
  return { name: worker.name, process: worker.process, atMs, session }
}

async function drainOne({ fleet, board }: Props) {
  board.news('Dora has been hired, as in a deploy')
  await fleet.send(pick(), 2)
  const { worker, session } = await fleet.turn((turn) => inMidTurn(turn) && turn.worker.name !== 'Dora')
  board.news(`${worker.name} is told to go (SIGTERM)`)
  const atMs = Date.now()
  const exitCode = await signal(worker.child, 'SIGTERM')
  const tookMs = Date.now() - atMs
  board.news(`${worker.name} has left, exit code ${exitCode}`)
  return { name: worker.name, process: worker.process, tookMs, exitCode, session }
}

async function stopOne({ fleet, client, board }: Props, others: ReadonlySet<string>) {
  const calm = SESSIONS.filter((session) => !others.has(session))
  await fleet.send(pick(calm), 0)
  const { session } = await fleet.turn((turn) => calm.includes(turn.session) && inMidTurn(turn))
  await fleet.send(session, 1)
  board.news(`somebody presses Stop in the ${session}, where another message waits`)
  const atMs = Date.now()
  const { through } = await client.stop(session)
  const returnedAtMs = Date.now()
  await fleet.send(session, 1)
  board.news(`and asks the ${session} something else: “${scriptOf(1).question}”`)
  return { session, through, atMs, returnedAtMs }
}

const pick = (sessions: readonly string[] = SESSIONS): string =>
  sessions[Math.floor(Math.random() * sessions.length)] ?? SESSIONS[0] ?? ''

/** Until nothing is left to do; gives up in the end, and the account then says what is missing. */
async function settled({ client, board }: Props): Promise<void> {
  const giveUpAt = Date.now() + SETTLE_MS
  while (Date.now() < giveUpAt) {
    const sessions = await client.sessions()
    if (sessions.every(({ inboxSeq, doneSeq }) => inboxSeq === doneSeq)) return
    await sleep(200)
  }
  board.news('some messages still have no answer')
}

export async function readTranscripts(client: Client): Promise<Map<string, Entry[]>> {
  const transcripts = new Map<string, Entry[]>()
  for (const session of SESSIONS) {
    const entries: Entry[] = []
    transcripts.set(session, entries)
    try {
      for (let [after, head] = [0, 1]; after < head;) {
        const page = await client.transcript(session, { after, limit: 1000 })
        entries.push(...page.entries)
        if (page.entries.length === 0) break
        after = page.cursor
        head = page.head
      }
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error
    }
  }
  return transcripts
}
