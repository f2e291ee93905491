// A watcher for tests: takes every event as it comes, and holds it against what is promised of all of them.
import { expect } from 'vitest'
import type { Client, EntryEvent, WatchEvent, WatchOptions } from '../../src/index.ts'

/** The machine may be busy. */
const PATIENCE_MS = 25_000

export interface Watch {
  readonly events: WatchEvent[]
  /** Resolves when the iteration is over; rejects with its failure. */
  readonly over: Promise<void>
  /** Waits for an event; the first that is so. */
  until<E extends WatchEvent>(is: (event: WatchEvent) => event is E): Promise<E>
  until(is: (event: WatchEvent) => boolean): Promise<WatchEvent>
  /** Leaves it. */
  leave(): Promise<void>
}

export function watch(client: Client, id: string, options: WatchOptions = {}): Watch {
  const iterator = client.subscribe(id, options)
  const events: WatchEvent[] = []
  const waiting = new Set<(event: WatchEvent) => void>()
  const over = (async () => {
    for await (const event of iterator) {
      events.push(event)
      for (const look of waiting) look(event)
    }
  })()
  over.catch(() => undefined)
  const until = (is: (event: WatchEvent) => boolean) =>
    new Promise<WatchEvent>((resolve, reject) => {
      const found = events.find(is)
      if (found) return resolve(found)
      const end = () => {
        clearTimeout(alarm)
        waiting.delete(look)
      }
      const look = (event: WatchEvent) => {
        if (!is(event)) return
        end()
        resolve(event)
      }
      const fail = (why: string) => {
        end()
        reject(new Error(`${why}; so far: ${events.slice(-50).map(show).join(', ')}`))
      }
      const alarm = setTimeout(() => fail('waited for another event'), PATIENCE_MS)
      waiting.add(look)
      over.then(
        () => fail('it is over'),
        (error: unknown) => fail(String(error)),
      )
    })
  return {
    events,
    over,
    until: until as Watch['until'],
    leave: async () => {
      await iterator.return?.()
      await over
    },
  }
}

export const isEntry =
  (type: string, seq?: number) =>
  (event: WatchEvent): event is EntryEvent =>
    event.type === 'entry' && event.entry.type === type && (seq === undefined || event.entry.seq === seq)

/** `#3 reply`, `1/2 delta 7 "x"`, `idle`, … */
export function show(event: WatchEvent): string {
  switch (event.type) {
    case 'entry':
      return `#${event.entry.entry} ${event.entry.type}`
    case 'delta':
      return `${event.seq}/${event.attempt} ${JSON.stringify(event.delta)}`
    case 'gap':
      return `${event.seq}/${event.attempt} gap ${event.from}-${event.to}`
    case 'state':
      return event.state + (event.waiting > 0 ? ` ${event.waiting}` : '')
    case 'resync':
      return `resync ${event.head}`
  }
}

/** What is replayed: everything but how the session stands. */
export const story = (events: readonly WatchEvent[]): string[] =>
  events.filter(({ type }) => type !== 'state').map(show)

/**
 * Entries dense and in order; deltas of an attempt in order, each once, none before its entry, none before the attempt's
 * start nor after its end.
 */
export function expectConsistent(events: readonly WatchEvent[], after = 0): void {
  const faults: string[] = []
  let entry = after
  let running: string | undefined
  let index = 0
  const over = new Set<string>()
  for (const event of events) {
    let fault = false
    if (event.type === 'entry') {
      const { seq, attempt, type } = event.entry
      fault = event.entry.entry !== entry + 1
      entry += 1
      if (type === 'turn_started') [running, index] = [`${seq}/${attempt}`, 0]
      if (type === 'turn_ended') over.add(`${seq}/${attempt}`)
    } else if (event.type === 'delta') {
      const attempt = `${event.seq}/${event.attempt}`
      running ??= attempt
      fault = attempt !== running || over.has(attempt) || event.after > entry || event.index <= index
      index = event.index
    }
    if (fault) faults.push(`${show(event)} after entry ${entry} in ${running}`)
  }
  expect(faults).toEqual([])
}
