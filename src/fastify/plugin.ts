import type { FastifyInstance, FastifyPluginAsync, FastifyRequest } from 'fastify'
import { InvalidArgumentError } from '../errors.ts'
import {
  type During,
  type IdempotencyMiddleware,
  type IdempotencyOptions,
  type OutgoingResponse,
  openServerLocks,
  type RequestWork,
  requestSignal,
  type ServerLocksOptions,
} from '../http/index.ts'
import type { CallbackOptions, Locks } from '../index.ts'

declare module 'fastify' {
  interface FastifyInstance {
    readonly locks: Locks
    /**
     * A `preHandler` for requests that have a header `Idempotency-Key`: a repetition gets the first answer. See `RequestLocks` of
     * `holdfast/http`.
     */
    idempotent(options: IdempotencyOptions<FastifyRequest>): IdempotencyMiddleware
  }
  interface FastifyRequest {
    /**
     * Like `locks.withLock`, and ends with the request: the wait is over when the client goes away, and the `signal`
     * that `work` is given aborts. It rejects with an error that has the status of the answer. See `RequestLocks` of
     * `holdfast/http`.
     */
    withLock<T>(key: string, work: RequestWork<T>): Promise<T>
    withLock<T>(key: string, options: CallbackOptions | undefined, work: RequestWork<T>): Promise<T>
  }
}

/**
 * Plugin for Fastify 4.18 and newer: `fastify.locks`, `request.withLock` for the duration of a request, and `fastify.idempotent`. When the server closes, whoever waits
 * for a lock is answered with 503, requests that have theirs are finished, and then the locks are closed.
 *
 * ```ts
 * import { fastify } from 'fastify'
 * import { holdfast } from 'holdfast/fastify'
 *
 * const app = fastify()
 * await app.register(holdfast, { store: 'redis://localhost:6379', label: 'billing' })
 *
 * app.post<{ Params: { id: string } }>('/invoices/:id/pay', (request) =>
 *   request.withLock(`invoice:${request.params.id}`, { wait: '2s' }, async (lease, { signal }) => {
 *     signal.throwIfAborted()
 *     return { paid: true, fence: String(lease.fence) }
 *   }),
 * )
 * ```
 */
export const holdfast: FastifyPluginAsync<ServerLocksOptions> = Object.assign(plugin, {
  // The documented marks of a plugin that belongs to the whole server: https://github.com/fastify/fastify-plugin
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'holdfast',
  [Symbol.for('plugin-meta')]: { name: 'holdfast', fastify: '>=4.18' },
})

async function plugin(fastify: FastifyInstance, options: ServerLocksOptions): Promise<void> {
  const isTaken = fastify.hasDecorator('locks') || fastify.hasDecorator('idempotent')
  if (isTaken || fastify.hasRequestDecorator('withLock')) {
    throw new InvalidArgumentError(
      'Expected `holdfast` to be registered once, on a server without `locks`, `idempotent` and `request.withLock`, got one that has them.',
    )
  }
  const { locks, requests, close } = await openServerLocks(options)
  fastify.addHook('preClose', async () => void requests.close())
  // Runs when the server has answered all its requests, but for those whose clients have gone.
  fastify.addHook('onClose', close)

  // A request of Fastify does not know its reply.
  const responses = new WeakMap<FastifyRequest, OutgoingResponse>()
  fastify.addHook('onRequest', (request, reply, done) => {
    responses.set(request, reply.raw)
    done()
  })
  fastify.decorate('locks', locks)
  // Its type does not name the request, as that of a server with HTTP/2 is another one.
  fastify.decorate(
    'idempotent',
    (of: IdempotencyOptions<FastifyRequest>) => requests.idempotent(of) as IdempotencyMiddleware,
  )
  fastify.decorateRequest('withLock', async function <
    T,
  >(this: FastifyRequest, key: string, ...rest: WithLockArguments<T>): Promise<T> {
    const [terms, work] = rest.length === 1 ? [undefined, rest[0]] : rest
    return requests.withLock(duringOf(this, responses.get(this)), key, terms, work)
  })
}

type WithLockArguments<T> = [RequestWork<T>] | [CallbackOptions | undefined, RequestWork<T>]

/** A handler that took longer than its `handlerTimeout` has been answered for, and is told to end. */
function duringOf(request: FastifyRequest, response: OutgoingResponse | undefined): During {
  if (response === undefined) {
    throw new InvalidArgumentError(
      'Expected `holdfast` to be registered before the hooks that call `request.withLock`, got a request that it has not seen.',
    )
  }
  const timeoutMs: number | undefined = request.routeOptions.handlerTimeout
  if (timeoutMs === undefined || timeoutMs === 0) return response
  const signal =
    signals.get(response) ?? AbortSignal.any([requestSignal(response), timeoutOf(request.signal)])
  signals.set(response, signal)
  return signal
}

/** One signal for each response. By it the request locks know which calls belong to one request. */
const signals = new WeakMap<OutgoingResponse, AbortSignal>()

/**
 * Aborts when the `handlerTimeout` of the request is over. The signal of the request also aborts when its body has been read, although
 * the client is still there.
 */
function timeoutOf(signal: AbortSignal): AbortSignal {
  const controller = new AbortController()
  const onAbort = () => {
    if (signal.reason?.code === 'FST_ERR_HANDLER_TIMEOUT') controller.abort(signal.reason)
  }
  if (signal.aborted) onAbort()
  else signal.addEventListener('abort', onAbort, { once: true })
  return controller.signal
}
