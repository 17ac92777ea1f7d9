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
import type { StopOptions, TaskOptions, TaskQueueOptions } from './task-queue.ts'

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
