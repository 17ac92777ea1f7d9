import { expected } from '../base/arguments.ts'
import { closedStoreError } from '../base/closed.ts'
import { WRONG_ISOLATION } from './connection.ts'
import {
  type ConnectionsOptions,
  connectionsOf,
  type OwnConnection,
  type PostgresConnections,
  type PostgresPool,
} from './connections.ts'
import { executorOf, type PgQueryable, type SqlClient, type SqlExecutor, type SqlRow } from './executor.ts'
import { sqlState } from './failures.ts'
import type { ChannelListener, ChannelSubscription } from './subscription.ts'

/** The part of a pg.Pool that is used. */
interface Pool extends PgQueryable {
  connect(): Promise<PooledClient>
}

interface PooledClient extends PgQueryable {
  on(event: 'error', listener: (error: Error) => void): void
  off(event: 'error', listener: (error: Error) => void): void
  release(error?: Error): void
}

/** The part of a `sql` of postgres.js that is used. */
interface Sql {
  readonly options: {
    /** A `sql` that is not supported may lack it. */
    readonly transform?: Readonly<Record<'column' | 'value' | 'row', { readonly from?: unknown } | undefined>>
  }
}

/**
 * Statements on the connections of the user's own pool, for applications that cannot spare two more connections. What the
 * application does with its pool then delays these statements: a renewal waits behind slow queries. And if code that waits for
 * locks has taken all connections, no connection ever comes back. Messages still need a connection of their own.
 *
 * @throws {InvalidArgumentError} when `client` is a single connection: transactions of others would get in between.
 */
export function sharedConnectionsOf(client: PostgresPool, options: ConnectionsOptions): PostgresConnections {
  const isPool = 'totalCount' in client && 'connect' in client
  if (!isPool && !('begin' in client)) {
    throw expected(
      'client',
      'a `Pool` of the package pg or a `sql` of the package postgres, to share its connections',
      client,
    )
  }
  if ('begin' in client) refuseTransform(client as unknown as Sql)
  return new SharedConnections(client, connectionsOf(client, { ...options, max: 1 }), options.maker)
}

/** The answers of the store would not have the names and values that it reads. */
function refuseTransform({ options: { transform } }: Sql): void {
  if ([transform?.column, transform?.value, transform?.row].every((part) => !part?.from)) return
  throw expected(
    'client',
    'a `sql` without `transform`, to share its connections',
    'one that changes names or values',
  )
}

const ISOLATION = 'isolation level read committed'
/** A process that freezes inside the transaction would keep its locks until it goes on. As long as on connections of our own. */
const IDLE_LIMIT = 'set local idle_in_transaction_session_timeout = 2500'

class SharedConnections implements PostgresConnections {
  readonly #client: PostgresPool
  readonly #executor: SqlExecutor
  readonly #own: PostgresConnections
  readonly #maker: string
  #closed = false

  constructor(client: PostgresPool, own: PostgresConnections, maker = 'postgresStore()') {
    this.#client = client
    this.#maker = maker
    this.#executor =
      'begin' in client
        ? executorOf(client as unknown as SqlClient)
        : {
            query: (text, parameters) =>
              this.#onClient((executor, isBroken) =>
                executor.query(text, parameters).catch((error: Error) => {
                  const state = sqlState(error)
                  // The session has ended, its server takes no writes, or somebody has left a failed transaction open.
                  if (state === undefined || /^(57P|08|25006|25P0[234])/.test(state)) isBroken(error)
                  // The server has refused the statement, and the connection is sound.
                  throw error
                }),
              ),
          }
    this.#own = own
  }

  async query(text: string, parameters: readonly (string | null)[] = []): Promise<readonly SqlRow[]> {
    this.#assertOpen()
    try {
      return await this.#executor.query(text, parameters)
    } catch (error) {
      // The pool has another default isolation. A statement that needs READ COMMITTED fails before it does anything.
      if (sqlState(error) !== WRONG_ISOLATION) throw error
      return this.transaction((transaction) => transaction.query(text, parameters))
    }
  }

  async transaction<T>(work: (transaction: SqlExecutor) => Promise<T>): Promise<T> {
    this.#assertOpen()
    // If a connection ends inside `sql.begin`, the package throws an error that nobody can catch, and the process ends.
    if ('begin' in this.#client) return this.#own.transaction(work)
    return this.#onClient(async (executor, isBroken) => {
      // The answer may only be late, as after a `query_timeout`. Then the connection is in a transaction that nobody ends.
      await executor.query(`begin ${ISOLATION}; ${IDLE_LIMIT}`).catch(isBroken)
      try {
        const result = await work(executor)
        await executor.query('commit')
        return result
      } catch (error) {
        await executor
          .query('rollback')
          .catch(isBroken)
          .catch(() => {})
        throw error
      }
    })
  }

  /** Does something with a connection of a pg.Pool. `isBroken` throws its error, and keeps the connection from the next user. */
  async #onClient<T>(
    work: (executor: SqlExecutor, isBroken: (error: Error) => never) => Promise<T>,
  ): Promise<T> {
    const client = await (this.#client as unknown as Pool).connect()
    let failure: Error | undefined
    // A pool listens to the errors of idle clients only. An error without a listener would end the process.
    const onLoss = (error: Error): void => {
      failure = error
    }
    client.on('error', onLoss)
    try {
      // Nobody would give back what a call takes that has waited for this connection until after `close()`.
      this.#assertOpen()
      return await work(executorOf(client), (error) => {
        failure = error
        throw error
      })
    } finally {
      client.off('error', onLoss)
      client.release(failure)
    }
  }

  reserve(options?: { readonly limitMs?: number }): Promise<OwnConnection> {
    return this.#own.reserve(options)
  }

  listen(channel: string, listener: ChannelListener): Promise<ChannelSubscription> {
    return this.#own.listen(channel, listener)
  }

  /** On a connection for this question alone, because one of the pool of our own would stay open. */
  async isPooled(): Promise<boolean> {
    const connection = await this.#own.reserve()
    connection.close()
    return connection.isPooled
  }

  close(): Promise<void> {
    this.#closed = true
    return this.#own.close()
  }

  #assertOpen(): void {
    if (this.#closed) throw closedStoreError(this.#maker)
  }
}
