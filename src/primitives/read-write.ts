import { splitWork, type WorkArguments } from '../base/work.ts'
import type { Lease } from '../engine/lease.ts'
import {
  type HoldRequest,
  hold,
  type LocksContext,
  type Outcome,
  promised,
  tryHold,
  tryWithHold,
  type Work,
  withHold,
} from './hold.ts'
import {
  type CallbackOptions,
  EXCLUSIVE,
  type HoldOptions,
  type HoldSettings,
  parseSettings,
  SHARED,
  type Shape,
  TAKES,
  type TryCallbackOptions,
  type WaitOptions,
} from './options.ts'

/**
 * Any number of readers, or one writer, in order of arrival: a waiting writer goes before later readers, so neither side
 * starves. With `reentrant: true` a call may read under the write lock of the same async context. A call that asks to write
 * under its own read lock gets a `DeadlockError`, because two such readers would wait for each other.
 */
export class ReadWriteLock {
  /** The key that readers and writers share. */
  readonly key: string
  readonly #context: LocksContext
  readonly #defaults: HoldSettings

  constructor(context: LocksContext, key: string, defaults: HoldSettings) {
    this.#context = context
    this.key = key
    this.#defaults = defaults
  }

  /** Runs `work` as one of the readers. */
  read<T>(work: Work<Lease, T>): Promise<T>
  read<T>(options: CallbackOptions | undefined, work: Work<Lease, T>): Promise<T>
  read<T>(...rest: WorkArguments<CallbackOptions, Work<Lease, T>>): Promise<T> {
    return this.#run(SHARED, rest)
  }

  /** Runs `work` as the only one. */
  write<T>(work: Work<Lease, T>): Promise<T>
  write<T>(options: CallbackOptions | undefined, work: Work<Lease, T>): Promise<T>
  write<T>(...rest: WorkArguments<CallbackOptions, Work<Lease, T>>): Promise<T> {
    return this.#run(EXCLUSIVE, rest)
  }

  /** Like {@link read}, but never waits. */
  tryRead<T>(work: Work<Lease, T>): Promise<Outcome<T>>
  tryRead<T>(options: TryCallbackOptions | undefined, work: Work<Lease, T>): Promise<Outcome<T>>
  tryRead<T>(...rest: WorkArguments<TryCallbackOptions, Work<Lease, T>>): Promise<Outcome<T>> {
    return this.#tryRun(SHARED, rest)
  }

  /** Like {@link write}, but never waits. */
  tryWrite<T>(work: Work<Lease, T>): Promise<Outcome<T>>
  tryWrite<T>(options: TryCallbackOptions | undefined, work: Work<Lease, T>): Promise<Outcome<T>>
  tryWrite<T>(...rest: WorkArguments<TryCallbackOptions, Work<Lease, T>>): Promise<Outcome<T>> {
    return this.#tryRun(EXCLUSIVE, rest)
  }

  /** Waits to be one of the readers. Release the lease in `finally`, or with `await using`. */
  acquireRead(options?: WaitOptions): Promise<Lease> {
    return promised<Lease>(() => hold(this.#context, this.#request(SHARED, options, TAKES.wait)))
  }

  /** Waits to be the only one. Release the lease in `finally`, or with `await using`. */
  acquireWrite(options?: WaitOptions): Promise<Lease> {
    return promised<Lease>(() => hold(this.#context, this.#request(EXCLUSIVE, options, TAKES.wait)))
  }

  /** `null` when it is busy; never waits. */
  tryAcquireRead(options?: HoldOptions): Promise<Lease | null> {
    return promised<Lease | null>(() => tryHold(this.#context, this.#request(SHARED, options, TAKES.try)))
  }

  /** `null` when it is busy; never waits. */
  tryAcquireWrite(options?: HoldOptions): Promise<Lease | null> {
    return promised<Lease | null>(() => tryHold(this.#context, this.#request(EXCLUSIVE, options, TAKES.try)))
  }

  async #run<T>(shape: Shape, rest: WorkArguments<CallbackOptions, Work<Lease, T>>): Promise<T> {
    const [options, work] = splitWork(rest)
    return withHold(this.#context, this.#request(shape, options, TAKES.callback), work)
  }

  async #tryRun<T>(
    shape: Shape,
    rest: WorkArguments<TryCallbackOptions, Work<Lease, T>>,
  ): Promise<Outcome<T>> {
    const [options, work] = splitWork(rest)
    return tryWithHold(this.#context, this.#request(shape, options, TAKES.tryCallback), work)
  }

  #request(shape: Shape, options: CallbackOptions | undefined, takes: ReadonlySet<string>): HoldRequest {
    return { key: this.key, shape, settings: parseSettings(options, takes, this.#defaults) }
  }
}
