import {
  type CountRange,
  checkOptions,
  expected,
  parseCount,
  parseFlag,
  parseFunction,
  parseSignal,
} from '../base/arguments.ts'
import { type DurationRange, parseDuration, WAIT_RANGE } from '../base/duration.ts'
import type { TaskSettings } from './task.ts'

export interface TaskQueueOptions {
  /** How many tasks may be active at once, over all groups. `Infinity` for no bound. */
  readonly maxActiveTasks: number
  /** How many tasks may wait; one more is refused. Active tasks do not count. `Infinity` for no bound. */
  readonly maxQueueSize: number
  /**
   * How long a task may be active, in milliseconds or as `'30s'`. Then its signal aborts, its promise rejects, and the
   * next task gets its place, **even if its function still runs**. Default: no bound.
   */
  readonly maxTaskDuration?: number | string | undefined
  /**
   * Called with what a function throws after its task was over: after `ack`, `maxTaskDuration` or `stop`. Nobody waits
   * for it any more. Default: a process warning, so that it is seen without ending the process.
   */
  readonly onLateError?: ((error: unknown, task: { readonly group: string | undefined }) => void) | undefined
}

export interface TaskOptions {
  /** Tasks of one group are active one at a time, in the order in which they were added. Default: no group. */
  readonly group?: string | undefined
  /** Removes the task while it waits; once it runs, aborts the signal that it was given. */
  readonly signal?: AbortSignal | undefined
  /** How long the task may wait before it starts: milliseconds or `'5s'`, 0 for not at all. Default: no bound. */
  readonly wait?: number | string | undefined
  /** Replaces the bound of the queue for this task. */
  readonly maxTaskDuration?: number | string | undefined
}

export interface StopOptions {
  /** Abort the signals of active tasks at once, instead of letting them end undisturbed. Default: false. */
  readonly force?: boolean | undefined
  /**
   * How long active tasks have to end, in milliseconds or as `'5s'`. What is active then is given up: its signal aborts
   * and its promise rejects. Default: no bound, and 0 with `force`.
   */
  readonly timeout?: number | string | undefined
}

export interface QueueSettings {
  readonly maxActiveTasks: number
  readonly maxQueueSize: number
  readonly maxTaskDurationMs: number
  readonly onLateError: TaskQueueOptions['onLateError']
}

export function parseQueueOptions(options: TaskQueueOptions): QueueSettings {
  checkOptions(options, QUEUE)
  const { maxActiveTasks, maxQueueSize, maxTaskDuration, onLateError } = options
  if (onLateError !== undefined) parseFunction('onLateError', onLateError)
  return {
    maxActiveTasks: parseCount('maxActiveTasks', maxActiveTasks, MANY),
    maxQueueSize: parseCount('maxQueueSize', maxQueueSize, MANY),
    maxTaskDurationMs: parseLimit('maxTaskDuration', maxTaskDuration),
    onLateError,
  }
}

export function parseTaskOptions(options: TaskOptions, defaults: QueueSettings): TaskSettings {
  checkOptions(options, TASK)
  const { group, wait, maxTaskDuration } = options
  if (group !== undefined && (typeof group !== 'string' || group === '')) {
    throw expected('group', 'a string that is not empty', group)
  }
  return {
    group,
    signal: parseSignal(options.signal),
    waitMs: wait === undefined ? Number.POSITIVE_INFINITY : parseDuration('wait', wait, WAIT_RANGE),
    maxDurationMs:
      maxTaskDuration === undefined
        ? defaults.maxTaskDurationMs
        : parseLimit('maxTaskDuration', maxTaskDuration),
  }
}

export function parseStopOptions(options: StopOptions): {
  readonly force: boolean
  readonly timeoutMs: number
} {
  checkOptions(options, ['force', 'timeout'])
  const { timeout } = options
  const force = parseFlag('force', options.force, false)
  if (timeout !== undefined) return { force, timeoutMs: parseDuration('timeout', timeout, WAIT_RANGE) }
  return { force, timeoutMs: force ? 0 : Number.POSITIVE_INFINITY }
}

const QUEUE: readonly (keyof TaskQueueOptions)[] = [
  'maxActiveTasks',
  'maxQueueSize',
  'maxTaskDuration',
  'onLateError',
]
const TASK: readonly (keyof TaskOptions)[] = ['group', 'signal', 'wait', 'maxTaskDuration']
const MANY: CountRange = { least: 1, most: Number.POSITIVE_INFINITY }
const LIMIT_RANGE: DurationRange = { ...WAIT_RANGE, leastMs: 1 }

function parseLimit(name: string, value: unknown): number {
  return value === undefined ? Number.POSITIVE_INFINITY : parseDuration(name, value, LIMIT_RANGE)
}
