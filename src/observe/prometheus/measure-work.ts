import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import { InvalidArgumentError } from '../../index.ts'
import { type BacklogScrapeOptions, BacklogWatch } from '../backlog-watch.ts'
import { BUCKETS, checkBuckets } from '../buckets.ts'
import type { GroupOptions } from '../key-groups.ts'
import {
  measureWorkEvents,
  WORK_MEASURES,
  type WorkLabels,
  type WorkMeasureName,
  type WorkSink,
  workGroups,
  workNamesOf,
} from '../work-measures.ts'
import { GaugeLevels } from './gauge-levels.ts'

/** Where the metrics go, and whose backlog they have. */
export interface MeasureWorkOptions extends GroupOptions, BacklogScrapeOptions {
  /** Where the metrics are registered: `register` of prom-client, or one of your own. */
  readonly registry: Pick<Registry, 'registerMetric' | 'getSingleMetric' | 'removeSingleMetric'>
  /** The upper bounds of the histograms in seconds. Default: 1 ms to 5 minutes. */
  readonly buckets?: readonly number[] | undefined
}

/**
 * Counts and times jobs, schedules, workers, partitions and limits of this process in a registry of prom-client:
 * `holdfast_job_wait_seconds`, `holdfast_ticks_total` and the others that docs/metrics-work.md lists. With `jobs`, each scrape also
 * asks the database how many jobs wait, and for how long. A database that is silent delays a scrape by `timeout` at most.
 *
 * ```ts
 * import { openJobs } from 'holdfast/jobs'
 * import { measureWork } from 'holdfast/observe/prometheus'
 * import { register } from 'prom-client'
 *
 * const jobs = await openJobs('postgres://localhost/shop')
 * const stop = measureWork({ registry: register, jobs })
 * console.log(await register.metrics())
 * stop()
 * await jobs.close()
 * ```
 *
 * @returns a function that stops it and removes the metrics.
 * @throws {InvalidArgumentError} when an option is invalid, or the registry has such metrics already: call it once.
 */
export function measureWork({
  registry,
  buckets = BUCKETS,
  jobs,
  timeout,
  ...options
}: MeasureWorkOptions): () => void {
  if (typeof registry?.registerMetric !== 'function')
    throw new InvalidArgumentError('Expected `registry` to be a Registry of prom-client, got none.')
  checkBuckets(buckets)
  const groups = workGroups(options)
  const watch = new BacklogWatch({ jobs, timeout }, groups.jobOf)
  for (const name of NAMES) {
    const { name: taken } = configuration(name)
    if (registry.getSingleMetric(taken) !== undefined)
      throw new InvalidArgumentError(
        `Expected \`registry\` to have no metric ${taken} yet, got one that has it.`,
      )
  }
  const { sink, remove } = metricsIn(registry as Registry, { buckets, watch })
  const stop = measureWorkEvents(groups, sink)
  return () => {
    stop()
    remove()
  }
}

const SEEN_BY_ALL: ReadonlySet<WorkMeasureName> = new Set(['partition_size', 'partition_members'])
const NAMES = Object.keys(WORK_MEASURES) as readonly WorkMeasureName[]

function metricsIn(
  registry: Registry,
  { buckets, watch }: { readonly buckets: readonly number[]; readonly watch: BacklogWatch },
): { readonly sink: WorkSink; readonly remove: () => void } {
  const registers = [registry]
  const durations = new Map<string, Histogram>()
  const counts = new Map<string, Counter>()
  const levels = new Map<string, GaugeLevels>()
  for (const name of workNamesOf('duration'))
    durations.set(name, new Histogram({ ...configuration(name), registers, buckets: [...buckets] }))
  for (const name of workNamesOf('count'))
    counts.set(name, new Counter({ ...configuration(name), registers }))
  for (const name of [...workNamesOf('level'), ...workNamesOf('value')]) {
    const present = new GaugeLevels()
    levels.set(name, present)
    const collect = function (this: Gauge) {
      present.showIn(this)
    }
    // All members of a partition see the same keys and the same members.
    const aggregator = SEEN_BY_ALL.has(name) ? 'max' : 'sum'
    new Gauge({ ...configuration(name), registers, collect, aggregator })
  }
  for (const name of watch.isAsking ? workNamesOf('asked') : []) {
    const collect = async function (this: Gauge) {
      const readings = await watch.look()
      this.reset()
      for (const reading of readings) if (reading.name === name) this.set(reading.labels, reading.value)
    }
    // All processes see the same database, so their numbers must not be added up.
    new Gauge({ ...configuration(name), registers, collect, aggregator: 'max' })
  }
  const sink: WorkSink = {
    duration: (name, seconds, labels) => durations.get(name)?.observe(labels, seconds),
    count: (name, by, labels) => counts.get(name)?.inc(labels, by),
    level: (name, by, labels) => levels.get(name)?.add(placeOf(labels), by, labels),
    value: (name, value, labels) => levels.get(name)?.set(placeOf(labels), value, labels),
  }
  const own = NAMES.map((of) => {
    const { name } = configuration(of)
    return { name, metric: registry.getSingleMetric(name) }
  })
  return {
    sink,
    remove: () => {
      // The registry may have been cleared, and have the metrics of a later call.
      for (const { name, metric } of own)
        if (metric !== undefined && registry.getSingleMetric(name) === metric)
          registry.removeSingleMetric(name)
    },
  }
}

/** A level has one label. */
function placeOf(labels: WorkLabels): string {
  return Object.values(labels).join(' ')
}

const SUFFIX = { duration: '_seconds', count: '_total', level: '', value: '', asked: '' } as const

function configuration(name: WorkMeasureName): { name: string; help: string; labelNames: string[] } {
  const { kind, about, labels } = WORK_MEASURES[name]
  const suffix = name === 'oldest_job' ? '_seconds' : SUFFIX[kind]
  return { name: `holdfast_${name}${suffix}`, help: about, labelNames: [...labels] }
}
