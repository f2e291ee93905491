/** Arithmetic of the bench: faults, percentiles, rounding, tables. */
import type { Run, Sent } from './process.ts'

/** A line of a table, by column. */
export type Row = Readonly<Record<string, string | number>>

/** What handlers saw against what was sent: `none`, or how many were lost, run twice, out of order or overlapping. */
export function faultsIn(runs: readonly Run[], sent: readonly Sent[]): string {
  const bySession = new Map<string, Run[]>()
  for (const run of runs.toSorted((left, right) => left.startedAt - right.startedAt)) {
    const list = bySession.get(run.session)
    if (list) list.push(run)
    else bySession.set(run.session, [run])
  }
  const faults = { lost: 0, twice: 0, 'out of order': 0, overlapping: 0 }
  for (const list of bySession.values()) {
    const seen = new Set<number>()
    list.forEach(({ n, startedAt }, index) => {
      const before = list[index - 1]
      if (seen.has(n)) faults.twice += 1
      else if (before && n < before.n) faults['out of order'] += 1
      if (before && startedAt < before.endedAt) faults.overlapping += 1
      seen.add(n)
    })
  }
  const seen = new Set(runs.map(({ session, n }) => `${session} ${n}`))
  faults.lost = sent.filter(({ session, n }) => !seen.has(`${session} ${n}`)).length
  const found = Object.entries(faults).filter(([, count]) => count > 0)
  return found.length === 0 ? 'none' : found.map(([name, count]) => `${name} ${count}`).join(', ')
}

/** The value below which `share` of the values lie; NaN of nothing. */
function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((left, right) => left - right)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN
}

/** How values are distributed, as columns. */
export function spread(values: readonly number[]): Row {
  const at = (share: number) => round(percentile(values, share))
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1) }
}

/** Three significant digits; whole from 100 on. */
export const round = (value: number): number =>
  Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3))

/** Rows of one kind as aligned text. */
export function table(rows: readonly Row[]): string {
  const names = Object.keys(rows[0] ?? {})
  const cells = [names, ...rows.map((row) => names.map((name) => text(row[name])))]
  const widths = names.map((_, column) => Math.max(...cells.map((line) => line[column]?.length ?? 0)))
  const align = (cell: string, column: number) =>
    typeof rows[0]?.[names[column] ?? ''] === 'number'
      ? cell.padStart(widths[column] ?? 0)
      : cell.padEnd(widths[column] ?? 0)
  return cells.map((line) => line.map(align).join('  ').trimEnd()).join('\n')
}

const text = (value: string | number | undefined): string =>
  typeof value === 'number' ? (Number.isNaN(value) ? '–' : value.toLocaleString('en')) : (value ?? '–')
