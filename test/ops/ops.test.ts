// ops/: the rules and the board are what Prometheus and Grafana can read, and name only metrics that a process has.
import { readFile } from 'node:fs/promises'
import { format } from 'prettier'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { CATALOGUE, type EventName, type Events } from '../../src/base/events.ts'
import { Telemetry } from '../../src/base/telemetry.ts'
import { type MetricsPage, openMetrics } from '../../src/http/metrics.ts'
import { type Health, METRICS } from '../../src/index.ts'

const read = (name: string) => readFile(new URL(`../../ops/${name}`, import.meta.url), 'utf8')

/** Events that are not measured, and why. */
const UNMEASURED: Partial<Record<EventName, string>> = {
  'worker.started': 'butler.ready says it',
  'worker.draining': 'butler.problem says it',
  'worker.stopped': 'there is nobody left to ask',
  'session.idle': 'as many as were acquired, soon or late',
  'session.released': 'as many as were acquired, soon or late',
  'process.suspected': 'most are harmless; the dead are counted',
  'redis.ready': 'butler.problem says it',
  'mysql.ready': 'butler.problem says it',
}

const turn = { session: 'tenant:secret', seq: 7, epoch: 1, attempt: 1 }
/** One of each event that is measured, with the values that matter. */
const FIELDS: { [Name in EventName]?: Partial<Events[Name]> & Record<string, unknown> } = {
  'turn.started': { ...turn, waitedMs: 1500 },
  'turn.completed': { ...turn, durationMs: 250 },
  'turn.stopped': { ...turn, afterMs: 40 },
  'session.evicted': { ...turn, owner: 'P1.x', verdict: 'dead', afterMs: 3000 },
  'sweep.done': { found: 3, woken: 2 },
  'retention.pruned': { counts: { messages: 2, entries: 3 } },
}
const health: Health = { ready: false, problems: [{ code: 'redis', since: '2026-01-01T00:00:00.000Z' }] }

const telemetry = new Telemetry()
let page: MetricsPage
let before: string
let text: string

beforeAll(async () => {
  const on: Telemetry['on'] = (event, listener) => telemetry.on(event, listener)
  const stats = () => ({ running: 3, waiting: 2, sessions: 9, detached: 1 })
  page = openMetrics([{ on, stats, health: () => health }])
  before = await page.text()
  for (const event of Object.keys(CATALOGUE) as EventName[])
    telemetry.emit(event, { ...turn, ...FIELDS[event] } as never)
  text = await page.text()
})
afterAll(() => page.close())

const lines = () => text.split('\n')
/** Metric names in an expression of Prometheus. */
const namesIn = (expr: string) => [...expr.matchAll(/\bbutler_\w+/g)].map(([name]) => name)
const isThere = (name: string) =>
  lines().some((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))

describe('metrics', () => {
  test('every event of the catalogue is measured, or it is said why not', () => {
    const measured = new Set(
      METRICS.flatMap((metric) => ('from' in metric ? metric.from : [])).map(({ event }) => event),
    )
    const forgotten = Object.keys(CATALOGUE).filter(
      (name) => !measured.has(name as EventName) && !(name in UNMEASURED),
    )
    expect(forgotten).toEqual([])
    expect(Object.keys(UNMEASURED).filter((name) => measured.has(name as EventName))).toEqual([])
  })

  test('what events say is what the page says', () => {
    for (const line of [
      'butler_turns_started_total 1',
      'butler_turns_ended_total{outcome="failed"} 1',
      'butler_turn_wait_seconds_sum 1.5',
      'butler_turn_wait_seconds_bucket{le="1"} 0',
      'butler_turn_wait_seconds_bucket{le="2.5"} 1',
      'butler_turn_duration_seconds_sum 0.25',
      'butler_turn_stop_seconds_sum 0.04',
      'butler_takeovers_total{verdict="dead"} 1',
      'butler_takeover_seconds_sum 3',
      'butler_sweep_woken_total 2',
      'butler_rows_pruned_total 5',
      'butler_store_errors_total{store="mysql"} 1',
      'butler_turns_running{part="worker"} 3',
      'butler_sessions_waiting{part="worker"} 2',
      'butler_ready{part="worker"} 0',
      'butler_problem{part="worker",code="redis"} 1',
    ])
      expect(lines()).toContain(line)
  })

  test('a counter is there before its first event, so that the first one shows as an increase', () => {
    expect(before).toContain('butler_turns_ended_total{outcome="failed"} 0')
    expect(before).toContain('butler_locks_late_total 0')
  })

  test('no session is ever named', () => {
    expect(text).not.toMatch(/secret|tenant|session=/)
  })

  test('closing ends the listening', async () => {
    let listening = 0
    const short = openMetrics([
      {
        on: () => {
          listening += 1
          return () => (listening -= 1)
        },
      },
    ])
    expect(listening).toBeGreaterThan(20)
    await short.close()
    expect(listening).toBe(0)
  })

  test('no two have one name', () => {
    expect(new Set(METRICS.map(({ name }) => name)).size).toBe(METRICS.length)
  })
})

describe('prometheus-rules.yml', () => {
  test('is YAML, and each alert says what is wrong and what to do', async () => {
    const rules = await read('prometheus-rules.yml')
    // Rejects what is not YAML.
    await format(rules, { parser: 'yaml' })
    const alerts = rules.split(/^ {6}- alert: /m).slice(1)
    expect(alerts.length).toBeGreaterThan(6)
    for (const alert of alerts) {
      expect(alert).toMatch(
        /^\w+\n {8}expr: .+\n(?: {8}for: \d+m\n)? {8}labels: \{ severity: (?:page|warn) \}\n/,
      )
      expect(alert).toMatch(/ {10}summary: .+\n {10}do: .+\n/)
    }
  })

  test('names only metrics that there are', async () => {
    const exprs = [...(await read('prometheus-rules.yml')).matchAll(/^ {8}expr: (.+)$/gm)].map(
      ([, expr = '']) => expr,
    )
    for (const expr of exprs) expect(namesIn(expr).length, expr).toBeGreaterThan(0)
    expect(exprs.flatMap(namesIn).filter((name) => !isThere(name))).toEqual([])
  })
})

test('grafana-dashboard.json is a board whose panels name only metrics that there are', async () => {
  const board = JSON.parse(await read('grafana-dashboard.json')) as {
    panels: { id: number; title: string; targets: { expr: string }[] }[]
  }
  expect(new Set(board.panels.map(({ id }) => id)).size).toBe(board.panels.length)
  for (const { title, targets } of board.panels) {
    expect(targets.length, title).toBeGreaterThan(0)
    for (const { expr } of targets) {
      expect(namesIn(expr).length, expr).toBeGreaterThan(0)
      expect(namesIn(expr).filter((name) => !isThere(name))).toEqual([])
    }
  }
})
