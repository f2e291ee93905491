// How long a turn takes to be somebody else's: after its process was killed, and after its process drained.
import type { World } from './world.ts'

export interface Passages {
  /** From the kill to the next start of each message that it had interrupted, milliseconds. */
  readonly takeovers: readonly number[]
  /** From the end of the turn that was handed over to the message's next start, milliseconds. */
  readonly handOvers: readonly number[]
  /** The longest of both, as `session: …`. */
  readonly slowest: readonly string[]
}

export function millisecondsBetween({ turns, faults, wallMs }: World): Passages {
  const next = new Map(turns.map((turn) => [`${turn.session} ${turn.seq}.${turn.attempt}`, turn]))
  const takeovers: number[] = []
  const handOvers: number[] = []
  const slowest = { takeover: '', handOver: '' }
  const kills = faults.filter(({ name }) => name === 'worker-kill')
  for (const { session, seq, attempt, process, outcome, startedAt, endedAt } of turns) {
    const again = next.get(`${session} ${seq}.${attempt + 1}`)
    if (!again) continue
    if (outcome === 'handed_over') {
      const ms = Math.round(again.startedAt - endedAt)
      if (handOvers.every((other) => other < ms))
        slowest.handOver = `${session}: hand-over: turn ${seq}.${attempt + 1} started ${ms} ms after ${process} had left it`
      handOvers.push(ms)
    }
    // Who is named first was killed; the second is the successor.
    const kill = kills.find(({ processes: [killed] }) => killed === process)
    if (outcome !== 'lost' || !kill || wallMs(kill.from) < startedAt) continue
    const ms = Math.round(again.startedAt - wallMs(kill.from))
    if (takeovers.every((other) => other < ms))
      slowest.takeover = `${session}: takeover: turn ${seq}.${attempt + 1} started ${ms} ms after the kill of ${process}`
    takeovers.push(ms)
  }
  return { takeovers, handOvers, slowest: Object.values(slowest).filter((text) => text !== '') }
}

export function quantiles(values: readonly number[]): {
  count: number
  p50: number
  p95: number
  max: number
} {
  const sorted = values.toSorted((a, b) => a - b)
  const at = (part: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0
  return { count: sorted.length, p50: at(0.5), p95: at(0.95), max: sorted.at(-1) ?? 0 }
}
