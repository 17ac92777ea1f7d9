import { paused, systemClock } from '../base/clock.ts'
import { processWide } from '../base/process-wide.ts'
import {
  createRequestLocks,
  type IdempotencyMiddleware,
  type IdempotencyOptions,
  type IncomingRequest,
  type RequestLocks,
  type RequestLocksOptions,
  type RequestWork,
  type ServerLocks,
} from '../http/index.ts'
import type { CallbackOptions, Locks } from '../index.ts'
import { currentResponse, isInBackground, runUnder } from './running.ts'

/** Under which a module has its {@link ModuleLocks}; for {@link WithLock} and {@link Idempotent} alone. */
export const MODULE_LOCKS: unique symbol = Symbol.for('holdfast module')

/** By instance, for those that NestJS has not made itself: it injects no property into what a `useFactory` returns. */
const given = processWide('locks of instances', () => new WeakMap<object, ModuleLocks>())

/** The locks that {@link ModuleLocks.giveTo} gave to the instance. */
export function locksGivenTo(instance: object): ModuleLocks | undefined {
  return given.get(instance)
}

/** The locks of a module. NestJS calls the hooks. */
export class ModuleLocks {
  readonly #server: ServerLocks
  /** For calls outside of requests. Hooks of other modules may make some after the last request. */
  readonly #calls: RequestLocks
  readonly #graceMs: number

  /** `graceMs`: how long a shutdown waits for calls outside of requests. */
  constructor(
    server: ServerLocks,
    { graceMs, ...options }: RequestLocksOptions & { readonly graceMs: number },
  ) {
    this.#server = server
    this.#graceMs = graceMs
    this.#calls = createRequestLocks(server.locks, options)
  }

  get locks(): Locks {
    return this.#server.locks
  }

  hold<T>(key: string, options: CallbackOptions | undefined, work: () => T | Promise<T>): Promise<T> {
    const response = currentResponse()
    const run: RequestWork<T> = (lease, { signal }) => runUnder({ lease, signal }, work)
    // BackgroundWork waits for its methods itself, and no longer than their grace.
    if (response !== undefined || isInBackground()) {
      return this.#server.requests.withLock(response, key, options, run)
    }
    // With a signal, although it never aborts: `close()` does not wait for a call without one.
    return this.#calls.withLock(new AbortController().signal, key, options, run)
  }

  idempotent<Request extends IncomingRequest>(
    options: IdempotencyOptions<Request>,
  ): IdempotencyMiddleware<Request> {
    return this.#server.requests.idempotent(options)
  }

  giveTo(instance: object): void {
    given.set(instance, this)
  }

  /** The first hook of a shutdown: requests that wait are answered, as the server waits for all of them next. */
  onModuleDestroy(): void {
    void this.#server.requests.close()
  }

  /**
   * The last one: no request is left to be answered. Other modules may have calls that still run, as NestJS may call their hooks later. After
   * the grace these lose their locks: they may wait for this very shutdown, or for their signal.
   */
  async onApplicationShutdown(): Promise<void> {
    const ended = new AbortController()
    const calls = this.#calls.close().then(() => ended.abort())
    await Promise.race([calls, paused(systemClock, this.#graceMs, ended.signal)])
    await this.#server.close()
  }
}
