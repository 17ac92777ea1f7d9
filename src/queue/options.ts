import {
  type CountRange,
  checkOptions,
  expected,
  parseCount,
  parseFlag,
  parseFunction,
  parseSignal,
} from '../base/arguments.ts'
import { type Duration, type DurationRange, parseDuration, WAIT_RANGE } from '../base/duration.ts'
import type { StopOptions } from '../index.ts'
import type { TaskSettings } from './task.ts'

/** The bounds of a task queue. Both numbers have to be given. */
export interface TaskQueueOptions {
  /** How many tasks may be active at once, over all groups. `Infinity` for no bound. */
  readonly maxActiveTasks: number
  /** How many tasks may wait; one more is refused. Active tasks do not count. `Infinity` for no bound. */
  readonly maxQueueSize: number
  /**
   * How long a task may be active. Then its signal aborts, its promise rejects, and the
   * next task gets its place, **even if its function still runs**. Default: no bound.
   */
  readonly maxRun?: Duration | undefined
  /**
   * Called with what a function throws after its task was over: after `ack`, `maxRun` or `stop`. Nobody waits
   * for it any more. Default: a process warning, so that it is seen without ending the process.
   */
  readonly onLateError?: ((error: unknown, task: { readonly group: string | undefined }) => void) | undefined
}

/** Options of one task. */
export interface TaskOptions {
  /** Tasks of one group are active one at a time, in the order in which they were added. Default: no group. */
  readonly group?: string | undefined
  /** Removes the task while it waits; once it runs, aborts the signal that it was given. */
  readonly signal?: AbortSignal | undefined
  /** How long the task may wait before it starts; 0 for not at all. Default: no bound. */
  readonly wait?: Duration | undefined
  /** Replaces the bound of the queue for this task. */
  readonly maxRun?: Duration | undefined
}

/** How a task queue is stopped. */
export interface QueueStopOptions extends StopOptions {
  /** Abort the signals of active tasks at once, instead of letting them end undisturbed. Default: false. */
  readonly force?: boolean | undefined
}

export interface QueueSettings {
  readonly maxActiveTasks: number
  readonly maxQueueSize: number
  readonly maxRunMs: number
  readonly onLateError: TaskQueueOptions['onLateError']
}

export function parseQueueOptions(options: TaskQueueOptions): QueueSettings {
  checkOptions(options, QUEUE)
  const { maxActiveTasks, maxQueueSize, maxRun, onLateError } = options
  if (onLateError !== undefined) parseFunction('onLateError', onLateError)
  return {
    maxActiveTasks: parseCount('maxActiveTasks', maxActiveTasks, MANY),
    maxQueueSize: parseCount('maxQueueSize', maxQueueSize, MANY),
    maxRunMs: parseLimit('maxRun', maxRun),
    onLateError,
  }
}

export function parseTaskOptions(options: TaskOptions, defaults: QueueSettings): TaskSettings {
  checkOptions(options, TASK)
  const { group, wait, maxRun } = options
  if (group !== undefined && (typeof group !== 'string' || group === '')) {
    throw expected('group', 'a string that is not empty', group)
  }
  return {
    group,
    signal: parseSignal(options.signal),
    waitMs: wait === undefined ? Number.POSITIVE_INFINITY : parseDuration('wait', wait, WAIT_RANGE),
    maxRunMs: maxRun === undefined ? defaults.maxRunMs : parseLimit('maxRun', maxRun),
  }
}

export function parseStopOptions(options: QueueStopOptions): {
  readonly force: boolean
  readonly graceMs: number
} {
  checkOptions(options, ['force', 'grace'])
  const { grace } = options
  const force = parseFlag('force', options.force, false)
  if (grace !== undefined) return { force, graceMs: parseDuration('grace', grace, WAIT_RANGE) }
  return { force, graceMs: force ? 0 : Number.POSITIVE_INFINITY }
}

const QUEUE: readonly (keyof TaskQueueOptions)[] = ['maxActiveTasks', 'maxQueueSize', 'maxRun', 'onLateError']
const TASK: readonly (keyof TaskOptions)[] = ['group', 'signal', 'wait', 'maxRun']
const MANY: CountRange = { least: 1, most: Number.POSITIVE_INFINITY }
const LIMIT_RANGE: DurationRange = { ...WAIT_RANGE, leastMs: 1 }

function parseLimit(name: string, value: unknown): number {
  return value === undefined ? Number.POSITIVE_INFINITY : parseDuration(name, value, LIMIT_RANGE)
}
