import { expected } from '../base/arguments.ts'
import { closedStoreError } from '../base/closed.ts'
import { tooOld } from '../base/packages.ts'
import { InvalidArgumentError } from '../errors.ts'
import {
  type ConnectionStart,
  openConnection,
  type PostgresConnection,
  type StatementOptions,
} from './connection.ts'
import type { PostgresDriver } from './driver.ts'
import type { SqlExecutor, SqlRow } from './executor.ts'
import { type PgClient, type PgPool, pgClientDriver, pgPoolDriver } from './pg-driver.ts'
import { type PostgresJs, postgresJsDriver } from './postgres-js-driver.ts'
import { type ChannelListener, type ChannelSubscription, subscribe } from './subscription.ts'

/** The user's client: a `Pool` or `Client` of the package pg, or a `sql` of the package postgres. */
export type PostgresPool = PgPool | PgClient | PostgresJs

export interface ConnectionsOptions {
  /** How many connections at once, besides reserved connections and subscriptions. */
  readonly max: number
  /** The name that `pg_stat_activity` shows. */
  readonly applicationName: string
  /**
   * How long a statement may take. Then the server ends it. If the server does not answer even then, we close the connection
   * a second later. Default: 10 s.
   */
  readonly statementLimitMs?: number
  /**
   * Whether statements are small and take milliseconds. Then an answer that is owed for a while is a reason to examine the connection.
   * Default: false.
   */
  readonly isPrompt?: boolean
  /** More settings of our sessions: `{ synchronous_commit: 'off' }`. */
  readonly settings?: Readonly<Record<string, string>>
  /** What the user called to open these connections, for the message after `close()`. Default: `postgresStore()`. */
  readonly maker?: string
}

/**
 * A small pool of our own. It takes the configuration of the user's client and none of its connections, so that nothing the
 * application does can delay a renewal. A connection opens when it is needed and is replaced when it is lost. It keeps the
 * process alive only while an answer is awaited.
 *
 * Every method rejects with the client package's own errors. `storeErrorOf` turns them into sentences.
 */
export interface PostgresConnections extends SqlExecutor {
  /**
   * Runs one statement in a transaction of its own; without parameters, several. It runs READ COMMITTED and under our own
   * time limit, whatever the defaults of the database or the role are.
   */
  query(
    text: string,
    parameters?: readonly (string | null)[],
    options?: StatementOptions,
  ): Promise<readonly SqlRow[]>
  /** READ COMMITTED. Commits when `work` resolves. When `work` rejects, rolls back and rejects with the same error. */
  transaction<T>(work: (transaction: SqlExecutor) => Promise<T>): Promise<T>
  /** A connection for the caller alone, besides the pool. `limitMs`: for each statement; `Infinity` for none. */
  reserve(options?: { readonly limitMs?: number }): Promise<OwnConnection>
  /**
   * Subscribes to a channel, on a connection of its own that is replaced whenever it is lost. Resolves once messages flow.
   * Rejects when they cannot: no server, no right, a standby, or a pooler that shares connections among transactions.
   */
  listen(channel: string, listener: ChannelListener): Promise<ChannelSubscription>
  /** Whether a pooler stands in between. Then two transactions in a row may run on two backends. */
  isPooled(): Promise<boolean>
  /** Closes every connection, with reservations and subscriptions. Calls without an answer yet reject. Repeatable. */
  close(): Promise<void>
}

export interface OwnConnection extends SqlExecutor {
  /** Resolves with the reason once the connection is gone, whoever ended it. Never rejects. */
  readonly closed: Promise<unknown>
  readonly backendPid: number
  /** Whether a pooler stands in between: then each transaction may run on another backend. */
  readonly isPooled: boolean
  /** As that of {@link PostgresConnections}. */
  transaction<T>(work: (transaction: SqlExecutor) => Promise<T>): Promise<T>
  close(): void
}

/** @throws {InvalidArgumentError} when `client` is none of the clients that {@link PostgresPool} names. */
export function connectionsOf(client: PostgresPool, options: ConnectionsOptions): PostgresConnections {
  return new Connections(driverOf(client), options)
}

function driverOf(client: unknown): PostgresDriver {
  if (isOldPg(client)) throw tooOld('pg 8.11 or newer', 'pg')
  if (isNative(client)) {
    throw new InvalidArgumentError(
      'Expected `client` to be a `Pool` or `Client` of the package pg, or a `sql` of the package postgres, got one of pg.native: it cannot wait for messages without keeping the process alive. `new pg.Pool()` with the same settings will do.',
    )
  }
  if (has(client, 'options', 'totalCount', 'connect')) return pgPoolDriver(client as unknown as PgPool)
  if (has(client, 'connectionParameters', 'query')) return pgClientDriver(client as unknown as PgClient)
  if (has(client, 'options', 'unsafe', 'reserve')) return postgresJsDriver(client as unknown as PostgresJs)
  if (has(client, 'options', 'unsafe', 'begin')) throw tooOld('postgres 3.4 or newer', 'postgres')
  throw expected(
    'client',
    'a `Pool` or `Client` of the package pg, or a `sql` of the package postgres',
    client,
  )
}

/** Whether a client, or the class of a pool's clients, is pg.native: libpq has no socket that Node.js could unref. */
function isNative(client: unknown): boolean {
  const made = clientOf(client)
  return has(made, 'query', 'connect', 'setTypeParser') && !has(made, 'unref')
}

/** Whether it is one of pg 8.8 or before, which begins a session by itself as pg.native does not, and has no `unref` either. */
function isOldPg(client: unknown): boolean {
  const made = clientOf(client)
  return has(made, 'query', 'getStartupConf') && !has(made, 'unref')
}

/** A client, or the prototype of those of a pool. */
function clientOf(client: unknown): unknown {
  const { Client } = (client ?? {}) as { readonly Client?: { readonly prototype?: unknown } }
  return has(client, 'totalCount') ? Client?.prototype : client
}

function has(client: unknown, ...names: readonly string[]): client is object {
  const isObject = (typeof client === 'object' || typeof client === 'function') && client !== null
  return isObject && names.every((name) => name in client)
}

const DEFAULT_LIMIT_MS = 10_000
/** Statements that take long may be many, so a second connection that would find out nothing is not opened each time. */
const EXAMINATION_PAUSE_MS = 5000
/** The state of a backend: `active` while it works on a statement, or one that begins with `idle`. */
const STATE = 'select state from pg_catalog.pg_stat_activity where pid = $1::int'

interface WaitingCall {
  readonly resolve: (connection: PostgresConnection) => void
  readonly reject: (error: unknown) => void
}

class Connections implements PostgresConnections {
  readonly #driver: PostgresDriver
  readonly #max: number
  readonly #maker: string
  readonly #isPrompt: boolean
  readonly #start: ConnectionStart
  readonly #idle: PostgresConnection[] = []
  /** Connections of the pool that are open or being opened. */
  #count = 0
  #waiting: WaitingCall[] = []
  /** Connections that owe an answer, each with how many it had given by then. */
  readonly #suspects = new Map<PostgresConnection, number>()
  #examinedAt = Number.NEGATIVE_INFINITY
  /** All sessions and subscriptions that `close()` has to close. */
  readonly #open = new Set<{ close(): void }>()
  #closed = false

  constructor(
    driver: PostgresDriver,
    {
      max,
      applicationName,
      statementLimitMs = DEFAULT_LIMIT_MS,
      isPrompt = false,
      settings = {},
      maker = 'postgresStore()',
    }: ConnectionsOptions,
  ) {
    this.#driver = driver
    this.#max = max
    this.#maker = maker
    this.#isPrompt = isPrompt
    this.#start = { applicationName, limitMs: statementLimitMs, settings }
  }

  async query(
    text: string,
    parameters: readonly (string | null)[] = [],
    options?: StatementOptions,
  ): Promise<readonly SqlRow[]> {
    const connection = this.#idle.pop() ?? (await this.#take())
    try {
      return await connection.query(text, parameters, options)
    } finally {
      this.#giveBack(connection)
    }
  }

  async transaction<T>(work: (transaction: SqlExecutor) => Promise<T>): Promise<T> {
    const connection = this.#idle.pop() ?? (await this.#take())
    try {
      return await connection.transaction(work)
    } finally {
      this.#giveBack(connection)
    }
  }

  async reserve({
    limitMs = this.#start.limitMs,
  }: {
    readonly limitMs?: number
  } = {}): Promise<OwnConnection> {
    const connection = await this.#openOther(limitMs)
    return {
      query: (text, parameters = []) => connection.ask(text, parameters),
      closed: connection.session.closed,
      backendPid: connection.backendPid,
      isPooled: connection.isPooled,
      transaction: (work) => connection.transaction(work),
      close: () => connection.session.close(),
    }
  }

  async listen(channel: string, listener: ChannelListener): Promise<ChannelSubscription> {
    const subscription = await subscribe(channel, listener, () => this.#openOther(this.#start.limitMs))
    // Closed meanwhile: a subscription resubscribes until it is closed itself.
    if (this.#closed) {
      subscription.close()
      throw closedStoreError(this.#maker)
    }
    this.#open.add(subscription)
    return {
      get isOpen() {
        return subscription.isOpen
      },
      probe: () => subscription.probe(),
      close: () => {
        this.#open.delete(subscription)
        subscription.close()
      },
    }
  }

  async isPooled(): Promise<boolean> {
    const connection = this.#idle.pop() ?? (await this.#take())
    this.#giveBack(connection)
    return connection.isPooled
  }

  async close(): Promise<void> {
    this.#closed = true
    // The sessions end a moment later. A call in between gets the error of a closed store, and not that of a lost connection.
    this.#idle.length = 0
    this.#refuseWaiting(closedStoreError(this.#maker))
    for (const each of this.#open) each.close()
  }

  #take(): Promise<PostgresConnection> {
    if (this.#closed) return Promise.reject(closedStoreError(this.#maker))
    return new Promise((resolve, reject) => {
      const waiting: WaitingCall = {
        resolve(connection) {
          clearTimeout(timeout)
          resolve(connection)
        },
        reject(error) {
          clearTimeout(timeout)
          reject(error)
        },
      }
      const timeout = setTimeout(() => {
        this.#waiting = this.#waiting.filter((each) => each !== waiting)
        reject(new Error(`No connection became free within ${this.#start.limitMs} ms.`))
      }, this.#start.limitMs)
      this.#waiting.push(waiting)
      if (this.#count < this.#max) this.#add()
    })
  }

  #add(): void {
    this.#count += 1
    this.#openConnection(this.#start.limitMs).then(
      (connection) => {
        void connection.session.closed.then(() => this.#lose(connection))
        if (this.#isPrompt) connection.onSuspicion = () => this.#suspect(connection)
        this.#giveBack(connection)
      },
      (error: unknown) => {
        this.#count -= 1
        // While another connection is open, a waiting call may still get that one. Without any, each call would only repeat
        // the attempt and fail the same way.
        if (this.#count === 0) this.#refuseWaiting(error)
      },
    )
  }

  #giveBack(connection: PostgresConnection): void {
    if (connection.isLost || this.#closed) return
    const next = this.#waiting.shift()
    if (next !== undefined) next.resolve(connection)
    else {
      connection.session.keepProcess(false)
      this.#idle.push(connection)
    }
  }

  #lose(connection: PostgresConnection): void {
    this.#count -= 1
    const index = this.#idle.indexOf(connection)
    if (index >= 0) this.#idle.splice(index, 1)
    if (this.#waiting.length > 0 && !this.#closed) this.#add()
  }

  /**
   * The connection owes an answer. If the server works on the statement, the answer comes. If not, the statement or the answer was
   * lost, and the connection is dead: a firewall may have forgotten it. A second connection finds out. A large statement that is still
   * on its way looks the same, so this is for small ones.
   */
  #suspect(connection: PostgresConnection): void {
    const isUnderWay = this.#suspects.size > 0
    const isTooSoon = performance.now() - this.#examinedAt < EXAMINATION_PAUSE_MS
    // Behind a pooler nobody knows which backend works for whom.
    if (connection.isPooled || this.#closed || (isTooSoon && !isUnderWay)) return
    this.#suspects.set(connection, connection.answers)
    if (isUnderWay) return
    this.#examinedAt = performance.now()
    this.#examine()
      // The server hangs, or has no connection left.
      .catch(() => {})
      .finally(() => this.#suspects.clear())
  }

  async #examine(): Promise<void> {
    const second = await this.#openConnection(this.#start.limitMs)
    try {
      for (const [suspect, answers] of this.#suspects) {
        const isElsewhere = second.serverStart !== suspect.serverStart
        // The address may lead to several standbys. If it leads to another primary, the server of the suspect has been replaced.
        if (isElsewhere && (second.isStandby || suspect.isStandby)) continue
        const [row] = isElsewhere ? [] : await second.ask(STATE, [String(suspect.backendPid)])
        // Without a row the backend is gone.
        const isAtWork = row !== undefined && !String(row['state']).startsWith('idle')
        if (isAtWork || suspect.answers !== answers) continue
        suspect.giveUp()
        // They came by the same way.
        for (const idle of this.#idle.splice(0)) idle.giveUp()
        this.#examinedAt = Number.NEGATIVE_INFINITY
      }
    } finally {
      second.session.close()
    }
  }

  #refuseWaiting(error: unknown): void {
    const waiting = this.#waiting
    this.#waiting = []
    for (const { reject } of waiting) reject(error)
  }

  async #openOther(limitMs: number): Promise<PostgresConnection> {
    const connection = await this.#openConnection(limitMs)
    connection.session.keepProcess(false)
    return connection
  }

  async #openConnection(limitMs: number): Promise<PostgresConnection> {
    if (this.#closed) throw closedStoreError(this.#maker)
    const connection = await openConnection(this.#driver, { ...this.#start, limitMs })
    const { session } = connection
    this.#open.add(session)
    void session.closed.then(() => this.#open.delete(session))
    if (this.#closed) session.close()
    return connection
  }
}
