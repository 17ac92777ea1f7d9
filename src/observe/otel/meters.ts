import type { Attributes, BatchObservableCallback, Meter, ObservableGauge } from '@opentelemetry/api'
import { processWide } from '../../base/process-wide.ts'
import type { Locks } from '../../index.ts'
import { BUCKETS } from '../buckets.ts'
import { type GroupOptions, type KnownNames, keyGroups, newKnownNames } from '../key-groups.ts'
import {
  type Labels,
  MEASURES,
  type MeasureName,
  type Measuring,
  measure,
  namesOf,
  type OfKind,
  oldestLast,
} from '../measures.ts'

/** @throws {InvalidArgumentError} at once; the function that begins comes later, in a listener. */
export function meterLocks(locks: Pick<Locks, 'on'>, options: GroupOptions): (meter: Meter) => () => void {
  keyGroups(options)
  return (meter) => beginLocks(locks, meter, options)
}

function beginLocks(locks: Pick<Locks, 'on'>, meter: Meter, options: GroupOptions): () => void {
  const shared = sharedMeter(meter)
  const groups = keyGroups(options, shared.names)
  const durations = byName(namesOf('duration'), (name) =>
    meter.createHistogram(`holdfast.${name}.duration`, {
      ...about(name),
      advice: { explicitBucketBoundaries: [...BUCKETS] },
    }),
  )
  const counts = byName(namesOf('count'), (name) => meter.createCounter(metricName(name), about(name)))
  const levels = byName(namesOf('level'), (name) => meter.createUpDownCounter(metricName(name), about(name)))
  const measuring = measure(locks, groups, {
    duration: (name, seconds, labels) => durations[name].record(seconds, attributes(labels)),
    count: (name, by, labels) => counts[name].add(by, attributes(labels)),
    level: (name, by, labels) => levels[name].add(by, attributes(labels)),
  })
  shared.add(measuring)
  return () => {
    shared.delete(measuring)
    measuring.stop()
  }
}

function sharedMeter(meter: Meter): SharedMeter {
  const shared = sharedMeters.get(meter) ?? new SharedMeter(meter)
  sharedMeters.set(meter, shared)
  return shared
}

const sharedMeters = processWide('meters', () => new WeakMap<Meter, SharedMeter>())

/** What the calls for one meter share. If each had a callback of its own, the last one would hide the ages that the others observe. */
class SharedMeter {
  readonly names: KnownNames = newKnownNames()
  readonly #meter: Meter
  readonly #calls = new Set<Measuring>()
  #gauges: Readonly<Record<OfKind<'oldest'>, ObservableGauge>> | undefined
  readonly #observe: BatchObservableCallback = (result) => {
    const gauges = this.#oldest
    for (const name of namesOf('oldest'))
      for (const { seconds, labels } of oldestLast(this.#calls, name))
        result.observe(gauges[name], seconds, attributes(labels))
  }

  constructor(meter: Meter) {
    this.#meter = meter
  }

  add(call: Measuring): void {
    if (this.#calls.size === 0)
      this.#meter.addBatchObservableCallback(this.#observe, Object.values(this.#oldest))
    this.#calls.add(call)
  }

  delete(call: Measuring): void {
    this.#calls.delete(call)
    if (this.#calls.size === 0)
      this.#meter.removeBatchObservableCallback(this.#observe, Object.values(this.#oldest))
  }

  get #oldest(): Readonly<Record<OfKind<'oldest'>, ObservableGauge>> {
    this.#gauges ??= byName(namesOf('oldest'), (name) =>
      this.#meter.createObservableGauge(`holdfast.${name}.duration`, about(name)),
    )
    return this.#gauges
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
