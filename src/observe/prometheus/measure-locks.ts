import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import { processWide } from '../../base/process-wide.ts'
import { InvalidArgumentError, type Locks, lockEvents } from '../../index.ts'
import { BUCKETS, checkBuckets } from '../buckets.ts'
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
import { GaugeLevels } from './gauge-levels.ts'

/** Which locks to count, and where. */
export interface MeasureOptions extends GroupOptions {
  /** Where the metrics are registered: `register` of prom-client, or one of your own. */
  readonly registry: Pick<Registry, 'registerMetric' | 'getSingleMetric' | 'removeSingleMetric'>
  /** The locks to count. Default: all locks of this process. */
  readonly locks?: Pick<Locks, 'on'> | undefined
  /** The upper bounds of the histograms in seconds. The first call for a registry decides. Default: 1 ms to 5 minutes. */
  readonly buckets?: readonly number[] | undefined
}

/**
 * Counts and times locks in a registry of prom-client: `holdfast_wait_seconds`, `holdfast_hold_seconds`,
 * `holdfast_losses_total` and the others that docs/metrics.md lists. Keys are counted by group, so that they are not too many.
 *
 * Two calls for the same locks count everything twice. Call it once for all locks of the process, or once for each
 * `createLocks`; the calls share the metrics of their registry.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { memoryStore } from 'holdfast/memory'
 * import { measureLocks } from 'holdfast/observe/prometheus'
 * import { register } from 'prom-client'
 *
 * const stop = measureLocks({ registry: register })
 * const locks = createLocks(memoryStore())
 * await locks.withLock('invoice:42', async () => {})
 * console.log(await register.metrics())
 * stop()
 * await locks.close()
 * ```
 *
 * @returns a function that stops it; the last one of a registry removes the metrics.
 * @throws {InvalidArgumentError} when `registry`, `group`, `maxGroups` or `buckets` is invalid, or the registry already has a
 *   metric of the same name from elsewhere.
 */
export function measureLocks({
  registry,
  locks = lockEvents,
  buckets = BUCKETS,
  ...options
}: MeasureOptions): () => void {
  if (typeof registry?.registerMetric !== 'function')
    throw new InvalidArgumentError('Expected `registry` to be a Registry of prom-client, got none.')
  const known = boards.get(registry)
  // The registry may have been cleared, as tests do.
  const shared = known?.isThere === true ? known : undefined
  const names = shared?.names ?? newKnownNames()
  const groups = keyGroups(options, names)
  checkBuckets(buckets)
  const board = shared ?? new Board(registry, { buckets, names })
  boards.set(registry, board)
  const measuring = measure(locks, groups, board)
  board.users.add(measuring)
  return () => {
    if (!board.users.delete(measuring)) return
    measuring.stop()
    if (board.users.size > 0 || !board.isThere) return
    board.remove()
    boards.delete(registry)
  }
}

const boards = processWide('boards of registries', () => new WeakMap<object, Board>())

/** The metrics of one registry, and the calls that count in them. */
class Board {
  readonly users = new Set<Measuring>()
  readonly names: KnownNames
  readonly #registry: MeasureOptions['registry']
  readonly #durations: ReadonlyMap<string, Histogram>
  readonly #counts: ReadonlyMap<string, Counter>
  readonly #levels = new Map<string, GaugeLevels>()

  constructor(
    registry: MeasureOptions['registry'],
    { buckets, names }: { readonly buckets: readonly number[]; readonly names: KnownNames },
  ) {
    this.#registry = registry
    this.names = names
    for (const name of Object.keys(MEASURES) as MeasureName[]) refuseTaken(registry, configuration(name).name)
    const registers = [registry as Registry]
    const make = <Kind extends 'duration' | 'count', Metric>(
      kind: Kind,
      metric: new (
        of: ReturnType<typeof configuration> & { registers: Registry[]; buckets: number[] },
      ) => Metric,
    ): Map<string, Metric> =>
      new Map(
        namesOf(kind).map((name) => [
          name,
          new metric({ ...configuration(name), registers, buckets: [...buckets] }),
        ]),
      )
    this.#durations = make('duration', Histogram)
    this.#counts = make('count', Counter)
    for (const name of namesOf('level')) {
      const levels = new GaugeLevels()
      this.#levels.set(name, levels)
      const collect = function (this: Gauge) {
        levels.showIn(this)
      }
      new Gauge({ ...configuration(name), registers, collect })
    }
    for (const name of namesOf('oldest')) {
      const { users } = this
      const collect = function (this: Gauge) {
        showOldest(this, name, users)
      }
      // Where the metrics of several processes are aggregated, the oldest counts.
      new Gauge({ ...configuration(name), registers, collect, aggregator: 'max' })
    }
  }

  /** Whether the registry still has these metrics. */
  get isThere(): boolean {
    return this.#registry.getSingleMetric(configuration('wait').name) === this.#durations.get('wait')
  }

  duration(name: OfKind<'duration'>, seconds: number, labels: Labels): void {
    this.#durations.get(name)?.observe(labels, seconds)
  }

  count(name: OfKind<'count'>, by: 0 | 1, labels: Labels): void {
    this.#counts.get(name)?.inc(labels, by)
  }

  level(name: OfKind<'level'>, by: 0 | 1 | -1, labels: Labels): void {
    this.#levels.get(name)?.add(`${labels.store} ${labels.group} ${labels.election}`, by, labels)
  }

  remove(): void {
    for (const name of Object.keys(MEASURES) as MeasureName[])
      this.#registry.removeSingleMetric(configuration(name).name)
  }
}

/** Called before anything is registered, so that a refused registry stays unchanged. */
function refuseTaken(registry: MeasureOptions['registry'], name: string): void {
  if (registry.getSingleMetric(name) === undefined) return
  throw new InvalidArgumentError(`Expected \`registry\` to have no metric ${name} yet, got one that has it.`)
}

function showOldest(gauge: Gauge, name: OfKind<'oldest'>, users: Iterable<Measuring>): void {
  gauge.reset()
  for (const { labels, seconds } of oldestLast(users, name)) gauge.set(labels, seconds)
}

const SUFFIX = { duration: '_seconds', count: '_total', level: '', oldest: '_seconds' } as const

function configuration(name: MeasureName): { name: string; help: string; labelNames: string[] } {
  const { kind, about, labels } = MEASURES[name]
  return { name: `holdfast_${name}${SUFFIX[kind]}`, help: about, labelNames: [...labels] }
}
