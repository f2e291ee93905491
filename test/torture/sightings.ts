// What watchers were given, put together from the lines that they noted down.
import type { WatchEvent } from '../../src/index.ts'
import type { Line } from '../support/history.ts'
import { groupBy, text } from './record.ts'

export interface Sighting {
  readonly watcher: string
  readonly session: string
  /** The entry behind which it began. */
  readonly from: number
  /** How often it went on after an end. */
  readonly breaks: number
  /** In the order in which it was given them; nothing of how the session stood. */
  readonly events: readonly Exclude<WatchEvent, { type: 'state' }>[]
}

export function sightingsOf(history: readonly Line[]): Sighting[] {
  const lines = history.filter(({ what }) => what === 'watches' || what === 'saw')
  return [...groupBy(lines, ({ name }) => name ?? '')].map(([watcher, own]) => {
    const connects = own.filter(({ what }) => what === 'watches')
    return {
      watcher,
      session: own[0]?.session ?? '',
      from: Number.parseInt(text(connects[0]?.fields?.['after']) ?? '', 10),
      breaks: connects.length - 1,
      events: own.flatMap(({ what, fields }) =>
        what === 'saw' ? [fields as unknown as Sighting['events'][number]] : [],
      ),
    }
  })
}

/** The last entry that it has. */
export function placeOf({ events, from }: Sighting): number {
  const last = events.findLast(({ type }) => type === 'entry')
  return last?.type === 'entry' ? last.entry.entry : from
}
