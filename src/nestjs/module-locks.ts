import {
  type IdempotencyMiddleware,
  type IdempotencyOptions,
  type IncomingRequest,
  openServerLocks,
  type ServerLocks,
  type ServerLocksOptions,
} from '../http/index.ts'
import type { CallbackOptions, Locks } from '../index.ts'
import type { ScheduleOptions } from '../schedule/index.ts'
import { currentResponse, runUnder } from './running.ts'

/** Under which a module has its {@link ModuleLocks}; for {@link WithLock} and {@link Idempotent} alone. */
export const MODULE_LOCKS: unique symbol = Symbol.for('holdfast module')

/** The locks of a module. NestJS calls the hooks. */
export class ModuleLocks {
  readonly #server: ServerLocks

  /** What the schedule of the module is made with. */
  readonly schedule: ScheduleOptions

  static async open(options: ServerLocksOptions, schedule: ScheduleOptions): Promise<ModuleLocks> {
    return new ModuleLocks(await openServerLocks(options), schedule)
  }

  constructor(server: ServerLocks, schedule: ScheduleOptions) {
    this.#server = server
    this.schedule = schedule
  }

  get locks(): Locks {
    return this.#server.locks
  }

  hold<T>(key: string, options: CallbackOptions | undefined, work: () => T | Promise<T>): Promise<T> {
    return this.#server.requests.withLock(currentResponse(), key, options, (lease, { signal }) =>
      runUnder({ lease, signal }, work),
    )
  }

  idempotent<Request extends IncomingRequest>(
    options: IdempotencyOptions<Request>,
  ): IdempotencyMiddleware<Request> {
    return this.#server.requests.idempotent(options)
  }

  /** The first hook of a shutdown: requests that wait are answered, as the server waits for all of them next. */
  onModuleDestroy(): void {
    void this.#server.requests.close()
  }

  /** The last one: no request is left to be answered. */
  onApplicationShutdown(): Promise<void> {
    return this.#server.close()
  }
}
