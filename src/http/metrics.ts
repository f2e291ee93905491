/** What `/metrics` answers: everything that the sources have measured since, in the Prometheus text format. */
import { PrometheusExporter, PrometheusSerializer } from '@opentelemetry/exporter-prometheus'
import { MeterProvider } from '@opentelemetry/sdk-metrics'
import { instrument, type MetricsSource } from '../index.ts'

export interface MetricsPage {
  /** What holds at this moment. */
  text(): Promise<string>
  /** Nothing is measured any more. */
  close(): Promise<void>
}

/** Measures workers and clients of this process, apart from whatever the application measures with OpenTelemetry. */
export function openMetrics(sources: readonly MetricsSource[]): MetricsPage {
  const reader = new PrometheusExporter({ preventServerStart: true })
  const provider = new MeterProvider({ readers: [reader] })
  const ends = sources.map((source) => instrument(source, provider.getMeter('session-butler')))
  // One library on the page and one process behind it: neither needs a label.
  const serializer = new PrometheusSerializer(undefined, false, undefined, true, true)
  return {
    text: async () => serializer.serialize((await reader.collect()).resourceMetrics),
    close: async () => {
      for (const end of ends) end()
      await provider.shutdown()
    },
  }
}
