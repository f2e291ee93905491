// The rule for watchers (I7): behind the entry at which it began, each saw every entry once, in order and as it is in the
// database; no delta after the end of its attempt, and none twice. Whatever was broken meanwhile excuses nothing.
import { isDeepStrictEqual } from 'node:util'
import type { DeltaEvent, Entry } from '../../src/index.ts'
import type { Entry as Row } from '../support/checker-facts.ts'
import { type Sighting, sightingsOf } from './sightings.ts'
import type { Case, World } from './world.ts'

/** A case for each entry of its session that a watcher was to see, and for each delta that it saw. */
export function watched({ facts, history }: World): Case[] {
  return sightingsOf(history).flatMap((sighting) => {
    const { session } = sighting
    const purged = facts.sessions.find(({ id }) => id === session)?.purgedEntries ?? 0
    return new Reading(sighting, facts.entries.get(session) ?? [], purged).cases()
  })
}

/** One watcher's events, read from the first one on. */
class Reading {
  readonly #sighting: Sighting
  /** By number. */
  readonly #rows: ReadonlyMap<number, Row>
  readonly #head: number
  /** Entries up to here are those of a life that was deleted: nothing can be said of them but their order. */
  readonly #purged: number
  readonly #cases: Case[] = []
  readonly #entries = new Set<number>()
  readonly #deltas = new Set<string>()
  /** Up to here it has all entries. */
  #place: number
  /** Attempts before this one are over. */
  #floor = { seq: 0, attempt: 0 }

  constructor(sighting: Sighting, rows: readonly Row[], purged: number) {
    this.#sighting = sighting
    this.#rows = new Map(rows.map((row) => [row.entry, row]))
    this.#head = rows.at(-1)?.entry ?? purged
    this.#purged = purged
    this.#place = sighting.from
  }

  cases(): Case[] {
    for (const event of this.#sighting.events) {
      if (event.type === 'entry') this.#entry(event.entry)
      else if (event.type === 'delta') this.#delta(event)
      else if (event.type === 'resync') this.#resync()
    }
    this.#missed(this.#head, 'to its end')
    return this.#cases
  }

  #say(problem?: string, excused = false): void {
    const { session, watcher } = this.#sighting
    const said = problem === undefined ? undefined : `${session}: I7: watcher ${watcher} ${problem}`
    this.#cases.push({ excused, problem: said })
  }

  #entry(entry: Entry): void {
    const { entry: number, seq, attempt, type } = entry
    const name = `entry ${number} of message ${seq}`
    this.#missed(number - 1, `before ${name}`)
    if (this.#entries.has(number)) this.#say(`saw ${name} again`)
    else if (number <= this.#place) this.#say(`saw ${name} behind entry ${this.#place}`)
    else this.#say(this.#wrong(entry, name), number <= this.#purged)
    this.#entries.add(number)
    this.#place = Math.max(this.#place, number)
    this.#end({ seq, attempt: type === 'turn_ended' ? attempt + 1 : attempt })
  }

  /** What is not as the database has it. */
  #wrong({ entry, createdAt, payload, ...rest }: Entry, name: string): string | undefined {
    if (entry <= this.#purged) return undefined
    const row = this.#rows.get(entry)
    if (!row) return `saw ${name}, which is not there`
    const { seq, epoch, attempt, type, call: callId, step: stepKey, text, at } = row
    const is = { ...rest, payload, at: Date.parse(createdAt) }
    const was = { seq, epoch, attempt, type, callId, stepKey, payload: JSON.parse(text) as unknown, at }
    if (isDeepStrictEqual(is, was)) return undefined
    return `saw ${name} as ${JSON.stringify(is)}, and it is ${JSON.stringify(was)}`
  }

  /** What it should have by now and has not: each once. */
  #missed(through: number, when: string): void {
    for (let number = this.#place + 1; number <= through; number++) {
      const isGone = number <= this.#purged
      const seq = this.#rows.get(number)?.seq
      this.#say(isGone ? undefined : `had not seen entry ${number} of message ${seq} ${when}`, isGone)
    }
    this.#place = Math.max(this.#place, through)
  }

  #delta({ seq, attempt, index }: DeltaEvent): void {
    const name = `delta ${index} of turn ${seq}.${attempt}`
    const key = `${seq}.${attempt}.${index}`
    const isOver = seq < this.#floor.seq || (seq === this.#floor.seq && attempt < this.#floor.attempt)
    if (isOver) this.#say(`saw ${name} after the end of it`)
    else this.#say(this.#deltas.has(key) ? `saw ${name} again` : undefined)
    this.#deltas.add(key)
  }

  #end(floor: { seq: number; attempt: number }): void {
    const { seq, attempt } = this.#floor
    if (floor.seq > seq || (floor.seq === seq && floor.attempt > attempt)) this.#floor = floor
  }

  /** Told only whose session was deleted: it begins again with the life that there is now. */
  #resync(): void {
    if (this.#purged === 0) return this.#say('was told to begin again, and nothing had been deleted')
    this.#place = this.#purged
    this.#floor = { seq: 0, attempt: 0 }
    this.#entries.clear()
    this.#deltas.clear()
  }
}
