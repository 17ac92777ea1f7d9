import type { FastifyInstance, FastifyPluginAsync, FastifyRequest } from 'fastify'
import { InvalidArgumentError } from '../errors.ts'
import { type RequestLocksOptions, type RequestWork, requestLocks, requestSignal } from '../http/index.ts'
import { type CallbackOptions, connect, type Locks, type LocksOptions } from '../index.ts'

/** Either `locks`, or `store` with the options of `connect`. */
export interface HoldfastPluginOptions extends LocksOptions, RequestLocksOptions {
  /** Locks that exist already. Whoever made them closes them. */
  readonly locks?: Locks | undefined
  /** The URL of a store, as for `connect`. What is opened is closed with the server. */
  readonly store?: string | undefined
}

declare module 'fastify' {
  interface FastifyInstance {
    readonly locks: Locks
  }
  interface FastifyRequest {
    /**
     * Like `locks.withLock`, and ends with the request: the wait is over when the client goes away, and the `signal` that `work` is
     * given aborts. What it rejects with has the status of the answer. See `RequestLocks` of `holdfast/http`.
     */
    withLock<T>(key: string, work: RequestWork<T>): Promise<T>
    withLock<T>(key: string, options: CallbackOptions | undefined, work: RequestWork<T>): Promise<T>
  }
}

/**
 * Fastify 5 plugin: `fastify.locks`, and `request.withLock` for the duration of a request. When the server closes, whoever waits
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
export const holdfast: FastifyPluginAsync<HoldfastPluginOptions> = Object.assign(plugin, {
  // The documented marks of a plugin that belongs to the whole server: https://github.com/fastify/fastify-plugin
  [Symbol.for('skip-override')]: true,
  [Symbol.for('fastify.display-name')]: 'holdfast',
  [Symbol.for('plugin-meta')]: { name: 'holdfast', fastify: '5.x' },
})

async function plugin(fastify: FastifyInstance, options: HoldfastPluginOptions): Promise<void> {
  if (fastify.hasDecorator('locks')) {
    throw new InvalidArgumentError('Expected `holdfast` to be registered once on a server, got it again.')
  }
  const { statusCodes } = options
  const locks = await locksOf(options)
  // Hooks of this kind run when the server has answered all its requests.
  if (options.locks === undefined) fastify.addHook('onClose', () => locks.close())
  const requests = requestLocks(locks, { statusCodes })
  fastify.addHook('preClose', async () => requests.stopWaiting())

  const signals = new WeakMap<FastifyRequest, AbortSignal>()
  fastify.addHook('onRequest', (request, reply, done) => {
    signals.set(request, requestSignal(reply.raw))
    done()
  })
  fastify.decorate('locks', locks)
  fastify.decorateRequest('withLock', function <
    T,
  >(this: FastifyRequest, key: string, ...rest: WithLockArguments<T>): Promise<T> {
    const [terms, work] = rest.length === 1 ? [undefined, rest[0]] : rest
    return requests.withLock(duringOf(this, signals.get(this)), key, terms, work)
  })
}

type WithLockArguments<T> = [RequestWork<T>] | [CallbackOptions | undefined, RequestWork<T>]

async function locksOf({ locks, store, statusCodes: _, ...rest }: HoldfastPluginOptions): Promise<Locks> {
  if (locks === undefined) {
    if (store !== undefined) return connect(store, rest)
    throw new InvalidArgumentError(
      'Expected `store` to be a URL such as redis://localhost:6379, or `locks` to be given, got neither.',
    )
  }
  if (store !== undefined) throw new InvalidArgumentError('Expected either `locks` or `store`, got both.')
  const [name] = Object.keys(rest)
  if (name === undefined) return locks
  throw new InvalidArgumentError(
    `Expected the options of locks that exist to be given where they are made, got \`${name}\`.`,
  )
}

/** A handler that took longer than its `handlerTimeout` has been answered for, and is told to end. */
function duringOf(request: FastifyRequest, gone: AbortSignal | undefined): AbortSignal | undefined {
  const timeoutMs: number | undefined = request.routeOptions.handlerTimeout
  if (timeoutMs === undefined || timeoutMs === 0 || gone === undefined) return gone
  return AbortSignal.any([gone, request.signal])
}
