import type { Lease } from '../engine/lease.ts'
import { type Desk, hold, type Outcome, promised, tryHold, tryWithHold, withHold } from './hold.ts'
import {
  type CallbackOptions,
  EXCLUSIVE,
  type HoldOptions,
  parseTerms,
  SHARED,
  TAKES,
  type Terms,
  type TryCallbackOptions,
  type WaitOptions,
} from './options.ts'

/**
 * Any number of readers, or one writer. Fair: a writer that waits goes before the readers that come after it, so neither
 * side starves. Reading under a write lock of the same async context is possible with `reentrant: true`; the other way
 * round is a `DeadlockError`, since two readers that want to become writers would wait for each other.
 */
export class ReadWriteLock {
  readonly key: string
  readonly #desk: Desk
  readonly #defaults: Terms

  constructor(desk: Desk, key: string, defaults: Terms) {
    this.#desk = desk
    this.key = key
    this.#defaults = defaults
  }

  /** Runs `work` as one of the readers. */
  async read<T>(work: (lease: Lease) => Promise<T> | T, options?: CallbackOptions): Promise<T> {
    return withHold(this.#desk, this.key, SHARED, parseTerms(options, TAKES.callback, this.#defaults), work)
  }

  /** Runs `work` as the only one. */
  async write<T>(work: (lease: Lease) => Promise<T> | T, options?: CallbackOptions): Promise<T> {
    return withHold(
      this.#desk,
      this.key,
      EXCLUSIVE,
      parseTerms(options, TAKES.callback, this.#defaults),
      work,
    )
  }

  async tryRead<T>(
    work: (lease: Lease) => Promise<T> | T,
    options?: TryCallbackOptions,
  ): Promise<Outcome<T>> {
    return tryWithHold(
      this.#desk,
      this.key,
      SHARED,
      parseTerms(options, TAKES.tryCallback, this.#defaults),
      work,
    )
  }

  async tryWrite<T>(
    work: (lease: Lease) => Promise<T> | T,
    options?: TryCallbackOptions,
  ): Promise<Outcome<T>> {
    return tryWithHold(
      this.#desk,
      this.key,
      EXCLUSIVE,
      parseTerms(options, TAKES.tryCallback, this.#defaults),
      work,
    )
  }

  acquireRead(options?: WaitOptions): Promise<Lease> {
    return promised<Lease>(() =>
      hold(this.#desk, this.key, SHARED, parseTerms(options, TAKES.wait, this.#defaults)),
    )
  }

  acquireWrite(options?: WaitOptions): Promise<Lease> {
    return promised<Lease>(() =>
      hold(this.#desk, this.key, EXCLUSIVE, parseTerms(options, TAKES.wait, this.#defaults)),
    )
  }

  /** `null` when it is busy; never waits. */
  tryAcquireRead(options?: HoldOptions): Promise<Lease | null> {
    return promised<Lease | null>(() =>
      tryHold(this.#desk, this.key, SHARED, parseTerms(options, TAKES.try, this.#defaults)),
    )
  }

  /** `null` when it is busy; never waits. */
  tryAcquireWrite(options?: HoldOptions): Promise<Lease | null> {
    return promised<Lease | null>(() =>
      tryHold(this.#desk, this.key, EXCLUSIVE, parseTerms(options, TAKES.try, this.#defaults)),
    )
  }
}
