import { fieldOf } from '../base/thrown.ts'
import { StartTimeoutError, TaskFailedError } from '../errors.ts'

/** The argument of the function of `queue.run`. */
export interface RunContext {
  /**
   * Aborts when the caller's `signal` does, when the task takes longer than `maxRun`, and when the queue is
   * stopped by force. Pass it on to whatever the task waits for.
   */
  readonly signal: AbortSignal
}

/** The argument of the function of `queue.enqueue`. */
export interface TaskContext<T> extends RunContext {
  /**
   * Ends the task: its promise resolves with `value`, and its place is free for the next one. The first call counts,
   * later ones have no effect. Needs no `this`.
   */
  readonly ack: (...value: undefined extends T ? [value?: T] : [value: T]) => void
}

/** What a task does, and when it is over: when its function is, or when that acknowledges. */
export type TaskWork<T> =
  | { readonly until: 'settled'; readonly run: (context: RunContext) => T | PromiseLike<T> }
  | { readonly until: 'acknowledged'; readonly run: (context: TaskContext<T>) => unknown }

export interface TaskSettings {
  readonly group: string | undefined
  readonly signal: AbortSignal | undefined
  readonly waitMs: number
  readonly maxRunMs: number
}

/** The queue, as a task sees it. */
export interface TaskOwner {
  /** Takes it out of the queue, or gives its place to the next one. Called once, whatever the outcome. */
  ended(task: QueuedTask, from: 'waiting' | 'active'): void
  /** Its function failed after the task was over, so that nobody waits for the error. */
  failedLate(error: unknown, task: QueuedTask): void
}

/** A task, whatever it resolves to. */
export interface QueuedTask {
  readonly settings: TaskSettings
  readonly isWaiting: boolean
  /** It has a place now: its function is called in the next microtask. */
  admit(): void
  /** Asks it to end: at once while its function was not called yet, otherwise through its signal. */
  abort(reason: unknown): void
  /** Ends it at once, even if its function does not listen to its signal. */
  giveUp(error: Error): void
}

/** `admitted`: it has a place, but its function was not called yet. */
type State = 'waiting' | 'admitted' | 'running' | 'ended'

/** The life of one task, from joining the queue until its promise is settled. Knows nothing of groups and order. */
export class Task<T> implements QueuedTask {
  readonly settings: TaskSettings
  readonly #work: TaskWork<T>
  readonly #owner: TaskOwner
  readonly #resolve: (value: T | PromiseLike<T>) => void
  readonly #reject: (error: unknown) => void
  #state: State = 'waiting'
  #open: () => void = () => {}
  /** Undefined: without a bound. */
  #waitUntilMs: number | undefined
  #timer: NodeJS.Timeout | undefined
  #controller: AbortController | undefined

  constructor(
    work: TaskWork<T>,
    settings: TaskSettings,
    owner: TaskOwner,
    resolve: (value: T | PromiseLike<T>) => void,
    reject: (error: unknown) => void,
  ) {
    this.#work = work
    this.settings = settings
    this.#owner = owner
    this.#resolve = resolve
    this.#reject = reject
    void this.#live()
  }

  get isWaiting(): boolean {
    return this.#state === 'waiting'
  }

  /** Bounds the wait from now on. */
  startWaiting(): void {
    const { waitMs } = this.settings
    if (waitMs !== Number.POSITIVE_INFINITY) this.#waitUntilMs = performance.now() + waitMs
    this.#startTimer(waitMs, () => this.#giveUpWaiting())
  }

  admit(): void {
    this.#stopTimer()
    this.#state = 'admitted'
    this.#open()
  }

  abort(reason: unknown): void {
    if (this.#state === 'running') this.#abortSignal(reason)
    else this.#end(() => this.#reject(reason))
  }

  giveUp(error: Error): void {
    if (this.#state === 'running') this.#abortSignal(error)
    this.#end(() => this.#reject(error))
  }

  /**
   * The call that enqueues the task starts this function, which then waits for its turn. So the task runs in the async context of
   * its caller (AsyncLocalStorage, traces), and not in that of the task that ended before it.
   */
  async #live(): Promise<void> {
    await new Promise<void>((open) => {
      this.#open = open
    })
    if (this.#state !== 'admitted') return
    // The timer is late if the event loop was blocked, as by the task before.
    const untilMs = this.#waitUntilMs
    if (untilMs !== undefined && performance.now() > untilMs) return this.#giveUpWaiting()
    this.#state = 'running'
    const { maxRunMs, group } = this.settings
    this.#startTimer(maxRunMs, () => this.giveUp(tookTooLong(maxRunMs, group)))
    try {
      if (this.#work.until === 'settled') {
        const value = await this.#work.run(this.#runContext())
        this.#end(() => this.#resolve(value))
      } else {
        await this.#work.run(this.#taskContext())
        this.#end(() => this.#reject(neverAcknowledged(group)))
      }
    } catch (error) {
      this.#failed(error)
    }
  }

  #giveUpWaiting(): void {
    const { waitMs, group } = this.settings
    this.giveUp(waitedTooLong(waitMs, group))
  }

  #failed(error: unknown): void {
    if (this.#state !== 'ended') this.#end(() => this.#reject(error))
    else if (!this.#isAnswerToAbort(error)) this.#owner.failedLate(error, this)
  }

  #end(settle: () => void): void {
    if (this.#state === 'ended') return
    const from = this.#state === 'waiting' ? 'waiting' : 'active'
    this.#state = 'ended'
    this.#stopTimer()
    settle()
    this.#owner.ended(this, from)
  }

  #runContext(): RunContext {
    const signal = () => this.#signal()
    return {
      get signal() {
        return signal()
      },
    }
  }

  #taskContext(): TaskContext<T> {
    const signal = () => this.#signal()
    return {
      ack: (...[value]) => this.#end(() => this.#resolve(value as T)),
      get signal() {
        return signal()
      },
    }
  }

  /** Made when it is first asked for: most tasks never look at it. */
  #signal(): AbortSignal {
    this.#controller ??= new AbortController()
    return this.#controller.signal
  }

  #abortSignal(reason: unknown): void {
    this.#controller ??= new AbortController()
    this.#controller.abort(reason)
  }

  #isAnswerToAbort(error: unknown): boolean {
    const signal = this.#controller?.signal
    if (!signal?.aborted) return false
    return error === signal.reason || fieldOf(error, 'name') === 'AbortError'
  }

  #startTimer(delayMs: number, fire: () => void): void {
    if (delayMs === Number.POSITIVE_INFINITY) return
    this.#timer = setTimeout(fire, delayMs)
    this.#timer.unref()
  }

  #stopTimer(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }
}

export function waitedTooLong(waitMs: number, group: string | undefined): StartTimeoutError {
  const message = `The task was not started within ${waitMs} ms (\`wait\`). It left the queue and will not run.`
  return new StartTimeoutError(message, { key: group, waitedMs: waitMs })
}

function tookTooLong(maxRunMs: number, group: string | undefined): TaskFailedError {
  return new TaskFailedError(
    `The task did not end within ${maxRunMs} ms (\`maxRun\`). Its signal was aborted and its place ` +
      'given to the next task, although its function may still run: make it listen to `signal`.',
    { key: group },
  )
}

function neverAcknowledged(group: string | undefined): TaskFailedError {
  return new TaskFailedError(
    'The task ended without a call of `ack`. Call it before the function ends, or use `queue.run(…)`, whose ' +
      'tasks end when their function does.',
    { key: group },
  )
}
