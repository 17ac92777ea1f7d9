import { checkOptions, parseFlag, parseSignal } from '../../../base/arguments.ts'
import { now, systemClock } from '../../../base/clock.ts'
import { type Duration, parseDuration, TTL_RANGE, WAIT_RANGE } from '../../../base/duration.ts'
import { AcquireTimeoutError, InvalidArgumentError } from '../../../errors.ts'
import type { PostgresPool } from '../../../postgres/connections.ts'
import { parseSchema } from '../../../postgres/identifiers.ts'
import { LockConnection, type LockRequest } from './connection.ts'
import { advisoryLockId } from './key.ts'
import { type AdvisoryLease, SessionLease } from './lease.ts'

/** How to lock a key for the life of a connection. */
export interface TryAdvisorySessionOptions {
  /** A shared lock holds together with other shared locks, and with no exclusive one. Default: false. */
  readonly shared?: boolean | undefined
  /**
   * The lease is lost at the latest after this long without an answer from the server. The server keeps the lock for at
   * least as long after it last heard of this machine. If the process ends, the lock is free at once. Default: 30 s.
   */
  readonly ttl?: Duration | undefined
  /** The schema of the table of fences, which is made if it does not exist. Default: `holdfast`. */
  readonly schema?: string | undefined
}

/** How to lock a key for the life of a connection, and how long to wait for it. */
export interface AdvisorySessionOptions extends TryAdvisorySessionOptions {
  /** How long to wait for the lock. 0 gives up unless the lock is free, `Infinity` waits for ever. Default: 60 s. */
  readonly wait?: Duration | undefined
  /** Ends the wait: the call rejects with `signal.reason`. A lease that is held already is not affected. */
  readonly signal?: AbortSignal | undefined
}

/**
 * Locks a key for as long as a connection of its own lives. The lock outlives any number of transactions, and is free
 * in the moment in which the holder's process ends.
 *
 * `client` is a `Pool` or `Client` of pg or the `sql` of postgres.js. It sends no statement itself: each call opens a
 * connection with the same settings (some milliseconds), and `release()` closes it. The connection must reach the
 * server directly. A pooler is refused, because behind it the lock would stay on somebody else's connection. Waiters
 * are served in the order of arrival as long as each of them waits for less than five seconds. If many wait longer, use
 * `postgresStore`.
 *
 * ```ts
 * import { advisorySession } from 'holdfast/postgres'
 * import pg from 'pg'
 *
 * const lease = await advisorySession(new pg.Pool(), 'indexer', { wait: '1m' })
 * try {
 *   while (!lease.signal.aborted) await new Promise((resolve) => setTimeout(resolve, 1000))
 * } finally {
 *   await lease.release()
 * }
 * ```
 *
 * @throws {AcquireTimeoutError} when others hold the lock for the whole of `wait`.
 * @throws {InvalidArgumentError} when `client` is a connection out of a pool, or a transaction.
 * @throws {StoreError} `store-refused` behind a pooler, or when the role may not make the table of fences.
 * `store-unavailable` when the server does not answer, is lost during the wait, or is a read-only standby.
 */
export async function advisorySession(
  client: PostgresPool,
  key: string,
  options: AdvisorySessionOptions = {},
): Promise<AdvisoryLease> {
  checkOptions(options, ['shared', 'ttl', 'schema', 'wait', 'signal'])
  const waitMs = parseDuration('wait', options.wait ?? '60s', WAIT_RANGE)
  const signal = parseSignal(options.signal)
  signal?.throwIfAborted()
  const startedAt = performance.now()
  const lease = await hold(parseRequest(client, key, options), { waitMs, signal })
  if (lease !== null) return lease
  const waitedMs = performance.now() - startedAt
  throw new AcquireTimeoutError(
    `${JSON.stringify(key)} was locked by others for the whole wait of ${Math.round(waitedMs)} ms. Wait longer, or try later.`,
    { key, waitedMs },
  )
}

/**
 * Like {@link advisorySession}, without waiting. Resolves with `null` when others hold the key.
 *
 * ```ts
 * import { tryAdvisorySession } from 'holdfast/postgres'
 * import pg from 'pg'
 *
 * const lease = await tryAdvisorySession(new pg.Pool(), 'indexer')
 * if (lease === null) console.log('another process is at work')
 * await lease?.release()
 * ```
 *
 * @throws {InvalidArgumentError} and {@link StoreError} as {@link advisorySession} does.
 */
export async function tryAdvisorySession(
  client: PostgresPool,
  key: string,
  options: TryAdvisorySessionOptions = {},
): Promise<AdvisoryLease | null> {
  checkOptions(options, ['shared', 'ttl', 'schema'])
  return hold(parseRequest(client, key, options), { waitMs: 0, signal: undefined })
}

interface SessionWait {
  readonly waitMs: number
  readonly signal: AbortSignal | undefined
}

function parseRequest(client: PostgresPool, key: string, options: TryAdvisorySessionOptions): LockRequest {
  refuseConnections(client)
  return {
    client,
    key,
    id: String(advisoryLockId(key)),
    shared: parseFlag('shared', options.shared, false),
    ttlMs: parseDuration('ttl', options.ttl ?? '30s', TTL_RANGE),
    schema: parseSchema(options.schema ?? 'holdfast'),
  }
}

/**
 * Refuses a connection out of a pool (it has `release()`) and a transaction (it has `savepoint()`): a session's lock
 * must not return to a pool.
 */
function refuseConnections(client: unknown): void {
  const lent = ['release', 'savepoint'].some(
    (name) => typeof (client as Record<string, unknown>)?.[name] === 'function',
  )
  if (!lent) return
  throw new InvalidArgumentError(
    'Expected `client` to be a `Pool` or `Client` of the package pg, or a `sql` of the package postgres, got a connection ' +
      'of one: a lock of a session would go back into the pool with it. Pass the pool; the lock gets a connection of its own.',
  )
}

/** Null when the lock was not granted within `waitMs`. */
async function hold(request: LockRequest, { waitMs, signal }: SessionWait): Promise<AdvisoryLease | null> {
  const connection = new LockConnection(request)
  const lease = take(connection, request, waitMs)
  if (signal === undefined) return lease
  return new Promise((resolve, reject) => {
    const onAbort = () => {
      reject(signal.reason)
      void connection.abandon()
    }
    signal.addEventListener('abort', onAbort, { once: true })
    lease.finally(() => signal.removeEventListener('abort', onAbort)).then(resolve, reject)
  })
}

async function take(
  connection: LockConnection,
  request: LockRequest,
  waitMs: number,
): Promise<AdvisoryLease | null> {
  const { key, shared, ttlMs } = request
  const startedAt = performance.now()
  try {
    await connection.open()
    if (!(await lock(connection, () => waitMs - (performance.now() - startedAt)))) {
      await connection.close()
      return null
    }
    const confirmedAt = now(systemClock)
    const fence = await connection.nextFence()
    return new SessionLease({ key, shared, fence, ttlMs, confirmedAt, connection })
  } catch (error) {
    await connection.close()
    throw error
  }
}

/**
 * Waits in slices. A statement that waits keeps its snapshot, and CREATE INDEX CONCURRENTLY waits for every snapshot of
 * the database. If the holder builds an index while another process waits without a bound, both wait for ever. The
 * server does not detect that, because the lock and the index are on two connections. Between two slices a waiter has
 * no snapshot. The price: it loses its place in the queue.
 */
async function lock(connection: LockConnection, leftMs: () => number): Promise<boolean> {
  if (await connection.tryLock()) return true
  for (let ms = leftMs(); ms > 0; ms = leftMs()) {
    if (await connection.waitForLock(Math.min(ms, SLICE_MS))) return true
  }
  return false
}

const SLICE_MS = 5000
