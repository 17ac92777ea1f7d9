import { type DurationRange, parseDuration, show, WAIT_RANGE } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'
import type { TaskSettings } from './task.ts'
import type { StopOptions, TaskOptions, TaskQueueOptions } from './task-queue.ts'

export interface QueueSettings {
  readonly maxActiveTasks: number
  readonly maxQueueSize: number
  readonly maxTaskDurationMs: number
  readonly onLateError: TaskQueueOptions['onLateError']
}

export function parseQueueOptions(options: TaskQueueOptions): QueueSettings {
  const { maxActiveTasks, maxQueueSize, maxTaskDuration, onLateError, ...unknown } = parseObject(options)
  refuseUnknown(unknown, '`maxActiveTasks`, `maxQueueSize`, `maxTaskDuration` and `onLateError`')
  if (onLateError !== undefined && typeof onLateError !== 'function') {
    throw expected('onLateError', 'a function', onLateError)
  }
  return {
    maxActiveTasks: parseCount('maxActiveTasks', maxActiveTasks),
    maxQueueSize: parseCount('maxQueueSize', maxQueueSize),
    maxTaskDurationMs: parseLimit('maxTaskDuration', maxTaskDuration),
    onLateError,
  }
}

export function parseTaskOptions(options: TaskOptions, defaults: QueueSettings): TaskSettings {
  const { group, signal, wait, maxTaskDuration, ...unknown } = parseObject(options)
  refuseUnknown(unknown, '`group`, `signal`, `wait` and `maxTaskDuration`')
  if (group !== undefined && (typeof group !== 'string' || group === '')) {
    throw expected('group', 'a string that is not empty', group)
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw expected('signal', 'an AbortSignal', signal)
  }
  return {
    group,
    signal,
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
  const { force = false, timeout, ...unknown } = parseObject(options)
  refuseUnknown(unknown, '`force` and `timeout`')
  if (typeof force !== 'boolean') throw expected('force', 'true or false', force)
  if (timeout !== undefined) return { force, timeoutMs: parseDuration('timeout', timeout, WAIT_RANGE) }
  return { force, timeoutMs: force ? 0 : Number.POSITIVE_INFINITY }
}

export function parseFunction(name: string, value: unknown): void {
  if (typeof value !== 'function') throw expected(name, 'a function', value)
}

const LIMIT_RANGE: DurationRange = { ...WAIT_RANGE, leastMs: 1 }

function parseObject<Options extends object>(options: Options): Options {
  if (typeof options !== 'object' || options === null) throw expected('options', 'an object', options)
  return options
}

function refuseUnknown(unknown: object, known: string): void {
  const [name] = Object.keys(unknown)
  if (name === undefined) return
  throw new InvalidArgumentError(`Expected \`options\` to have nothing but ${known}, got \`${name}\`.`)
}

function parseCount(name: string, value: unknown): number {
  if (value === Number.POSITIVE_INFINITY) return value
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 1) return value
  throw expected(name, 'a whole number from 1 on, or Infinity', value)
}

function parseLimit(name: string, value: unknown): number {
  return value === undefined ? Number.POSITIVE_INFINITY : parseDuration(name, value, LIMIT_RANGE)
}

function expected(name: string, what: string, value: unknown): InvalidArgumentError {
  return new InvalidArgumentError(`Expected \`${name}\` to be ${what}, got ${show(value)}.`)
}
