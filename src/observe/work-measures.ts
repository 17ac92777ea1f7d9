import type { GroupOptions } from './key-groups.ts'
import { bounded, keyGroups } from './key-groups.ts'
import {
  jobEvents,
  jobScheduleEvents,
  limitEvents,
  partitionEvents,
  scheduleEvents,
  workerEvents,
} from './work-events.ts'

/**
 * How a number comes about. `level`: how many there are now in this process. `value`: the latest one. `asked`: the database is asked
 * for it at each scrape.
 */
export type WorkKind = 'duration' | 'count' | 'level' | 'value' | 'asked'

interface WorkMeasure<Kind extends WorkKind> {
  readonly kind: Kind
  readonly unit: string
  readonly labels: readonly WorkLabel[]
  readonly about: string
}

export type WorkLabel = 'job' | 'state' | 'schedule' | 'worker' | 'partition' | 'limit' | 'outcome'
export type WorkLabels = Readonly<Partial<Record<WorkLabel, string>>>

interface WorkKinds {
  readonly job_wait: 'duration'
  readonly job_run: 'duration'
  readonly job_attempts: 'count'
  readonly jobs_enqueued: 'count'
  readonly jobs_running: 'level'
  readonly jobs: 'asked'
  readonly oldest_job: 'asked'
  readonly jobs_answered: 'asked'
  readonly tick_delay: 'duration'
  readonly tick_run: 'duration'
  readonly ticks: 'count'
  readonly worker_term: 'duration'
  readonly worker_terms: 'count'
  readonly workers_working: 'level'
  readonly partition_keys: 'level'
  readonly partition_share: 'value'
  readonly partition_size: 'value'
  readonly partition_members: 'value'
  readonly partition_moves: 'count'
  readonly limit_wait: 'duration'
  readonly limit_run: 'duration'
  readonly limit_calls: 'count'
  readonly limit_running: 'level'
}

/** What is measured of jobs, schedules, workers, partitions and limits. All but what is asked for is about this process. */
export const WORK_MEASURES: {
  readonly [Name in WorkMeasureName]: WorkMeasure<WorkKinds[Name]>
} = {
  job_wait: duration(['job'], 'From when a job was ready until its handler was called.'),
  job_run: duration(['job', 'outcome'], 'How long handlers of jobs ran.'),
  job_attempts: count(
    '{attempt}',
    ['job', 'outcome'],
    'Attempts at jobs that have ended, by what became of the job.',
  ),
  jobs_enqueued: count('{job}', ['job'], 'Jobs that were enqueued.'),
  jobs_running: level('{job}', ['job'], 'Jobs whose handlers run now.'),
  jobs: asked('{job}', ['job', 'state'], 'Jobs in the database that are ready, blocked, delayed or dead.'),
  oldest_job: asked('s', ['job'], 'How long the oldest job has been ready or blocked.'),
  jobs_answered: asked('1', [], '1: the database has answered how many jobs there are. 0: it has not.'),
  tick_delay: duration(['schedule'], 'From the tick until its run began.'),
  tick_run: duration(['schedule', 'outcome'], 'How long runs of schedules took.'),
  ticks: count('{tick}', ['schedule', 'outcome'], 'Ticks, by what became of them.'),
  worker_term: duration(['worker', 'outcome'], 'How long terms of workers lasted, by why they ended.'),
  worker_terms: count('{term}', ['worker', 'outcome'], 'Terms of workers that have ended, by why.'),
  workers_working: level('{worker}', ['worker'], 'Workers whose work has not ended, also after a loss.'),
  partition_keys: level('{key}', ['partition'], 'Keys of a partition that are worked on now.'),
  partition_share: value('{key}', ['partition'], 'How many keys of a partition this process is to have.'),
  partition_size: value('{key}', ['partition'], 'How many keys a partition has.'),
  partition_members: value(
    '{process}',
    ['partition'],
    'How many processes take part in a partition, as this one sees it.',
  ),
  partition_moves: count(
    '{key}',
    ['partition', 'outcome'],
    'Keys that this process has taken, and those that it has given up, by why.',
  ),
  limit_wait: duration(['limit'], 'From the call until its work began.'),
  limit_run: duration(['limit'], 'How long work ran under a limit.'),
  limit_calls: count(
    '{call}',
    ['limit', 'outcome'],
    'Calls that ran, or were refused by `concurrency` or `rate`.',
  ),
  limit_running: level('{call}', ['limit'], 'Calls whose work runs now.'),
}

export type WorkMeasureName = keyof WorkKinds
export type WorkOfKind<Kind extends WorkKind> = {
  [Name in WorkMeasureName]: WorkKinds[Name] extends Kind ? Name : never
}[WorkMeasureName]

export function workNamesOf<Kind extends WorkKind>(kind: Kind): readonly WorkOfKind<Kind>[] {
  const names = Object.keys(WORK_MEASURES) as WorkMeasureName[]
  return names.filter((name) => WORK_MEASURES[name].kind === kind) as WorkOfKind<Kind>[]
}

/** Takes the numbers: OpenTelemetry or Prometheus. */
export interface WorkSink {
  duration(name: WorkOfKind<'duration'>, seconds: number, labels: WorkLabels): void
  count(name: WorkOfKind<'count'>, by: number, labels: WorkLabels): void
  level(name: WorkOfKind<'level'>, by: -1 | 0 | 1, labels: WorkLabels): void
  value(name: WorkOfKind<'value'>, value: number, labels: WorkLabels): void
}

/** Which name or key is which label. */
export interface WorkGroups {
  readonly jobOf: (name: string) => string
  readonly scheduleOf: (name: string) => string
  readonly workerOf: (key: string) => string
  readonly partitionOf: (name: string) => string
  readonly limitOf: (name: string) => string
}

/** @throws {InvalidArgumentError} as {@link keyGroups}. */
export function workGroups({ group, maxGroups = 50 }: GroupOptions): WorkGroups {
  const groups = (): ((key: string) => string) => keyGroups({ group, maxGroups }).groupOf
  const names = (): ((name: string) => string) => bounded((name) => name, maxGroups)
  return { scheduleOf: groups(), workerOf: groups(), jobOf: names(), partitionOf: names(), limitOf: names() }
}

/** Turns events into numbers, until the function that it returns is called. */
export function measureWorkEvents(groups: WorkGroups, sink: WorkSink): () => void {
  const running = new NowRunning(sink)
  const shares = new PartitionShares(sink)
  const begin = beginAtZero(sink)
  const { jobOf, scheduleOf, workerOf, partitionOf, limitOf } = groups
  const stops = [
    jobEvents.on('enqueued', ({ name, count: by }) => {
      const job = begin('job', jobOf(name))
      sink.count('jobs_enqueued', by, { job })
    }),
    jobEvents.on('begun', ({ run, name, waitedMs }) => {
      const job = begin('job', jobOf(name))
      running.begun('jobs_running', run, { job })
      sink.duration('job_wait', waitedMs / 1000, { job })
    }),
    jobEvents.on('ended', ({ run, name, ranMs, outcome }) => {
      const labels = { job: begin('job', jobOf(name)), outcome }
      running.ended(run)
      sink.duration('job_run', ranMs / 1000, labels)
      sink.count('job_attempts', 1, labels)
    }),
    scheduleEvents.on('begun', ({ name, lateMs }) => {
      const schedule = begin('schedule', scheduleOf(name))
      sink.duration('tick_delay', lateMs / 1000, { schedule })
    }),
    scheduleEvents.on('ended', ({ name, ranMs, result }) => {
      const labels = { schedule: begin('schedule', scheduleOf(name)), outcome: result }
      sink.duration('tick_run', ranMs / 1000, labels)
      sink.count('ticks', 1, labels)
    }),
    scheduleEvents.on('overlapped', ({ name, event }) => {
      sink.count('ticks', 1, { schedule: begin('schedule', scheduleOf(name)), outcome: event })
    }),
    scheduleEvents.on('missed', ({ name, event, count: by }) => {
      sink.count('ticks', by, { schedule: begin('schedule', scheduleOf(name)), outcome: event })
    }),
    jobScheduleEvents.on('fired', ({ id, event }) => {
      sink.count('ticks', 1, { schedule: begin('schedule', scheduleOf(id)), outcome: event })
    }),
    jobScheduleEvents.on('left-out', ({ id, reason, count: by }) => {
      sink.count('ticks', by, { schedule: begin('schedule', scheduleOf(id)), outcome: reason })
    }),
    workerEvents.on('begun', ({ key, run }) => {
      running.begun('workers_working', run, { worker: begin('worker', workerOf(key)) })
    }),
    workerEvents.on('ended', ({ key, run, ranMs, reason }) => {
      const labels = { worker: begin('worker', workerOf(key)), outcome: reason }
      running.ended(run)
      sink.duration('worker_term', ranMs / 1000, labels)
      sink.count('worker_terms', 1, labels)
    }),
    partitionEvents.on('shared', ({ run, name, share, keys, members }) => {
      const partition = begin('partition', partitionOf(name))
      // Without a number of keys, a partition none of whose work can start would raise no alarm.
      sink.level('partition_keys', 0, { partition })
      shares.shared(run, { partition, share, keys, members })
    }),
    partitionEvents.on('left', ({ run }) => shares.left(run)),
    partitionEvents.on('taken', ({ name, run, event }) => {
      const partition = begin('partition', partitionOf(name))
      running.begun('partition_keys', run, { partition })
      sink.count('partition_moves', 1, { partition, outcome: event })
    }),
    partitionEvents.on('given', ({ name, run, reason }) => {
      running.ended(run)
      sink.count('partition_moves', 1, { partition: begin('partition', partitionOf(name)), outcome: reason })
    }),
    limitEvents.on('begun', ({ name, call, waitedMs }) => {
      const limit = begin('limit', limitOf(name))
      running.begun('limit_running', call, { limit })
      sink.duration('limit_wait', waitedMs / 1000, { limit })
    }),
    limitEvents.on('ended', ({ name, call, ranMs }) => {
      const limit = begin('limit', limitOf(name))
      running.ended(call)
      sink.duration('limit_run', ranMs / 1000, { limit })
      sink.count('limit_calls', 1, { limit, outcome: 'ran' })
    }),
    limitEvents.on('refused', ({ name, reason }) => {
      sink.count('limit_calls', 1, { limit: begin('limit', limitOf(name)), outcome: reason })
    }),
  ]
  return () => {
    for (const stop of stops) stop()
    running.clear()
    shares.clear()
  }
}

/** What runs now. What began before the measuring must not be counted when it ends. */
class NowRunning {
  readonly #sink: WorkSink
  /** By the number of the run. */
  readonly #there = new Map<number, { readonly name: WorkOfKind<'level'>; readonly labels: WorkLabels }>()

  constructor(sink: WorkSink) {
    this.#sink = sink
  }

  begun(name: WorkOfKind<'level'>, run: number, labels: WorkLabels): void {
    if (this.#there.has(run)) return
    this.#there.set(run, { name, labels })
    this.#sink.level(name, 1, labels)
  }

  ended(run: number): void {
    const one = this.#there.get(run)
    if (one === undefined) return
    this.#there.delete(run)
    this.#sink.level(one.name, -1, one.labels)
  }

  clear(): void {
    for (const run of [...this.#there.keys()]) this.ended(run)
  }
}

interface PartitionShare {
  readonly partition: string
  readonly share: number
  readonly keys: number
  readonly members: number
}

/** What this process is to have of partitions. One that is stopped counts no more: its last numbers would raise an alarm. */
class PartitionShares {
  readonly #sink: WorkSink
  /** By the number of the partition object. Two of one name are there while one replaces the other. */
  readonly #there = new Map<number, PartitionShare>()

  constructor(sink: WorkSink) {
    this.#sink = sink
  }

  shared(run: number, share: PartitionShare): void {
    this.#there.set(run, share)
    this.#report(share)
  }

  left(run: number): void {
    const share = this.#there.get(run)
    if (share === undefined) return
    this.#there.delete(run)
    this.#report(share)
  }

  clear(): void {
    for (const run of [...this.#there.keys()]) this.left(run)
  }

  #report({ partition }: PartitionShare): void {
    const all = Array.from(this.#there.values()).filter((one) => one.partition === partition)
    const sum = all.reduce((total, { share }) => total + share, 0)
    this.#sink.value('partition_share', sum, { partition })
    this.#sink.value('partition_size', Math.max(0, ...all.map(({ keys }) => keys)), { partition })
    this.#sink.value('partition_members', Math.max(0, ...all.map(({ members }) => members)), { partition })
  }
}

/** Starts counters at 0. A counter that first appears as 1 has no rate, so the first failure would raise no alarm. */
function beginAtZero(sink: WorkSink): (label: keyof typeof FIRST, name: string) => string {
  const known = new Set<string>()
  return (label, name) => {
    const place = `${label} ${name}`
    if (known.has(place)) return name
    known.add(place)
    const [counter, outcomes] = FIRST[label]
    for (const outcome of outcomes) sink.count(counter, 0, { [label]: name, outcome })
    return name
  }
}

const FIRST = {
  job: ['job_attempts', ['completed', 'delayed', 'dead', 'lost', 'unknown']],
  schedule: ['ticks', ['ok', 'failed', 'interrupted', 'missed', 'overlapped']],
  worker: ['worker_terms', ['stopped', 'lost', 'failed']],
  partition: ['partition_moves', ['taken', 'stopped', 'lost', 'failed']],
  limit: ['limit_calls', ['ran', 'concurrency', 'rate']],
} as const satisfies Record<string, readonly [WorkOfKind<'count'>, readonly string[]]>

function duration(labels: readonly WorkLabel[], about: string): WorkMeasure<'duration'> {
  return { kind: 'duration', unit: 's', labels, about }
}

function count(unit: string, labels: readonly WorkLabel[], about: string): WorkMeasure<'count'> {
  return { kind: 'count', unit, labels, about }
}

function level(unit: string, labels: readonly WorkLabel[], about: string): WorkMeasure<'level'> {
  return { kind: 'level', unit, labels, about }
}

function value(unit: string, labels: readonly WorkLabel[], about: string): WorkMeasure<'value'> {
  return { kind: 'value', unit, labels, about }
}

function asked(unit: string, labels: readonly WorkLabel[], about: string): WorkMeasure<'asked'> {
  return { kind: 'asked', unit, labels, about }
}
