/**
 * The one part of a client of one server that the store touches although its package does not document it. The
 * undocumented parts of a cluster's client are in cluster/clients.ts.
 *
 * ioredis keeps the timer of the pause before it connects again to itself, and that timer keeps the process alive. The
 * package has no option against it. Without its own pauses (`retryStrategy: null`) a connection would not come back by
 * itself.
 */
export function unrefReconnectTimer(redis: object): void {
  const { reconnectTimeout } = redis as { readonly reconnectTimeout?: NodeJS.Timeout | null }
  reconnectTimeout?.unref?.()
}
