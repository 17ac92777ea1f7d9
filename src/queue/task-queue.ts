import { parseFunction } from '../base/arguments.ts'
import { callListener } from '../base/listener.ts'
import { SignalWatch } from '../base/signal-watch.ts'
import { reportOf } from '../base/thrown.ts'
import { splitWork, type WorkArguments } from '../base/work.ts'
import { ClosedError, QueueFullError } from '../errors.ts'
import {
  parseQueueOptions,
  parseStopOptions,
  parseTaskOptions,
  type QueueSettings,
  type QueueStopOptions,
  type TaskOptions,
  type TaskQueueOptions,
} from './options.ts'
import {
  type QueuedTask,
  type RunContext,
  Task,
  type TaskContext,
  type TaskOwner,
  type TaskWork,
  waitedTooLong,
} from './task.ts'
import { GroupTurns, type Place } from './turns.ts'

/** A task that is over when its function is. */
export type RunTask<T> = (context: RunContext) => T | PromiseLike<T>
/** A task that is over when its function acknowledges. */
export type EnqueuedTask<T> = (context: TaskContext<T>) => unknown

/** See {@link createTaskQueue}. */
export interface TaskQueue {
  /** How many tasks wait. */
  readonly size: number
  /** How many tasks have a place: they run, or start in this very tick. */
  readonly active: number
  /**
   * Runs a function when it is its turn and resolves with its result. The task is over when the function is.
   *
   * The function never starts before this call has returned. A task that waits for another task of its own group waits
   * for ever; so do tasks that wait for further tasks while all `maxActiveTasks` places are taken by their like.
   *
   * @throws what the function throws, and otherwise as {@link enqueue}, but for the missing `ack`.
   */
  run<T>(task: RunTask<T>): Promise<T>
  run<T>(options: TaskOptions | undefined, task: RunTask<T>): Promise<T>
  /**
   * Runs a function when it is its turn and resolves with what it acknowledges. The task is over at `ack(value)`: the
   * next one starts, while the function may go on with work that nobody has to wait for. To keep the place longer,
   * acknowledge later: the function has to stay pending until then.
   *
   * @throws what the function throws before it acknowledges.
   * @throws {TaskFailedError} the function ended without `ack`, or `maxRun` is over.
   * @throws {QueueFullError} already `maxQueueSize` tasks wait.
   * @throws {StartTimeoutError} it was not started within `wait`.
   * @throws {ClosedError} the queue is stopped or drained.
   * @throws {InvalidArgumentError} an option is not what it should be.
   * @throws the reason of `signal`, when that aborts before the function is called.
   */
  enqueue<T = void>(task: EnqueuedTask<T>): Promise<T>
  enqueue<T = void>(options: TaskOptions | undefined, task: EnqueuedTask<T>): Promise<T>
  /** Resolves when no task is active and none waits. */
  onIdle(): Promise<void>
  /**
   * Resolves when fewer than `maxQueueSize` tasks wait, for a producer that is faster than its tasks. Nothing is
   * reserved: of several producers that are woken together, a late one may find the queue full again.
   */
  onRoom(): Promise<void>
  /** Takes no new tasks, and resolves when all that were added are over. */
  drain(): Promise<void>
  /**
   * Takes no new tasks, rejects all that wait with a {@link ClosedError}, and resolves when the active ones are over. A task
   * that is active after `grace` is given up: its signal aborts and its promise rejects. `grace` has no bound by default, and is
   * 0 with `force`.
   * Safe to call again, also with stronger options. A task that awaits it without `grace` waits for itself.
   */
  stop(options?: QueueStopOptions): Promise<void>
  /** `stop()` without options, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/**
 * A queue of tasks inside this process: tasks of one group run one at a time and in order, groups run side by side, and
 * nothing grows without bound. Groups take turns, so a busy one never keeps another waiting for more than a turn; a task
 * without a group counts as a group of its own. Its timers do not keep the process alive.
 *
 * Nothing is shared with other processes and nothing survives this one: for that, take a lock or a job table.
 *
 * @throws {InvalidArgumentError} an option is not what it should be.
 *
 * ```ts
 * import { createTaskQueue } from 'holdfast/queue'
 *
 * const queue = createTaskQueue({ maxActiveTasks: 4, maxQueueSize: 1000 })
 * const balance = await queue.run({ group: 'account:42' }, () => 100 - 30)
 * await queue.stop()
 * ```
 */
export function createTaskQueue(options: TaskQueueOptions): TaskQueue {
  return new GroupedTaskQueue(parseQueueOptions(options))
}

/** Invariant: no task that could start waits. So a task that finds a free place and a free group overtakes nobody. */
class GroupedTaskQueue implements TaskQueue, TaskOwner {
  readonly #settings: QueueSettings
  readonly #turns = new GroupTurns<QueuedTask>()
  /** All tasks that are not over, in order of arrival. */
  readonly #places = new Map<QueuedTask, Place<QueuedTask>>()
  readonly #signals = new SignalWatch()
  #active = 0
  #closed = false
  #whenIdle: (() => void)[] = []
  #whenRoom: (() => void)[] = []

  constructor(settings: QueueSettings) {
    this.#settings = settings
  }

  get size(): number {
    return this.#turns.size
  }

  get active(): number {
    return this.#active
  }

  run<T>(...rest: WorkArguments<TaskOptions, RunTask<T>>): Promise<T> {
    const [options = {}, task] = splitWork(rest)
    return this.#add<T>({ until: 'settled', run: task }, options)
  }

  enqueue<T = void>(...rest: WorkArguments<TaskOptions, EnqueuedTask<T>>): Promise<T> {
    const [options = {}, task] = splitWork(rest)
    return this.#add<T>({ until: 'acknowledged', run: task }, options)
  }

  async onIdle(): Promise<void> {
    if (this.#places.size > 0) await new Promise<void>((resolve) => this.#whenIdle.push(resolve))
  }

  async onRoom(): Promise<void> {
    if (!this.#hasRoom()) await new Promise<void>((resolve) => this.#whenRoom.push(resolve))
  }

  async drain(): Promise<void> {
    this.#closed = true
    await this.onIdle()
  }

  async stop(options: QueueStopOptions = {}): Promise<void> {
    const { force, graceMs } = parseStopOptions(options)
    this.#closed = true
    for (const task of this.#places.keys()) if (task.isWaiting) task.giveUp(stopped(task.settings.group))
    if (force) for (const task of this.#places.keys()) task.abort(stopped(task.settings.group))
    if (graceMs > 0) await this.#idleWithin(graceMs)
    for (const task of this.#places.keys()) task.giveUp(stopped(task.settings.group))
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  ended(task: QueuedTask, from: 'waiting' | 'active'): void {
    const place = this.#places.get(task)
    if (place === undefined) throw new Error('A task ended that is not in the queue')
    this.#places.delete(task)
    if (task.settings.signal !== undefined) this.#signals.remove(task.settings.signal, task)
    if (from === 'waiting') this.#turns.leave(place)
    else {
      this.#active -= 1
      this.#turns.end(place)
      this.#admit()
    }
    this.#tell()
  }

  failedLate(error: unknown, { settings: { group } }: QueuedTask): void {
    const { onLateError = warnOfLateError } = this.#settings
    callListener(
      () => onLateError(error, { group }),
      (ownError) => warn('`onLateError` itself failed.', ownError),
    )
  }

  #add<T>(work: TaskWork<T>, options: TaskOptions): Promise<T> {
    // Whatever is thrown here rejects the promise.
    return new Promise<T>((resolve, reject) => {
      parseFunction('task', work.run)
      const settings = parseTaskOptions(options, this.#settings)
      const { group, signal, waitMs } = settings
      signal?.throwIfAborted()
      if (this.#closed) throw closed(group)
      const startsAtOnce = this.#active < this.#settings.maxActiveTasks && this.#turns.isFree(group)
      if (!startsAtOnce && waitMs === 0) throw waitedTooLong(waitMs, group)
      if (!startsAtOnce && !this.#hasRoom()) throw full(this.#settings.maxQueueSize, group)

      const task = new Task<T>(work, settings, this, resolve, reject)
      this.#places.set(task, this.#turns.join(task, group))
      if (signal !== undefined) this.#signals.add(signal, task)
      if (startsAtOnce) this.#admit()
      else task.startWaiting()
    })
  }

  #admit(): void {
    while (this.#active < this.#settings.maxActiveTasks) {
      const task = this.#turns.begin()
      if (task === undefined) return
      this.#active += 1
      task.admit()
    }
  }

  #tell(): void {
    if (this.#whenRoom.length > 0 && this.#hasRoom()) {
      for (const resolve of this.#whenRoom.splice(0)) resolve()
    }
    if (this.#whenIdle.length > 0 && this.#places.size === 0) {
      for (const resolve of this.#whenIdle.splice(0)) resolve()
    }
  }

  #hasRoom(): boolean {
    return this.#turns.size < this.#settings.maxQueueSize
  }

  async #idleWithin(graceMs: number): Promise<void> {
    if (graceMs === Number.POSITIVE_INFINITY) return this.onIdle()
    let timer: NodeJS.Timeout | undefined
    const timeout = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, graceMs)
      timer.unref()
    })
    await Promise.race([this.onIdle(), timeout])
    clearTimeout(timer)
  }
}

function full(maxQueueSize: number, group: string | undefined): QueueFullError {
  return new QueueFullError(
    `The queue is full: ${maxQueueSize} tasks wait (\`maxQueueSize\`). Await \`queue.onRoom()\` before adding more.`,
    { key: group },
  )
}

function closed(group: string | undefined): ClosedError {
  return new ClosedError('The task queue takes no new tasks: it was drained or stopped.', { key: group })
}

function stopped(group: string | undefined): ClosedError {
  return new ClosedError('The task queue is stopped: it takes no new tasks and starts none that waited.', {
    key: group,
  })
}

function warnOfLateError(error: unknown): void {
  warn('A task failed after it was over, and nobody waited for its error. See `onLateError`.', error)
}

function warn(message: string, error: unknown): void {
  process.emitWarning(message, {
    type: 'HoldfastWarning',
    code: 'HOLDFAST_LATE_ERROR',
    detail: reportOf(error),
  })
}
