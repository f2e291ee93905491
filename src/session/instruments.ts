/** Turns what a worker or a client tells into measurements: the instruments of the table of metrics. */
import { type Attributes, type Meter, metrics } from '@opentelemetry/api'
import type { Telemetry } from '../base/telemetry.ts'
import type { Health } from './health.ts'
import { type Metric, METRICS, type Stat } from './metrics.ts'

/** A worker or a client, or anything that tells events of the catalogue in the same way. */
export interface MetricsSource {
  readonly on: Telemetry['on']
  /** Read for the gauges whenever metrics are collected. */
  stats?(): Readonly<Record<Stat, number>>
  health?(): Health | Promise<Health>
}

/**
 * Measures what a worker or a client does, with OpenTelemetry: by default with the global meter provider, which measures
 * nothing until an application sets one. Returns what ends it.
 */
export function instrument(
  source: MetricsSource,
  meter: Meter = metrics.getMeter('session-butler'),
): () => void {
  const ends = METRICS.map((metric) =>
    metric.type === 'gauge' ? observe(source, meter, metric) : count(source, meter, metric),
  )
  return () => {
    for (const end of ends) end()
  }
}

function count(source: MetricsSource, meter: Meter, metric: Exclude<Metric, { type: 'gauge' }>): () => void {
  const record = recorderOf(meter, metric)
  const ends = metric.from.map(({ event, labels = {}, labelsOf, value }) => {
    // A series that begins with its first event shows no increase.
    if (metric.type === 'counter' && !labelsOf) record(0, labels)
    return source.on(event, (fields) => {
      const amount = value ? value(fields as never) : 1
      if (amount !== undefined) record(amount, { ...labels, ...labelsOf?.(fields as never) })
    })
  })
  return () => {
    for (const end of ends) end()
  }
}

function recorderOf(
  meter: Meter,
  metric: Exclude<Metric, { type: 'gauge' }>,
): (value: number, labels: Attributes) => void {
  const about = { description: metric.doc, unit: metric.unit }
  if (metric.type === 'counter') {
    const instrument = meter.createCounter(metric.name, about)
    return (value, labels) => instrument.add(value, labels)
  }
  const advice = { explicitBucketBoundaries: [...metric.buckets] }
  const instrument = meter.createHistogram(metric.name, { ...about, advice })
  return (value, labels) => instrument.record(value, labels)
}

function observe(
  source: MetricsSource,
  meter: Meter,
  metric: Extract<Metric, { type: 'gauge' }>,
): () => void {
  const { name, doc: description, unit, stat } = metric
  const of = { part: source.stats ? 'worker' : 'client' }
  const instrument = meter.createObservableGauge(name, { description, unit })
  const look = async (result: { observe(value: number, labels: Attributes): void }): Promise<void> => {
    if (stat !== 'ready' && stat !== 'problem') {
      if (source.stats) result.observe(source.stats()[stat], of)
      return
    }
    const health = await source.health?.()
    if (!health) return
    if (stat === 'ready') result.observe(health.ready ? 1 : 0, of)
    else for (const { code } of health.problems) result.observe(1, { ...of, code })
  }
  instrument.addCallback(look)
  return () => instrument.removeCallback(look)
}
