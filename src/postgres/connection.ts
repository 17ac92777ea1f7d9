import type { PostgresDriver, Session } from './driver.ts'
import type { SqlExecutor, SqlRow } from './executor.ts'
import { sqlState } from './failures.ts'

export interface LineStart {
  readonly applicationName: string
  readonly limitMs: number
  readonly settings: Readonly<Record<string, string>>
}

export interface StatementOptions {
  /**
   * The statement sets for itself whatever it relies on, and fails with 25001 before it does anything where the isolation
   * is not READ COMMITTED. So it needs no transaction around it where the session has other defaults.
   */
  readonly isAlone?: boolean
}

/**
 * Opens a connection on which statements run READ COMMITTED and under our own time limit. A pooler that refuses to be told
 * so in the first packet is asked without, and each statement is then put into a transaction that says it.
 */
export async function openLine(driver: PostgresDriver, start: LineStart): Promise<Line> {
  const { applicationName, limitMs } = start
  const settings = { ...start.settings, ...ownSettings(limitMs) }
  const open = async (first: Readonly<Record<string, string>>): Promise<Line> => {
    const signal = AbortSignal.timeout(OPEN_LIMIT_MS)
    try {
      const session = await driver.open({ applicationName, settings: first, signal })
      return await greeted(session, start, { tookSettings: first === settings, signal })
    } catch (error) {
      throw signal.aborted ? new Error(`No answer within ${OPEN_LIMIT_MS} ms.`, { cause: error }) : error
    }
  }
  try {
    return await open(settings)
  } catch (error) {
    // "Unsupported startup parameter", in the words of PgBouncer and others.
    const state = sqlState(error)
    if (state !== '08P01' && state !== '0A000') throw error
    return await open({})
  }
}

async function greeted(
  session: Session,
  start: LineStart,
  { tookSettings, signal }: { readonly tookSettings: boolean; readonly signal: AbortSignal },
): Promise<Line> {
  const giveUp = (): void => session.close()
  signal.addEventListener('abort', giveUp)
  try {
    const line = new Line(session, start)
    await line.greet({ tookSettings })
    return line
  } catch (error) {
    session.close()
    throw error
  } finally {
    signal.removeEventListener('abort', giveUp)
  }
}

/** Without it, a server that takes connections and says nothing would be waited for until TCP gives up. */
const OPEN_LIMIT_MS = 5000

/** What our statements rely on, whatever the defaults of the database and the role are. */
function ownSettings(limitMs: number): Readonly<Record<string, string>> {
  const limit = Number.isFinite(limitMs) ? limitMs : 0
  return {
    default_transaction_isolation: 'read committed',
    statement_timeout: String(limit),
    lock_timeout: '0',
    // Who freezes in a transaction (behind a pooler, every call is one) would keep its locks until it is thawed. Half, so that
    // the calls that wait for these locks meanwhile do not run into their own limit.
    idle_in_transaction_session_timeout: String(Math.ceil(limit / 2)),
    idle_session_timeout: '0',
    // Whoever may create in a schema of the path could put a closer match before a function of PostgreSQL, and be run as us.
    search_path: 'pg_catalog',
    extra_float_digits: '1',
  }
}

export const WRONG_ISOLATION = '25001'

/** How much longer than the server a connection is trusted to answer, after its own limit. */
const GRACE_MS = 1000

/** Named statements are kept by the server for as long as the connection lasts. */
const MOST_PREPARED = 100

export class Line {
  readonly session: Session
  isLost = false
  isPooled = false
  backendPid = 0
  readonly #limitMs: number
  readonly #settings: Readonly<Record<string, string>>
  readonly #prepared = new Set<string>()
  /** What opens a transaction of ours on a session that has other defaults. */
  #begin = 'begin isolation level read committed'
  #hasOwnDefaults = false
  /** The session's own limit leaves our statements the time they may take. */
  #hasTime = false
  #unanswered = 0

  constructor(session: Session, { limitMs, settings }: LineStart) {
    this.session = session
    this.#limitMs = limitMs
    this.#settings = { ...settings, ...ownSettings(limitMs) }
    void session.closed.then(() => {
      this.isLost = true
    })
  }

  /** Finds out whom we talk to. */
  async greet({ tookSettings }: { readonly tookSettings: boolean }): Promise<void> {
    const own = Object.entries(this.#settings)
    const ownBegin = [this.#begin, ...own.map(([name, value]) => `set local ${name} = '${value}'`)].join('; ')
    // The role's own limit may be too short even for this.
    if (!tookSettings) await this.ask(ownBegin, [])
    const [row] = await this.ask(greeting(own), [])
    if (!tookSettings) await this.ask('commit', [])
    this.backendPid = Number(row?.['pid'])
    this.isPooled = this.backendPid !== this.session.announcedPid
    this.#hasOwnDefaults = Number(row?.['ours']) === own.length
    const limitMs = Number(row?.['limit'])
    this.#hasTime = limitMs === 0 || limitMs >= this.#limitMs
    if (!this.#hasOwnDefaults) this.#begin = ownBegin
  }

  async query(
    text: string,
    parameters: readonly (string | null)[],
    { isAlone = false }: StatementOptions = {},
  ): Promise<readonly SqlRow[]> {
    if (this.#hasOwnDefaults) return await this.ask(text, parameters)
    if (isAlone && this.#hasTime) {
      try {
        return await this.ask(text, parameters)
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
      // It is undone either way: by the rollback, or with the connection.
      await this.ask('rollback', []).catch(() => this.session.close())
      throw sqlState(error) === '25P02' && failure !== undefined ? failure.error : error
    }
  }

  /** As it is, in whatever transaction is open. */
  async ask(text: string, parameters: readonly (string | null)[]): Promise<readonly SqlRow[]> {
    const prepared = this.#isPrepared(text, parameters)
    const limit = Number.isFinite(this.#limitMs)
      ? setTimeout(() => this.#giveUp(), this.#limitMs + GRACE_MS)
      : undefined
    this.#unanswered += 1
    this.session.keepProcess(true)
    try {
      return await this.session.query(text, parameters, { prepared })
    } catch (error) {
      const state = sqlState(error)
      // Not the server's answer, so the connection is gone or as good as gone, and may tell its end only in a moment: nobody
      // else should be given it until then.
      if (state === undefined) {
        if (!this.isLost) this.#giveUp()
        throw await this.#lossOr(error)
      }
      // The server ends the session, and says so before we see the end: nobody else should be given it until then.
      if (state.startsWith('57P')) this.#giveUp()
      // What the server has prepared is no longer what we take it for: after a migration, or behind a pooler.
      if (prepared && DOUBTFUL.has(state)) this.#giveUp()
      throw error
    } finally {
      clearTimeout(limit)
      this.#unanswered -= 1
      if (this.#unanswered === 0 && !this.isLost) this.session.keepProcess(false)
    }
  }

  #isPrepared(text: string, parameters: readonly (string | null)[]): boolean {
    if (this.isPooled || parameters.length === 0) return false
    if (this.#prepared.has(text)) return true
    if (this.#prepared.size >= MOST_PREPARED) return false
    this.#prepared.add(text)
    return true
  }

  /** The server may have said why it ended the session just before, in a message of its own. */
  async #lossOr(error: unknown): Promise<unknown> {
    const reason = await this.session.closed
    return sqlState(reason) === undefined ? error : reason
  }

  #giveUp(): void {
    this.isLost = true
    this.session.close()
  }
}

const DOUBTFUL: ReadonlySet<string> = new Set(['0A000', '26000', '42P05'])

/** Who answers, and how many of the settings its sessions have from the start. */
function greeting(settings: readonly (readonly [string, string])[]): string {
  const pairs = settings.map(([name, value]) => `('${name}', '${value}')`).join(', ')
  return `select pg_backend_pid()::text as pid,
    (select count(*) from pg_catalog.pg_settings where (name, reset_val) in (${pairs}))::text as ours,
    (select reset_val from pg_catalog.pg_settings where name = 'statement_timeout') as limit`
}
