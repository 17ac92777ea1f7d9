import type { Attributes, BatchObservableCallback, Meter, MetricOptions } from '@opentelemetry/api'
import { type BacklogScrapeOptions, BacklogWatch } from '../backlog-watch.ts'
import { BUCKETS } from '../buckets.ts'
import type { GroupOptions } from '../key-groups.ts'
import {
  measureWorkEvents,
  WORK_MEASURES,
  type WorkGroups,
  type WorkKind,
  type WorkLabels,
  type WorkMeasureName,
  workGroups,
  workNamesOf,
} from '../work-measures.ts'

/** @throws {InvalidArgumentError} at once; the function that begins comes later, in a listener. */
export function meterWork({
  jobs,
  timeout,
  ...options
}: GroupOptions & BacklogScrapeOptions): (meter: Meter) => () => void {
  const groups = workGroups(options)
  const watch = new BacklogWatch({ jobs, timeout }, groups.jobOf)
  return (meter) => beginWork(meter, { groups, watch })
}

function beginWork(
  meter: Meter,
  { groups, watch }: { readonly groups: WorkGroups; readonly watch: BacklogWatch },
): () => void {
  const durations = byName('duration', (name, about) =>
    meter.createHistogram(name, { ...about, advice: { explicitBucketBoundaries: [...BUCKETS] } }),
  )
  const counts = byName('count', (name, about) => meter.createCounter(name, about))
  const levels = byName('level', (name, about) => meter.createUpDownCounter(name, about))
  const values = byName('value', (name, about) => meter.createGauge(name, about))
  const asked = byName('asked', (name, about) => meter.createObservableGauge(name, about))
  const stop = measureWorkEvents(groups, {
    duration: (name, seconds, labels) => durations.get(name)?.record(seconds, attributes(labels)),
    count: (name, by, labels) => counts.get(name)?.add(by, attributes(labels)),
    level: (name, by, labels) => levels.get(name)?.add(by, attributes(labels)),
    value: (name, value, labels) => values.get(name)?.record(value, attributes(labels)),
  })
  const observe: BatchObservableCallback = async (result) => {
    for (const { name, value, labels } of await watch.look()) {
      const gauge = asked.get(name)
      if (gauge !== undefined) result.observe(gauge, value, attributes(labels))
    }
  }
  meter.addBatchObservableCallback(observe, [...asked.values()])
  return () => {
    meter.removeBatchObservableCallback(observe, [...asked.values()])
    stop()
  }
}

function byName<Instrument>(
  kind: WorkKind,
  make: (name: string, about: MetricOptions) => Instrument,
): ReadonlyMap<string, Instrument> {
  return new Map(
    workNamesOf(kind).map((name) => {
      const { about: description, unit } = WORK_MEASURES[name]
      return [name, make(metricName(name), { description, unit })]
    }),
  )
}

function metricName(name: WorkMeasureName): string {
  return WORK_MEASURES[name].unit === 's' ? `holdfast.${name}.duration` : `holdfast.${name}`
}

function attributes(labels: WorkLabels): Attributes {
  return Object.fromEntries(Object.entries(labels).map(([label, value]) => [`holdfast.${label}`, value]))
}
