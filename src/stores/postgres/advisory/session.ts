import { checkOptions, parseFlag, parseSignal } from '../../../base/arguments.ts'
import { now, systemClock } from '../../../base/clock.ts'
import { type Duration, parseDuration, TTL_RANGE, WAIT_RANGE } from '../../../base/duration.ts'
import { AcquireTimeoutError, InvalidArgumentError } from '../../../errors.ts'
import type { PostgresPool } from '../../../postgres/connections.ts'
import { parseSchema } from '../../../postgres/identifiers.ts'
import { LockConnection, type LockRequest } from './connection.ts'
import { advisoryLockId } from './key.ts'
import { type AdvisoryLease, SessionLease } from './lease.ts'

export interface TryAdvisorySessionOptions {
  /** Together with other shared ones, and with no exclusive one. Default: false. */
  readonly shared?: boolean | undefined
  /**
   * How long the server keeps the lock at least when this machine is no longer heard of, and after how long without an
   * answer the lease says at the latest that it is lost. A process that ends gives the lock back at once. Default: 30 s.
   */
  readonly ttl?: Duration | undefined
  /** Where the table of fences is, which is made when it is not there. Default: `holdfast`. */
  readonly schema?: string | undefined
}

export interface AdvisorySessionOptions extends TryAdvisorySessionOptions {
  /** How long to wait for the lock; 0 gives up unless it is free, `Infinity` waits for ever. Default: 30 s. */
  readonly wait?: Duration | undefined
  /** Ends the wait: the call rejects with `signal.reason`. A lease that is held already is not affected. */
  readonly signal?: AbortSignal | undefined
}

/**
 * Locks a key for as long as a connection of its own lives: held over any number of transactions, and free in the moment in
 * which the holder's process ends.
 *
 * `client` is a `Pool` or `Client` of pg or the `sql` of postgres.js. It is never used itself: a connection with the same
 * settings is opened for each call (some milliseconds) and closed by `release()`. It must reach the server directly: behind a
 * pooler a lock would stay on somebody else's connection, so that is refused. Waiters are served in the order of arrival as
 * long as each waits for less than five seconds; where many wait longer, use `postgresStore`.
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
 * @throws {AcquireTimeoutError} when others hold it for the whole of `wait`.
 * @throws {InvalidArgumentError} when `client` is a connection out of a pool, or a transaction.
 * @throws {StoreError} `store-refused` behind a pooler, or without the rights to make the table of fences;
 * `store-unavailable` when the server does not answer, is lost during the wait, or is a read-only standby.
 */
export async function advisorySession(
  client: PostgresPool,
  key: string,
  options: AdvisorySessionOptions = {},
): Promise<AdvisoryLease> {
  checkOptions(options, ['shared', 'ttl', 'schema', 'wait', 'signal'])
  const waitMs = parseDuration('wait', options.wait ?? '30s', WAIT_RANGE)
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
 * Like {@link advisorySession}, without waiting: `null` when others hold the key.
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

/** What a pool has lent out, and a transaction, say so by how they are given back. */
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

/** Null when the time is over. */
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
 * Waits in slices. A statement that waits keeps its snapshot, and CREATE INDEX CONCURRENTLY waits for every snapshot of the
 * database: run by the holder, it and a waiter without a bound would wait for one another for ever, unseen by the
 * server's search for deadlocks. Between two slices there is no snapshot. The price is the place in the queue.
 */
async function lock(connection: LockConnection, leftMs: () => number): Promise<boolean> {
  if (await connection.tryLock()) return true
  for (let ms = leftMs(); ms > 0; ms = leftMs()) {
    if (await connection.waitForLock(Math.min(ms, SLICE_MS))) return true
  }
  return false
}

const SLICE_MS = 5000
