import type { Attributes, BatchObservableCallback, Meter } from '@opentelemetry/api'
import type { Locks } from '../../index.ts'
import { BUCKETS } from '../buckets.ts'
import { type GroupOptions, keyGroups } from '../key-groups.ts'
import { type Labels, MEASURES, type MeasureName, measure, namesOf } from '../measures.ts'

export function meterLocks(locks: Pick<Locks, 'on'>, meter: Meter, options: GroupOptions): () => void {
  const groups = keyGroups(options)
  const durations = byName(namesOf('duration'), (name) =>
    meter.createHistogram(`holdfast.${name}.duration`, {
      ...about(name),
      advice: { explicitBucketBoundaries: [...BUCKETS] },
    }),
  )
  const counts = byName(namesOf('count'), (name) => meter.createCounter(metricName(name), about(name)))
  const levels = byName(namesOf('level'), (name) => meter.createUpDownCounter(metricName(name), about(name)))
  const oldest = byName(namesOf('oldest'), (name) =>
    meter.createObservableGauge(`holdfast.${name}.duration`, about(name)),
  )
  const measuring = measure(locks, groups, {
    duration: (name, seconds, labels) => durations[name].record(seconds, attributes(labels)),
    count: (name, by, labels) => counts[name].add(by, attributes(labels)),
    level: (name, by, labels) => levels[name].add(by, attributes(labels)),
  })
  const observe: BatchObservableCallback = (result) => {
    for (const name of namesOf('oldest'))
      for (const { seconds, labels } of measuring.oldest(name))
        result.observe(oldest[name], seconds, attributes(labels))
  }
  meter.addBatchObservableCallback(observe, Object.values(oldest))
  return () => {
    meter.removeBatchObservableCallback(observe, Object.values(oldest))
    measuring.stop()
  }
}

function byName<Name extends MeasureName, Instrument>(
  names: readonly Name[],
  make: (name: Name) => Instrument,
): Readonly<Record<Name, Instrument>> {
  return Object.fromEntries(names.map((name) => [name, make(name)])) as Record<Name, Instrument>
}

function metricName(name: MeasureName): string {
  return `holdfast.${name}`
}

function about(name: MeasureName): { readonly description: string; readonly unit: string } {
  return { description: MEASURES[name].about, unit: MEASURES[name].unit }
}

/** Written out, as every number needs it: `Object.fromEntries` took a sixth of the cost of tracing and metrics. */
function attributes({ store, group, election, outcome, reason, verb, was }: Labels): Attributes {
  const found: Attributes = { 'holdfast.store': store }
  if (group !== undefined) found['holdfast.group'] = group
  if (election !== undefined) found['holdfast.election'] = election
  if (outcome !== undefined) found['holdfast.outcome'] = outcome
  if (reason !== undefined) found['holdfast.reason'] = reason
  if (verb !== undefined) found['holdfast.verb'] = verb
  if (was !== undefined) found['holdfast.was'] = was
  return found
}
