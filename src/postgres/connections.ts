import { expected } from '../base/arguments.ts'
import { closedStoreError } from '../base/closed.ts'
import { InvalidArgumentError } from '../errors.ts'
import { type Line, type LineStart, openLine, type StatementOptions } from './connection.ts'
import type { PostgresDriver } from './driver.ts'
import type { SqlExecutor, SqlRow } from './executor.ts'
import { type Listening, listenOn } from './listening.ts'
import { type PgClient, type PgPool, pgClientDriver, pgPoolDriver } from './pg-driver.ts'
import { type PostgresJs, postgresJsDriver } from './postgres-js-driver.ts'

/** The client that the user has: a `Pool` or `Client` of the package pg, or a `sql` of the package postgres. */
export type PostgresPool = PgPool | PgClient | PostgresJs

export interface ConnectionsOptions {
  /** How many connections at once, besides the reserved and the listening ones. */
  readonly max: number
  /** What `pg_stat_activity` shows. */
  readonly applicationName: string
  /** After which a statement is ended by the server, and a little later its connection by us. Default: 10 s. */
  readonly statementLimitMs?: number
  /** More settings of our sessions: `{ synchronous_commit: 'off' }`. */
  readonly settings?: Readonly<Record<string, string>>
}

/**
 * A small pool of our own, made from the configuration of the user's client and never of its connections, so that nothing
 * the application does can hold up a renewal. Connections open when they are needed, are replaced when they are lost, and
 * keep the process alive only while an answer is awaited.
 *
 * Everything rejects with the client package's own errors, which `storeErrorOf` turns into sentences.
 */
export interface PostgresConnections extends SqlExecutor {
  /**
   * One statement in a transaction of its own (or, without parameters, several). It runs READ COMMITTED and under our own
   * time limit, whatever the database's or the role's defaults are.
   */
  query(
    text: string,
    parameters?: readonly (string | null)[],
    options?: StatementOptions,
  ): Promise<readonly SqlRow[]>
  /** Commits when `work` resolves, rolls back and rejects with its error when it rejects. READ COMMITTED. */
  transaction<T>(work: (transaction: SqlExecutor) => Promise<T>): Promise<T>
  /** A connection for the caller alone, besides the pool. `limitMs`: of a statement; `Infinity` for none. */
  reserve(options?: { readonly limitMs?: number }): Promise<OwnConnection>
  /**
   * Messages of a channel, on a connection of its own that is made again for ever. Resolves once they flow. Rejects when
   * they cannot: no server, no right, a standby, or a pooler that shares connections among transactions.
   */
  listen(channel: string, listener: MessageListener): Promise<Listening>
  /** Whether a pooler stands in between, in which case nothing but a transaction is sure to see one backend. */
  isPooled(): Promise<boolean>
  /** Ends every connection, also the reserved and listening ones; what is not answered yet is rejected. Repeatable. */
  close(): Promise<void>
}

export interface OwnConnection extends SqlExecutor {
  /** Settles with the reason once the connection is gone, whoever ended it. Never rejects. */
  readonly closed: Promise<unknown>
  readonly backendPid: number
  /** A pooler stands in between: the backend may be another one with every transaction. */
  readonly isPooled: boolean
  /** As that of {@link PostgresConnections}. */
  transaction<T>(work: (transaction: SqlExecutor) => Promise<T>): Promise<T>
  close(): void
}

export interface MessageListener {
  onMessage(payload: string): void
  /** The connection was lost and messages flow again: some may have been missed in between. */
  onResubscribed(): void
  /** A statement that each session runs before its messages count as flowing: it takes a lock that ends with the session. */
  readonly presence?: string
}

/** @throws {InvalidArgumentError} when `client` is none of the clients we know. */
export function connectionsOf(client: PostgresPool, options: ConnectionsOptions): PostgresConnections {
  return new Connections(driverOf(client), options)
}

function driverOf(client: unknown): PostgresDriver {
  if (isNative(client)) {
    throw new InvalidArgumentError(
      'Expected `client` to be a `Pool` or `Client` of the package pg, or a `sql` of the package postgres, got one of pg.native: it cannot wait for messages without keeping the process alive. `new pg.Pool()` with the same settings will do.',
    )
  }
  if (has(client, 'options', 'totalCount', 'connect')) return pgPoolDriver(client as unknown as PgPool)
  if (has(client, 'connectionParameters', 'query')) return pgClientDriver(client as unknown as PgClient)
  if (has(client, 'options', 'unsafe', 'reserve')) return postgresJsDriver(client as unknown as PostgresJs)
  throw expected(
    'client',
    'a `Pool` or `Client` of the package pg, or a `sql` of the package postgres',
    client,
  )
}

/** Of libpq, which has no socket that Node.js could be told about. Also what makes a pool's connections. */
function isNative(client: unknown): boolean {
  const { Client } = (client ?? {}) as { readonly Client?: { readonly prototype?: unknown } }
  const made = has(client, 'totalCount') ? Client?.prototype : client
  return has(made, 'query', 'connect', 'setTypeParser') && !has(made, 'unref')
}

function has(client: unknown, ...names: readonly string[]): client is object {
  const isObject = (typeof client === 'object' || typeof client === 'function') && client !== null
  return isObject && names.every((name) => name in client)
}

const DEFAULT_LIMIT_MS = 10_000

interface Waiting {
  readonly resolve: (line: Line) => void
  readonly reject: (error: unknown) => void
}

class Connections implements PostgresConnections {
  readonly #driver: PostgresDriver
  readonly #max: number
  readonly #start: LineStart
  readonly #idle: Line[] = []
  /** Open or being opened, and the pool's. */
  #count = 0
  #waiting: Waiting[] = []
  /** Of everything that is open, to be closed at the end. */
  readonly #open = new Set<{ close(): void }>()
  #closed = false

  constructor(
    driver: PostgresDriver,
    { max, applicationName, statementLimitMs = DEFAULT_LIMIT_MS, settings = {} }: ConnectionsOptions,
  ) {
    this.#driver = driver
    this.#max = max
    this.#start = { applicationName, limitMs: statementLimitMs, settings }
  }

  async query(
    text: string,
    parameters: readonly (string | null)[] = [],
    options?: StatementOptions,
  ): Promise<readonly SqlRow[]> {
    const line = this.#idle.pop() ?? (await this.#take())
    try {
      return await line.query(text, parameters, options)
    } finally {
      this.#giveBack(line)
    }
  }

  async transaction<T>(work: (transaction: SqlExecutor) => Promise<T>): Promise<T> {
    const line = this.#idle.pop() ?? (await this.#take())
    try {
      return await line.transaction(work)
    } finally {
      this.#giveBack(line)
    }
  }

  async reserve({
    limitMs = this.#start.limitMs,
  }: {
    readonly limitMs?: number
  } = {}): Promise<OwnConnection> {
    const line = await this.#openOther(limitMs)
    return {
      query: (text, parameters = []) => line.ask(text, parameters),
      closed: line.session.closed,
      backendPid: line.backendPid,
      isPooled: line.isPooled,
      transaction: (work) => line.transaction(work),
      close: () => line.session.close(),
    }
  }

  async listen(channel: string, listener: MessageListener): Promise<Listening> {
    const listening = await listenOn(channel, listener, () => this.#openOther(this.#start.limitMs))
    // It has begun to look after itself, and would go on for ever.
    if (this.#closed) {
      listening.close()
      throw closedStoreError(MAKERS)
    }
    this.#open.add(listening)
    return {
      get isOpen() {
        return listening.isOpen
      },
      prove: () => listening.prove(),
      close: () => {
        this.#open.delete(listening)
        listening.close()
      },
    }
  }

  async isPooled(): Promise<boolean> {
    const line = this.#idle.pop() ?? (await this.#take())
    this.#giveBack(line)
    return line.isPooled
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#refuseWaiting(closedStoreError(MAKERS))
    for (const each of this.#open) each.close()
  }

  #take(): Promise<Line> {
    if (this.#closed) return Promise.reject(closedStoreError(MAKERS))
    return new Promise((resolve, reject) => {
      const waiting: Waiting = {
        resolve(line) {
          clearTimeout(patience)
          resolve(line)
        },
        reject(error) {
          clearTimeout(patience)
          reject(error)
        },
      }
      const patience = setTimeout(() => {
        this.#waiting = this.#waiting.filter((each) => each !== waiting)
        reject(new Error(`No connection became free within ${this.#start.limitMs} ms.`))
      }, this.#start.limitMs)
      this.#waiting.push(waiting)
      if (this.#count < this.#max) this.#add()
    })
  }

  #add(): void {
    this.#count += 1
    this.#openLine(this.#start.limitMs).then(
      (line) => {
        void line.session.closed.then(() => this.#lose(line))
        this.#giveBack(line)
      },
      (error: unknown) => {
        this.#count -= 1
        // Whoever waits may still get one of the others. Without any, each would wait for an attempt of its own, and hear
        // the same.
        if (this.#count === 0) this.#refuseWaiting(error)
      },
    )
  }

  #giveBack(line: Line): void {
    if (line.isLost) return
    const next = this.#waiting.shift()
    if (next !== undefined) next.resolve(line)
    else {
      line.session.keepProcess(false)
      this.#idle.push(line)
    }
  }

  #lose(line: Line): void {
    this.#count -= 1
    const index = this.#idle.indexOf(line)
    if (index >= 0) this.#idle.splice(index, 1)
    if (this.#waiting.length > 0 && !this.#closed) this.#add()
  }

  #refuseWaiting(error: unknown): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (const { reject } of waiting) reject(error)
  }

  async #openOther(limitMs: number): Promise<Line> {
    const line = await this.#openLine(limitMs)
    line.session.keepProcess(false)
    return line
  }

  async #openLine(limitMs: number): Promise<Line> {
    if (this.#closed) throw closedStoreError(MAKERS)
    const line = await openLine(this.#driver, { ...this.#start, limitMs })
    const { session } = line
    this.#open.add(session)
    void session.closed.then(() => this.#open.delete(session))
    if (this.#closed) session.close()
    return line
  }
}

/** Who asks for these connections. */
const MAKERS = 'postgresStore() or createJobs()'
