import { metrics, trace } from '@opentelemetry/api'
import { MeterProvider } from '@opentelemetry/sdk-metrics'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { Registry } from 'prom-client'
import { lockEvents } from '../../src/index.ts'
import { instrumentLocks } from '../../src/observe/otel/index.ts'
import { measureLocks } from '../../src/observe/prometheus/index.ts'
import type { OpenAdapter } from '../adapter.ts'

/** Starts a listener to the locks of this process, and returns a function that stops it. */
export type Observe = () => () => void

export function observed(observe: Observe, open: OpenAdapter): OpenAdapter {
  return async (surroundings) => {
    const stop = observe()
    const adapter = await open(surroundings)
    return {
      acquire: (key) => adapter.acquire(key),
      async close() {
        stop()
        await adapter.close()
      },
    }
  }
}

export const byListeners: Observe = () => {
  const stops = lockEvents.names.map((name) => lockEvents.on(name, () => {}))
  return () => {
    for (const stop of stops) stop()
  }
}

export const byPrometheus: Observe = () => measureLocks({ registry: new Registry() })

/** With the default providers of the API, which record nothing without an SDK. */
export const byOpenTelemetryApi: Observe = () =>
  instrumentLocks({ tracerProvider: trace.getTracerProvider(), meterProvider: metrics.getMeterProvider() })

/** With an SDK that makes and ends spans, and drops them. */
export const byOpenTelemetrySdk: Observe = () => {
  const exporter = new InMemorySpanExporter()
  exporter.export = (_, done) => done({ code: 0 })
  return instrumentLocks({
    tracerProvider: new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
    meterProvider: new MeterProvider(),
  })
}
