import { isHoldfastError } from '../errors.ts'
import {
  type HttpErrorFields,
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

  async hold<T>(key: string, options: CallbackOptions | undefined, work: () => T | Promise<T>): Promise<T> {
    const response = currentResponse()
    try {
      return await this.#server.requests.withLock(response, key, options, (lease, { signal }) =>
        runUnder({ lease, signal }, work),
      )
    } catch (error) {
      setHeaders(response, error)
      throw error
    }
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

/**
 * NestJS takes the status and the message from an error, and leaves out its headers. So this sets
 * them, but only those of Holdfast's errors.
 */
export function setHeaders(response: object | undefined, error: unknown): void {
  if (!isHoldfastError(error)) return
  const { headers } = error as { readonly headers?: HttpErrorFields['headers'] }
  const writable = response as
    | { headersSent?: boolean; setHeader?(name: string, value: string): void }
    | undefined
  if (headers === undefined || writable?.headersSent !== false) return
  for (const [name, value] of Object.entries(headers)) writable.setHeader?.(name, value)
}
