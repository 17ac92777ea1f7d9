import { within } from '../../../base/within.ts'
import { StoreError } from '../../../errors.ts'
import {
  connectionsOf,
  type OwnConnection,
  type PostgresConnections,
  type PostgresPool,
} from '../../../postgres/connections.ts'
import type { SqlRow } from '../../../postgres/executor.ts'
import { sqlState, storeErrorOf } from '../../../postgres/failures.ts'
import { inSchema } from '../../../postgres/migrations.ts'
import { migrateAdvisory } from '../tables.ts'
import { scripts } from './sql/scripts.generated.ts'

/** Which lock is asked for, and how it is kept. */
export interface LockRequest {
  readonly client: PostgresPool
  readonly key: string
  readonly id: string
  readonly shared: boolean
  readonly ttlMs: number
  readonly schema: string
}

/** How long the server may take for an answer that needs no waiting. */
const ANSWER_MS = 5000
/** How long `close` and `abandon` wait for an answer at most. */
const GOODBYE_MS = 2000

/**
 * The connection that one lock lives on. Closing it always frees the lock, because a session's locks end with the
 * session. So neither a lost answer nor a late grant can leave a lock behind.
 */
export class LockConnection {
  readonly #request: LockRequest
  readonly #connections: PostgresConnections
  #own: OwnConnection | undefined
  #startedAt: string | undefined
  #closing: Promise<void> | undefined

  constructor(request: LockRequest) {
    this.#request = request
    this.#connections = connectionsOf(request.client, {
      max: 1,
      applicationName: 'holdfast advisory session',
    })
  }

  /** Settles when the connection is lost or closed. */
  get closed(): Promise<unknown> {
    return this.#opened().closed
  }

  async open(): Promise<void> {
    const { key, ttlMs } = this.#request
    try {
      // The connection has no time limit of its own: an answer may take longer while the lock is waited for than while
      // it is held.
      this.#own = await this.#connections.reserve({ limitMs: Number.POSITIVE_INFINITY })
    } catch (error) {
      const doing = `opening a connection for ${JSON.stringify(key)}`
      throw storeErrorOf(error, { key, doing, page: 'docs/advisory.md' })
    }
    if (this.#own.isPooled) throw poolerError(key)
    // The server gives up half a ttl after the lease. Each side counts from when it last heard of the other.
    const idleSeconds = Math.min(MOST_SECONDS, Math.ceil(ttlMs / 1000))
    const intervalSeconds = Math.min(MOST_SECONDS, Math.ceil(ttlMs / 6000))
    const row = await this.#ask(
      scripts.openSession,
      [idleSeconds, intervalSeconds, Math.min(MOST_MS, Math.ceil(ttlMs * 1.5))].map(String),
    )
    this.#startedAt = String(row?.['started'])
  }

  async tryLock(): Promise<boolean> {
    const row = await this.#ask(scripts.trySession, this.#lockArguments())
    return row?.['granted'] === 'true'
  }

  /**
   * Answers `false` if the lock was not granted in this time. The lock may have been granted in the same moment all the
   * same.
   */
  async waitForLock(ms: number): Promise<boolean> {
    const parameters = [...this.#lockArguments(), String(Math.ceil(ms))]
    try {
      await within(ms + ANSWER_MS, this.#opened().query(scripts.waitSession, parameters))
      return true
    } catch (error) {
      if (sqlState(error) === LOCK_NOT_AVAILABLE) return false
      throw this.#failure(error)
    }
  }

  async nextFence(): Promise<bigint> {
    const { schema } = this.#request
    const text = inSchema(scripts.nextFence, schema)
    const ask = () => within(ANSWER_MS, this.#opened().query(text))
    try {
      const [row] = await ask().catch(async (error: unknown) => {
        if (sqlState(error) !== UNDEFINED_TABLE) throw error
        await migrateAdvisory(this.#connections, schema)
        return ask()
      })
      return BigInt(String(row?.['fence']))
    } catch (error) {
      throw this.#failure(error)
    }
  }

  /** Whether the server has the lock for this connection. */
  async probe(): Promise<boolean> {
    const [row] = await this.#opened().query(scripts.probeSession, this.#lockArguments())
    return row?.['held'] === 'true'
  }

  /** Unlocks and closes the connection; never rejects. */
  close(): Promise<void> {
    this.#closing ??= this.#end(async () => {
      // Behind a pooler this would unlock what others have locked.
      if (this.#own === undefined || this.#own.isPooled) return
      await within(GOODBYE_MS, this.#own.query(scripts.unlockSession))
    })
    return this.#closing
  }

  /**
   * Closes the connection in the middle of a statement, and ends the statement on the server, which would go on with it
   * until its time is over. Never rejects.
   */
  abandon(): Promise<void> {
    this.#closing ??= this.#end(async () => {
      if (this.#own === undefined || this.#startedAt === undefined) return
      const backend = [String(this.#own.backendPid), this.#startedAt]
      await within(GOODBYE_MS, this.#connections.query(scripts.endBackend, backend))
    })
    return this.#closing
  }

  async #end(sayGoodbye: () => Promise<void>): Promise<void> {
    try {
      await sayGoodbye()
    } catch {
      // The server frees the lock as soon as it notices that the connection is gone.
    }
    // Ends a connection that is still being opened, too, and the one that holds the lock.
    await this.#connections.close()
  }

  async #ask(text: string, parameters: readonly string[] = []): Promise<SqlRow | undefined> {
    try {
      return (await within(ANSWER_MS, this.#opened().query(text, parameters)))[0]
    } catch (error) {
      throw this.#failure(error)
    }
  }

  #failure(error: unknown): StoreError {
    const { key } = this.#request
    return storeErrorOf(error, { key, doing: `locking ${JSON.stringify(key)}`, page: 'docs/advisory.md' })
  }

  #lockArguments(): string[] {
    return [this.#request.id, String(this.#request.shared)]
  }

  #opened(): OwnConnection {
    if (this.#own === undefined) throw new Error('Expected the connection to be open, got none yet.')
    return this.#own
  }
}

const LOCK_NOT_AVAILABLE = '55P03'
const UNDEFINED_TABLE = '42P01'
/** The largest TCP_KEEPIDLE of Linux. */
const MOST_SECONDS = 32_767
/** The largest tcp_user_timeout of PostgreSQL: 24.8 days, which is longer than the longest ttl. */
const MOST_MS = 2 ** 31 - 1

function poolerError(key: string): StoreError {
  return new StoreError(
    'store-refused',
    'A pooler stands between this process and PostgreSQL: an advisory lock of a session would stay on a connection that ' +
      'others use. Give `advisorySession` a client that connects to the server itself, or use `postgresStore`.',
    { key },
  )
}
