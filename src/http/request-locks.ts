import { checkObject, checkOptions, expected, parseFunction, parseSignal } from '../base/arguments.ts'
import { SignalWatch } from '../base/signal-watch.ts'
import { splitWork, type WorkArguments } from '../base/work.ts'
import { ClosedError } from '../errors.ts'
import type { CallbackOptions, Lease, Locks } from '../index.ts'
import { checkStatusCodes, type StatusCodes, withStatus } from './http-error.ts'
import {
  type FrameworkReply,
  Idempotency,
  type IdempotencyMiddleware,
  type IdempotencyOptions,
} from './idempotency.ts'
import type { IncomingRequest } from './idempotent-request.ts'
import { isResponse, type OutgoingResponse, requestSignal } from './request-signal.ts'

/** How errors of request locks become answers. */
export interface RequestLocksOptions {
  /** Other statuses than the usual ones; see {@link asHttpError}. */
  readonly statusCodes?: StatusCodes | undefined
}

/** The response of the request that the lock is for, or a signal that aborts with it; undefined where there is no request. */
export type During = OutgoingResponse | AbortSignal | undefined

/** `signal` aborts when the lease is lost, and when the client has gone. */
export type RequestWork<T> = (lease: Lease, context: { readonly signal: AbortSignal }) => Promise<T> | T

/** Locks that are held for the duration of a request. See {@link createRequestLocks}. */
export interface RequestLocks extends AsyncDisposable {
  /**
   * Like `locks.withLock`, but it ends with the request. If the client goes away during the wait, the place in the queue is given
   * up, and `work` does not run. If the client goes away while `work` runs, the `signal` of `work` aborts, and the key is released
   * when `work` has ended. Errors have a `statusCode`; see {@link asHttpError}.
   *
   * @throws like `locks.withLock`; {@link ClosedError} after `close()`; an `AbortError` when the client has gone.
   */
  withLock<T>(during: During, key: string, work: RequestWork<T>): Promise<T>
  withLock<T>(
    during: During,
    key: string,
    options: CallbackOptions | undefined,
    work: RequestWork<T>,
  ): Promise<T>
  /**
   * Answers a request that has a header `Idempotency-Key` once: a repetition with the same key gets the status, the headers and the body
   * of the first answer, and its handler does not run. It is middleware of Express and a `preHandler` of Fastify. It stands behind
   * what authenticates the request and parses its body.
   *
   * The answer is kept by `locks.once` before the client gets it. `next` gets a {@link IdempotencyKeyError} if a repetition differs from
   * the first request (422), if the first request is still running (409), or if a key is required (400).
   * Without a framework it is called once more with what it has thrown.
   *
   * @throws {InvalidArgumentError} when an option is not what it should be.
   */
  idempotent<Request extends IncomingRequest>(
    options: IdempotencyOptions<Request>,
  ): IdempotencyMiddleware<Request>
  /**
   * Call it at the begin of a shutdown. Requests that wait, and new requests, are rejected with a `ClosedError` (503). So a server
   * can end its requests without waiting for keys that other instances hold. Requests that have their lock go on. They may
   * take further keys, and wait for them.
   *
   * Resolves when the work of all requests has ended, their answers are kept and their keys are released: close the locks then. The server itself does
   * not wait for work whose client has gone, although it may still write. Calls without a request go on, and are not awaited.
   * Never rejects, and may be called again.
   */
  close(): Promise<void>
}

/**
 * Locks for the requests of an HTTP server, of any framework that has Node's `ServerResponse`. `holdfast/fastify` and
 * `holdfast/nestjs` are built on it.
 *
 * ```ts
 * import { createServer } from 'node:http'
 * import { connect } from 'holdfast'
 * import { createRequestLocks } from 'holdfast/http'
 *
 * const locks = await connect('redis://localhost:6379')
 * const requests = createRequestLocks(locks)
 *
 * createServer(async (request, response) => {
 *   const work = async (_: unknown, { signal }: { signal: AbortSignal }) => `paid: ${!signal.aborted}`
 *   try {
 *     response.end(await requests.withLock(response, `pay:${request.url}`, { wait: '2s' }, work))
 *   } catch (error) {
 *     // Nobody else does without a framework, and then a client that hangs up would end the process.
 *     response.writeHead((error as { statusCode?: number }).statusCode ?? 500).end()
 *   }
 * })
 * ```
 *
 * @throws {InvalidArgumentError} when an argument is not what it should be.
 */
export function createRequestLocks(locks: Locks, options: RequestLocksOptions = {}): RequestLocks {
  if (typeof locks?.withLock !== 'function') {
    throw expected('locks', 'what createLocks or connect returns', locks)
  }
  checkOptions(options, ['statusCodes'])
  const { statusCodes = {} } = options
  checkStatusCodes(statusCodes)
  return new LocksOfRequests(locks, statusCodes)
}

class LocksOfRequests implements RequestLocks {
  readonly #locks: Locks
  readonly #statusCodes: StatusCodes
  readonly #waits = new Set<AbortController>()
  readonly #ongoing = new Set<Promise<unknown>>()
  /** How many keys a request has. Until it has none, it may take further ones, also while these locks close. */
  readonly #keyCounts = new WeakMap<object, number>()
  readonly #watch = new SignalWatch()
  #isClosed = false

  constructor(locks: Locks, statusCodes: StatusCodes) {
    this.#locks = locks
    this.#statusCodes = statusCodes
  }

  async withLock<T>(
    during: During,
    key: string,
    ...rest: WorkArguments<CallbackOptions, RequestWork<T>>
  ): Promise<T> {
    const [terms = {}, work] = splitWork(rest)
    checkCall(terms, work)
    const held = this.#hold(during, key, terms, work)
    if (during !== undefined) this.#ongoing.add(held)
    try {
      return await held
    } catch (error) {
      throw withStatus(error, this.#statusCodes)
    } finally {
      this.#ongoing.delete(held)
    }
  }

  idempotent<Request extends IncomingRequest>(
    options: IdempotencyOptions<Request>,
  ): IdempotencyMiddleware<Request> {
    const idempotency = new Idempotency(this.#locks, options)
    return (request, reply, next) => {
      const answered = this.#answer(idempotency, request, reply, next)
      this.#ongoing.add(answered)
      void answered.finally(() => this.#ongoing.delete(answered))
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    for (const wait of this.#waits) wait.abort(closing(undefined))
    // Requests that work may take further keys meanwhile.
    while (this.#ongoing.size > 0) await Promise.allSettled(this.#ongoing)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #hold<T>(during: During, key: string, options: CallbackOptions, work: RequestWork<T>): Promise<T> {
    if (during === undefined) {
      return this.#locks.withLock(key, options, (lease) => work(lease, { signal: lease.signal }))
    }
    const gone = signalOf(during)
    const hasKey = this.#keyCounts.has(during)
    if (this.#isClosed && !hasKey) throw closing(key)
    gone.throwIfAborted()
    const signals = options.signal === undefined ? [gone] : [gone, options.signal]
    const { signal, waited } = this.#beginWait(signals, { endsWithClose: !hasKey })
    let worked = () => {}
    let uncount = () => {}
    try {
      return await this.#locks.withLock(key, { ...options, signal }, (lease) => {
        waited()
        uncount = this.#countKey(during)
        // The client may have gone after the grant and before the promise of the grant has resolved.
        signal.throwIfAborted()
        // The signal of a response ends with it, and so does what the work leaves behind.
        if (during !== gone) return work(lease, { signal: AbortSignal.any([lease.signal, gone]) })
        const working = new AbortController()
        worked = this.#follow([gone, lease.signal], working)
        return work(lease, { signal: working.signal })
      })
    } finally {
      waited()
      worked()
      uncount()
    }
  }

  #countKey(during: object): () => void {
    this.#keyCounts.set(during, (this.#keyCounts.get(during) ?? 0) + 1)
    return () => {
      const others = (this.#keyCounts.get(during) ?? 0) - 1
      if (others > 0) this.#keyCounts.set(during, others)
      else this.#keyCounts.delete(during)
    }
  }

  /** Never rejects. */
  async #answer<Request extends IncomingRequest>(
    idempotency: Idempotency<Request>,
    request: Request,
    reply: OutgoingResponse | FrameworkReply,
    next: (error?: Error) => void,
  ): Promise<void> {
    let waited = () => {}
    try {
      if (idempotency.isFor(request)) {
        if (this.#isClosed) throw closing(undefined)
        const wait = this.#beginWait([signalOf('raw' in reply ? reply.raw : reply)], { endsWithClose: true })
        waited = wait.waited
        const onBegun = () => {
          wait.waited()
          this.#run(next)
        }
        return await idempotency.answer(request, reply, { signal: wait.signal, onBegun })
      }
    } catch (error) {
      return this.#refuse(next, error)
    } finally {
      waited()
    }
    this.#run(next)
  }

  /** A framework catches what a handler throws. Without one the client would wait for an answer for ever. */
  #run(next: (error?: Error) => void): void {
    try {
      next()
    } catch (error) {
      this.#refuse(next, error)
    }
  }

  #refuse(next: (error?: Error) => void, reason: unknown): void {
    try {
      next(withStatus(reason, this.#statusCodes) as Error)
    } catch (error) {
      // As without this middleware: nobody has caught it.
      queueMicrotask(() => {
        throw error
      })
    }
  }

  /** A wait ends when one of the signals aborts, or with `endsWithClose` when these locks are closed. */
  #beginWait(
    signals: readonly AbortSignal[],
    { endsWithClose }: { readonly endsWithClose: boolean },
  ): { readonly signal: AbortSignal; readonly waited: () => void } {
    const wait = new AbortController()
    const unfollow = this.#follow(signals, wait)
    if (endsWithClose) this.#waits.add(wait)
    const waited = () => {
      this.#waits.delete(wait)
      unfollow()
    }
    return { signal: wait.signal, waited }
  }

  /** Instead of AbortSignal.any, whose result a signal of the caller keeps for as long as it lives itself. */
  #follow(sources: readonly AbortSignal[], target: AbortController): () => void {
    for (const source of sources) {
      if (source.aborted) target.abort(source.reason)
      this.#watch.add(source, target)
    }
    return () => {
      for (const source of sources) this.#watch.remove(source, target)
    }
  }
}

function signalOf(during: OutgoingResponse | AbortSignal): AbortSignal {
  if (during instanceof AbortSignal) return during
  if (isResponse(during)) return requestSignal(during)
  throw expected('during', 'the response of a request, an AbortSignal or undefined', during)
}

function closing(key: string | undefined): ClosedError {
  return new ClosedError('This server is shutting down and takes no more locks: ask another one.', { key })
}

function checkCall(options: unknown, work: unknown): void {
  parseFunction('work', work)
  checkObject(options)
  parseSignal((options as { readonly signal?: unknown }).signal)
}
