import type { DriverSession, PostgresDriver } from './driver.ts'
import type { SqlExecutor, SqlRow } from './executor.ts'
import { sqlState } from './failures.ts'

export interface ConnectionStart {
  readonly applicationName: string
  readonly limitMs: number
  readonly settings: Readonly<Record<string, string>>
}

export interface StatementOptions {
  /**
   * The statement itself sets whatever it relies on. If the isolation is not READ COMMITTED, it fails with 25001 before it
   * does anything. So it needs no transaction around it on a session with other defaults.
   */
  readonly isAlone?: boolean
  /** There are many such texts, and each is sent seldom. It is not prepared, because a connection prepares a limited number. */
  readonly isRare?: boolean
}

/**
 * Opens a connection on which statements run READ COMMITTED and under our own time limit. The first packet asks for that. If
 * a pooler refuses such a packet, we connect without it, and put each statement into a transaction that sets the same.
 */
export async function openConnection(
  driver: PostgresDriver,
  start: ConnectionStart,
): Promise<PostgresConnection> {
  const { applicationName, limitMs } = start
  const settings = { ...start.settings, ...ownSettings(limitMs) }
  const open = async (first: Readonly<Record<string, string>>): Promise<PostgresConnection> => {
    const signal = AbortSignal.timeout(OPEN_LIMIT_MS)
    try {
      const session = await driver.open({ applicationName, settings: first, signal })
      return await identified(session, start, { tookSettings: first === settings, signal })
    } catch (error) {
      throw signal.aborted ? new Error(`No answer within ${OPEN_LIMIT_MS} ms.`, { cause: error }) : error
    }
  }
  try {
    return await open(settings)
  } catch (error) {
    // PgBouncer and others reject an "unsupported startup parameter" with these codes.
    const state = sqlState(error)
    if (state !== '08P01' && state !== '0A000') throw error
    return await open({})
  }
}

async function identified(
  session: DriverSession,
  start: ConnectionStart,
  { tookSettings, signal }: { readonly tookSettings: boolean; readonly signal: AbortSignal },
): Promise<PostgresConnection> {
  const giveUp = (): void => session.close()
  signal.addEventListener('abort', giveUp)
  try {
    const connection = new PostgresConnection(session, start)
    await connection.identify({ tookSettings })
    return connection
  } catch (error) {
    session.close()
    throw error
  } finally {
    signal.removeEventListener('abort', giveUp)
  }
}

/** Without this limit, a server that accepts connections and never answers would be waited for until TCP gives up. */
const OPEN_LIMIT_MS = 5000

/** The settings that our statements rely on, whatever the defaults of the database and the role are. */
function ownSettings(limitMs: number): Readonly<Record<string, string>> {
  const limit = Number.isFinite(limitMs) ? limitMs : 0
  return {
    default_transaction_isolation: 'read committed',
    statement_timeout: String(limit),
    lock_timeout: '0',
    // A process that freezes inside a transaction (behind a pooler, every call is one) would keep its locks until it goes on.
    // Half of the limit, so that calls that wait for these locks do not reach their own limit first.
    idle_in_transaction_session_timeout: String(Math.ceil(limit / 2)),
    idle_session_timeout: '0',
    // A role that may create functions in a schema of the path could shadow a function of PostgreSQL and run as our role.
    search_path: 'pg_catalog',
    extra_float_digits: '1',
  }
}

export const WRONG_ISOLATION = '25001'

/** How long after the server's own time limit we wait for its answer. */
const GRACE_MS = 1000

/** An answer that is owed for this long may never come. */
const SUSPICION_MS = 750

/** The server keeps prepared statements for as long as the connection lasts. */
const MOST_PREPARED = 100

/** One connection. It is never opened again: when it is lost, its owner opens another one. */
export class PostgresConnection {
  readonly session: DriverSession
  isLost = false
  isPooled = false
  backendPid = 0
  /** When its server started. Another server may have a backend of the same id, or none. */
  serverStart = ''
  isStandby = false
  /** Called when an answer is owed for a while: the statement takes long, or the connection is dead. */
  onSuspicion: (() => void) | undefined
  /** How many statements have been answered, or have failed. */
  answers = 0
  readonly #openedAt = performance.now()
  readonly #limitMs: number
  readonly #settings: Readonly<Record<string, string>>
  readonly #prepared = new Set<string>()
  /** The statements that open a transaction of ours. On a session with other defaults they also set our own. */
  #begin = 'begin isolation level read committed'
  #hasOwnDefaults = false
  /** Whether the session's own time limit is at least as long as ours. */
  #hasTime = false
  #unanswered = 0

  constructor(session: DriverSession, { limitMs, settings }: ConnectionStart) {
    this.session = session
    this.#limitMs = limitMs
    this.#settings = { ...settings, ...ownSettings(limitMs) }
    void session.closed.then(() => {
      this.isLost = true
    })
  }

  /** Finds out which backend answers, and which of our settings its session has. */
  async identify({ tookSettings }: { readonly tookSettings: boolean }): Promise<void> {
    const own = Object.entries(this.#settings)
    const ownBegin = [this.#begin, ...own.map(([name, value]) => `set local ${name} = '${value}'`)].join('; ')
    // The role's own time limit may be too short even for the question below.
    if (!tookSettings) await this.ask(ownBegin, [])
    const [row] = await this.ask(question(own), [])
    if (!tookSettings) await this.ask('commit', [])
    this.backendPid = Number(row?.['pid'])
    this.serverStart = String(row?.['start'])
    this.isStandby = row?.['standby'] === 'true'
    this.isPooled = this.backendPid !== this.session.announcedPid
    this.#hasOwnDefaults = Number(row?.['ours']) === own.length
    const limitMs = Number(row?.['limit'])
    this.#hasTime = limitMs === 0 || limitMs >= this.#limitMs
    if (!this.#hasOwnDefaults) this.#begin = ownBegin
  }

  async query(
    text: string,
    parameters: readonly (string | null)[],
    { isAlone = false, isRare = false }: StatementOptions = {},
  ): Promise<readonly SqlRow[]> {
    if (this.#hasOwnDefaults) return await this.ask(text, parameters, { isRare })
    if (isAlone && this.#hasTime) {
      try {
        return await this.ask(text, parameters, { isRare })
      } catch (error) {
        if (sqlState(error) !== WRONG_ISOLATION) throw error
      }
    }
    return await this.transaction((transaction) => transaction.query(text, parameters))
  }

  async transaction<T>(work: (transaction: SqlExecutor) => Promise<T>): Promise<T> {
    let failure: { readonly error: unknown } | undefined
    await this.ask(this.#begin, [])
    try {
      const result = await work({
        query: (text, parameters = []) =>
          this.ask(text, parameters).catch((error: unknown) => {
            failure ??= { error }
            throw error
          }),
      })
      // COMMIT of a transaction that has failed is a ROLLBACK that reports success.
      if (failure !== undefined) await this.ask('select 1', [])
      await this.ask('commit', [])
      return result
    } catch (error) {
      // If the rollback fails, closing the connection undoes the transaction.
      await this.ask('rollback', []).catch(() => this.session.close())
      throw sqlState(error) === '25P02' && failure !== undefined ? failure.error : error
    }
  }

  /** Sends a statement as it is, in whatever transaction is open. */
  async ask(
    text: string,
    parameters: readonly (string | null)[],
    { isRare = false }: Pick<StatementOptions, 'isRare'> = {},
  ): Promise<readonly SqlRow[]> {
    const prepared = !isRare && this.#isPrepared(text, parameters)
    const endLimit = this.#beginLimit()
    this.#unanswered += 1
    this.session.keepProcess(true)
    try {
      return await this.session.query(text, parameters, { prepared })
    } catch (error) {
      const state = sqlState(error)
      // Not an answer of the server: the connection is gone, although its `closed` may resolve only in a moment. Until then no
      // other call may use it.
      if (state === undefined) {
        if (!this.isLost) this.giveUp()
        throw await this.#lossOr(error)
      }
      // The server announces that it ends the session, before we see the end. Until then no other call may use it.
      if (/^(57P|25P0[34])/.test(state)) this.giveUp()
      // In a fail-over the address may still have led to the old primary. A new connection finds the new one, once the address does.
      if (state === READ_ONLY && performance.now() - this.#openedAt > READ_ONLY_PAUSE_MS) this.giveUp()
      // After a migration, or behind a pooler, a prepared statement is not the one that we prepared.
      if (prepared && STALE_STATEMENT.has(state)) this.giveUp()
      throw error
    } finally {
      endLimit()
      this.answers += 1
      this.#unanswered -= 1
      if (this.#unanswered === 0 && !this.isLost) this.session.keepProcess(false)
    }
  }

  /** Calls that have no answer fail. No further call may use the connection. */
  giveUp(): void {
    this.isLost = true
    this.session.close()
  }

  /** Limits how long an answer may be owed. Call the result when it has come. */
  #beginLimit(): () => void {
    if (!Number.isFinite(this.#limitMs)) return () => {}
    let timer = setTimeout(() => {
      timer = setTimeout(() => this.giveUp(), this.#limitMs + GRACE_MS - SUSPICION_MS)
      const { answers } = this
      // This process may have been the one that stood still: what has arrived meanwhile is read first.
      setImmediate(() => answers === this.answers && this.onSuspicion?.())
    }, SUSPICION_MS)
    return () => clearTimeout(timer)
  }

  #isPrepared(text: string, parameters: readonly (string | null)[]): boolean {
    if (this.isPooled || parameters.length === 0) return false
    if (this.#prepared.has(text)) return true
    if (this.#prepared.size >= MOST_PREPARED) return false
    this.#prepared.add(text)
    return true
  }

  /** The reason that the server gave when it ended the session, if it gave one; else the error itself. */
  async #lossOr(error: unknown): Promise<unknown> {
    const reason = await this.session.closed
    return sqlState(reason) === undefined ? error : reason
  }
}

const READ_ONLY = '25006'
/** If the address leads to a read-only server for long, each call that writes would open a connection. */
const READ_ONLY_PAUSE_MS = 1000
const STALE_STATEMENT: ReadonlySet<string> = new Set(['0A000', '26000', '42P05'])

/** Asks for the backend's process id, and how many of the settings its sessions have from the start. */
function question(settings: readonly (readonly [string, string])[]): string {
  const pairs = settings.map(([name, value]) => `('${name}', '${value}')`).join(', ')
  // One look at the settings for both columns: the server writes down all of them for each.
  return `select pg_backend_pid()::text as pid, extract(epoch from pg_catalog.pg_postmaster_start_time())::text as start,
    pg_catalog.pg_is_in_recovery()::text as standby, (count(*) filter (where (name, reset_val) in (${pairs})))::text as ours,
    max(reset_val) filter (where name = 'statement_timeout') as limit
    from pg_catalog.pg_settings`
}
