// Races on many sessions at the same time, against a fleet whose processes are killed and sent away meanwhile.
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { createPool, type Pool, type RowDataPacket } from 'mysql2/promise'
import { createClient, migrate, type TunablesInput } from '../../src/index.ts'
import { type Fleet, startFleet } from '../support/fleet.ts'
import type { Line } from '../support/history.ts'
import { Dice } from '../torture/dice.ts'
import { type Entry, type Evidence, judge, type RuleName } from './judge.ts'
import { type Clients, playRace, type Race } from './race.ts'

export interface CampaignOptions {
  readonly redisUrl: string
  /** An empty database. */
  readonly mysqlUrl: string
  /** Where folders are made. */
  readonly parent: string
  /** Where the probe worker is bundled. */
  readonly code: string
  readonly races: number
  readonly seed: number
  readonly workers: number
  /** Races at the same time. */
  readonly lanes: number
  readonly onJudged?: (judged: number) => void
}

export interface Violation {
  readonly rule: RuleName
  readonly session: string
  readonly problem: string
  readonly story: readonly string[]
}

export interface Report {
  readonly races: number
  readonly messages: number
  readonly turns: number
  readonly stops: number
  readonly interrupts: number
  readonly refused: number
  /** Races with a call whose outcome nobody knows (the machine was too busy to answer): not judged. */
  readonly unknown: number
  /** Processes killed, and sent away. */
  readonly kills: number
  readonly drains: number
  /** Turns that ended because their process had died, and those that were handed over. */
  readonly lost: number
  readonly handedOver: number
  readonly outcomes: Readonly<Record<string, number>>
  readonly violations: readonly Violation[]
  readonly seconds: number
}

export const TUNABLES = {
  lockTtlMs: 3000,
  retryDelaysMs: [50, 100],
  stopGraceMs: 200,
  drainGraceMs: 200,
  // Kills are for the races, not for the messages that meet several of them.
  maxCrashes: 10,
  // A busy machine is no outage.
  enqueueTimeoutMs: 60_000,
  mysqlTimeoutMs: 20_000,
} satisfies TunablesInput

const JUDGE_EVERY_MS = 200
/** A session that moves no more by then is said to be unfinished. */
const SETTLE_MS = 120_000

interface Waiting {
  readonly judged: () => void
  readonly giveUpAt: number
}

export async function runCampaign(options: CampaignOptions): Promise<Report> {
  const { redisUrl, mysqlUrl, parent, code, races, seed, workers, lanes } = options
  const began = performance.now()
  const prefix = `races-${randomUUID().slice(0, 8)}`
  await migrate(mysqlUrl)
  const pool = createPool({ uri: mysqlUrl, supportBigNumbers: true })
  const client = (own: string) =>
    createClient({ redis: redisUrl, mysql: mysqlUrl, logger: false, ...TUNABLES, prefix: own })
  const clients: Clients = { usual: [client(prefix), client(prefix)], unheard: client(`${prefix}-apart`) }
  const fleet = await startFleet({ redisUrl, mysqlUrl, prefix, parent, code, workers, tunables: TUNABLES })
  const over = new AbortController()
  const played = new Map<Race, Waiting>()
  const tally = new Tally()
  const chaos = trouble(fleet, Dice.of(seed, 'trouble'), over.signal)
  let left = lanes
  // The next race of a lane begins when the last one is over, or the fleet would be buried.
  const lane = async (first: number) => {
    for (let number = first; number < races; number += lanes) {
      const race = await playRace(clients, `race-${number}`, Dice.of(seed, 'race', number))
      await new Promise<void>((judged) =>
        played.set(race, { judged, giveUpAt: performance.now() + SETTLE_MS }),
      )
    }
    left -= 1
  }
  try {
    const playing = Promise.all(Array.from({ length: lanes }, (_, number) => lane(number)))
    playing.catch(() => (left = 0))
    const lines = new Lines(fleet)
    while (left > 0) {
      await sleep(JUDGE_EVERY_MS)
      const known = [...played]
      const open = await openSessions(pool)
      const ready = known.filter(
        ([{ session }, { giveUpAt }]) => !open.has(session) || performance.now() > giveUpAt,
      )
      lines.read()
      const found = ready.map(([race]) => race)
      for (const evidence of await evidenceOf(pool, found, lines)) tally.add(evidence)
      for (const [race, { judged }] of ready) {
        played.delete(race)
        judged()
      }
      if (ready.length > 0) options.onJudged?.(tally.races)
    }
    await playing
    over.abort()
    const { kills, drains } = await chaos
    return { ...tally.report(), kills, drains, seconds: Math.round((performance.now() - began) / 1000) }
  } finally {
    over.abort()
    await chaos.catch(() => undefined)
    await fleet.stop()
    await Promise.all([...clients.usual, clients.unheard].map((one) => one.close()))
    await pool.end()
  }
}

/** Kills a process or sends it away, now and then, and starts another one; the next hit waits until that one serves. */
async function trouble(
  fleet: Fleet,
  dice: Dice,
  over: AbortSignal,
): Promise<{ kills: number; drains: number }> {
  const done = { kills: 0, drains: 0 }
  for (;;) {
    await sleep(dice.between(500, 3000), undefined, { signal: over }).catch(() => undefined)
    if (over.aborted) return done
    const victim = dice.pick(fleet.except())
    if (dice.chance(0.5)) {
      done.kills += 1
      await victim.kill()
    } else {
      done.drains += 1
      victim.terminate()
      await victim.exited
    }
    await fleet.restart(victim)
  }
}

/** What handlers said, by session, read as the file grows. */
class Lines {
  readonly #fleet: Fleet
  readonly #bySession = new Map<string, Line[]>()
  #seen = 0

  constructor(fleet: Fleet) {
    this.#fleet = fleet
  }

  read(): void {
    const all = this.#fleet.history()
    for (const line of all.slice(this.#seen)) {
      if (line.session === undefined) continue
      const list = this.#bySession.get(line.session) ?? []
      this.#bySession.set(line.session, list)
      list.push(line)
    }
    this.#seen = all.length
  }

  take(session: string): Line[] {
    const lines = this.#bySession.get(session) ?? []
    this.#bySession.delete(session)
    return lines
  }
}

async function rows(pool: Pool, sql: string, values: unknown[] = []): Promise<RowDataPacket[]> {
  return (await pool.query<RowDataPacket[]>(sql, values))[0]
}

async function openSessions(pool: Pool): Promise<Set<string>> {
  const open = await rows(pool, 'select id from butler_sessions where waiting_since is not null')
  return new Set(open.map(({ id }) => String(id)))
}

async function evidenceOf(pool: Pool, races: readonly Race[], lines: Lines): Promise<Evidence[]> {
  if (races.length === 0) return []
  const ids = races.map(({ session }) => session)
  const entries = await rows(
    pool,
    `select session_id as session, entry_seq as entry, seq, attempt, type, if(type = 'turn_ended', payload, null) as payload
     from butler_entries where session_id in (?) order by session_id, entry_seq`,
    [ids],
  )
  const messages = await rows(
    pool,
    `select m.session_id as session, m.seq, if(m.seq > s.done_seq, 'open', coalesce(m.status, 'completed')) as state
     from butler_messages m join butler_sessions s on s.id = m.session_id where m.session_id in (?)`,
    [ids],
  )
  const [mine, states] = [new Map<string, Entry[]>(), new Map<string, Map<number, string>>()]
  for (const id of ids) {
    mine.set(id, [])
    states.set(id, new Map())
  }
  for (const { session, payload, ...entry } of entries)
    mine
      .get(String(session))
      ?.push({ ...(entry as Entry), ...(payload === null ? {} : JSON.parse(String(payload))) })
  for (const { session, seq, state } of messages) states.get(String(session))?.set(Number(seq), String(state))
  return races.map((race) => ({
    race,
    entries: mine.get(race.session) ?? [],
    states: states.get(race.session) ?? new Map<number, string>(),
    lines: lines.take(race.session),
  }))
}

/** What came of all races, in numbers, and the story of each that went wrong. */
class Tally {
  races = 0
  readonly #counts = {
    messages: 0,
    turns: 0,
    stops: 0,
    interrupts: 0,
    refused: 0,
    unknown: 0,
    lost: 0,
    handedOver: 0,
  }
  readonly #outcomes: Record<string, number> = {}
  readonly #violations: Violation[] = []

  add(evidence: Evidence): void {
    const { race, entries } = evidence
    const ends = (outcome: string) => entries.filter((one) => one.outcome === outcome).length
    const counts = this.#counts
    this.races += 1
    counts.messages += race.sent.length
    counts.turns += entries.filter(({ type }) => type === 'turn_started').length
    counts.stops += race.stops.length
    counts.interrupts += race.sent.filter(({ interrupt }) => interrupt).length
    counts.refused += race.refused.length
    counts.lost += ends('lost')
    counts.handedOver += ends('handed_over')
    for (const { receipt } of race.stops)
      for (const outcome of receipt.outcomes.length === 0
        ? ['idle']
        : receipt.outcomes.map((one) => one.outcome))
        this.#outcomes[outcome] = (this.#outcomes[outcome] ?? 0) + 1
    const { session } = race
    if (race.unknown.length > 0) counts.unknown += 1
    else
      for (const problem of judge(evidence))
        this.#violations.push({ ...problem, session, story: storyOf(evidence) })
  }

  report() {
    return { races: this.races, ...this.#counts, outcomes: this.#outcomes, violations: this.#violations }
  }
}

function storyOf({ race, entries, lines }: Evidence): string[] {
  const calls = [
    ...race.sent.map((call) => ({ ns: call.to, text: `sent ${JSON.stringify(call)}` })),
    ...race.stops.map((call) => ({ ns: call.to, text: `stopped ${JSON.stringify(call)}` })),
    ...lines.map((line) => ({ ns: line.ns, text: `handler ${JSON.stringify(line)}` })),
  ]
  return [
    ...calls.toSorted((a, b) => a.ns - b.ns).map(({ ns, text }) => `${(ns / 1e6).toFixed(1)} ${text}`),
    ...entries.map((entry) => `entry ${JSON.stringify(entry)}`),
  ]
}
