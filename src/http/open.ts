import { checkObject } from '../base/arguments.ts'
import { InvalidArgumentError } from '../errors.ts'
import { connect, type Locks, type LocksOptions } from '../index.ts'
import { checkStatusCodes } from './http-error.ts'
import { createRequestLocks, type RequestLocks, type RequestLocksOptions } from './request-locks.ts'

/** Either `locks`, or `store` with the options of `connect`. */
export interface ServerLocksOptions extends LocksOptions, RequestLocksOptions {
  /** Locks that exist already. Whoever made them closes them. */
  readonly locks?: Locks | undefined
  /** The URL of a store, as for `connect`. What is opened is closed with the server. */
  readonly store?: string | undefined
}

/** Locks for a server, and locks for its requests. */
export interface ServerLocks extends AsyncDisposable {
  /** The locks, for work outside of requests. */
  readonly locks: Locks
  /** Locks that are held for the duration of a request. */
  readonly requests: RequestLocks
  /** For the end of a shutdown: closes `requests`, and then the locks, if this call has opened them. Locks that were given stay open. */
  close(): Promise<void>
}

/**
 * What a plugin for a server framework is made of; `holdfast/fastify` and `holdfast/nestjs` are.
 *
 * ```ts
 * import { openServerLocks } from 'holdfast/http'
 *
 * const { locks, requests, close } = await openServerLocks({ store: 'redis://localhost:6379', label: 'billing' })
 * console.log(await locks.withLock('start-up', () => 'ready'))
 * await close()
 * ```
 *
 * @throws {InvalidArgumentError} when an option is not what it should be; otherwise as `connect` does.
 */
export async function openServerLocks(options: ServerLocksOptions): Promise<ServerLocks> {
  checkObject(options)
  const { locks: given, store, statusCodes = {}, ...rest } = options
  checkStatusCodes(statusCodes)
  if (given === undefined) {
    if (store === undefined) {
      throw new InvalidArgumentError(
        'Expected `store` to be a URL such as redis://localhost:6379, or `locks` to be given, got neither.',
      )
    }
    const locks = await connect(store, rest)
    const requests = createRequestLocks(locks, { statusCodes })
    const close = async () => {
      await requests.close()
      await locks.close()
    }
    return { locks, requests, close, [Symbol.asyncDispose]: close }
  }
  if (store !== undefined) throw new InvalidArgumentError('Expected either `locks` or `store`, got both.')
  const [name] = Object.entries(rest).find(([, value]) => value !== undefined) ?? []
  if (name !== undefined) {
    throw new InvalidArgumentError(
      `Expected the options of locks that exist to be given where they are made, got \`${name}\`.`,
    )
  }
  const requests = createRequestLocks(given, { statusCodes })
  const close = () => requests.close()
  return { locks: given, requests, close, [Symbol.asyncDispose]: close }
}
