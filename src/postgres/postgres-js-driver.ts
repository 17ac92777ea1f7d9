import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { createSecureContext, type SecureContextOptions } from 'node:tls'
import {
  KEEP_ALIVE_MS,
  type PostgresDriver,
  type Session,
  type SessionStart,
  startOptions,
} from './driver.ts'
import type { SqlRow } from './executor.ts'

/** What is used of a `sql` of the package postgres. */
export interface PostgresJs {
  readonly options: object
  unsafe: unknown
}

/** A `sql` of our own with a single connection. */
interface OwnSql {
  unsafe(text: string, parameters: unknown[], options: object): PromiseLike<unknown>
  end(options: { timeout: number }): Promise<void>
}

interface PostgresJsOptions {
  readonly host: readonly string[]
  readonly port: readonly number[]
  readonly path?: string | false
  readonly connection: Readonly<Record<string, unknown>>
  readonly ssl?: SecureContextOptions | string | boolean
  readonly socket?: ((options: object) => Socket | Promise<Socket>) | undefined
}

export function postgresJsDriver(sql: PostgresJs): PostgresDriver {
  const options = sql.options as PostgresJsOptions
  return {
    async open(start) {
      // A `sql` does not say which function made it.
      const { default: postgres } = await import('postgres')
      start.signal.throwIfAborted()
      // What is wrong with a certificate is thrown where the package lets nobody catch it, and would end the process.
      if (typeof options.ssl === 'object') createSecureContext(options.ssl)
      return openSession(postgres as unknown as (options: object) => OwnSql, options, start)
    },
  }
}

async function openSession(
  postgres: (options: object) => OwnSql,
  options: PostgresJsOptions,
  { applicationName, settings, signal }: SessionStart,
): Promise<Session> {
  const line = new Line(options)
  const sql = postgres({
    // Parsed before, and so taken over as they are; what is written below is everything that would be parsed.
    ...options,
    shared: { retries: 0, typeArrayMap: {} },
    parameters: {},
    connection: {
      ...withoutLimits(options.connection),
      application_name: applicationName,
      ...startOptions(options.connection['options'], settings),
    },
    socket: () => line.connect(),
    max: 1,
    idle_timeout: null,
    max_lifetime: null,
    keep_alive: KEEP_ALIVE_MS / 1000,
    fetch_types: false,
    no_subscribe: true,
    prepare: true,
    parsers: {},
    transform: { undefined: undefined, column: {}, value: {}, row: {} },
    debug: false,
    onnotice() {},
    onparameter() {},
    onnotify: (channel: string, payload: string) => line.onMessage(channel, payload),
    onclose: () => line.lost(),
  })
  const session = new PostgresJsSession(sql, line)
  const giveUp = (): void => session.close()
  signal.addEventListener('abort', giveUp)
  try {
    await session.start()
    return session
  } catch (error) {
    session.close()
    throw error
  } finally {
    signal.removeEventListener('abort', giveUp)
  }
}

function withoutLimits(connection: Readonly<Record<string, unknown>>): object {
  const {
    statement_timeout: _statement,
    lock_timeout: _lock,
    idle_in_transaction_session_timeout: _idle,
    ...rest
  } = connection
  return rest
}

/**
 * The socket below. The package neither shows it, so that it could be kept from keeping the process alive, nor stops
 * connecting again when the connection is gone.
 */
class Line {
  readonly closed: Promise<void>
  onMessage: (channel: string, payload: string) => void = () => {}
  readonly #options: PostgresJsOptions
  readonly #ending = new AbortController()
  #socket: Socket | undefined
  #keepsProcess = true
  #ended = false
  #tries = 0
  readonly #resolveClosed: () => void

  constructor(options: PostgresJsOptions) {
    this.#options = options
    let resolveClosed = (): void => {}
    this.closed = new Promise((resolve) => {
      resolveClosed = resolve
    })
    this.#resolveClosed = resolveClosed
  }

  async connect(): Promise<Socket> {
    const { host, port, path, socket } = this.#options
    // Every host once, and then no more: a lost connection is replaced by a new session.
    if (this.#ended || this.#tries >= Math.max(host.length, 1)) throw new Error('The connection was closed.')
    const index = this.#tries
    this.#tries += 1
    if (socket !== undefined) {
      this.#socket = await socket(this.#options)
    } else {
      const own = path ? connect(path) : connect(port[index] ?? 5432, host[index] ?? 'localhost')
      this.#socket = own
      await once(own, 'connect', { signal: this.#ending.signal })
      // For the name in its certificate.
      Object.assign(own, { host: host[index], port: port[index] })
    }
    if (this.#ended) this.#socket.destroy()
    this.keepProcess(this.#keepsProcess)
    return this.#socket
  }

  keepProcess(keeps: boolean): void {
    this.#keepsProcess = keeps
    if (keeps) this.#socket?.ref?.()
    else this.#socket?.unref?.()
  }

  lost(): void {
    this.#ended = true
    this.#resolveClosed()
  }

  end(goodbye: Promise<void>): void {
    this.lost()
    this.#ending.abort()
    void goodbye.catch(() => {}).then(() => this.#socket?.destroy())
  }
}

class PostgresJsSession implements Session {
  readonly closed: Promise<unknown>
  announcedPid: number | undefined
  readonly #sql: OwnSql
  readonly #line: Line
  readonly #unanswered = new Set<(error: Error) => void>()

  constructor(sql: OwnSql, line: Line) {
    this.#sql = sql
    this.#line = line
    this.closed = line.closed
    // After the package, which knows more, but forgets what it was given just as the connection ended.
    void line.closed.then(() => setImmediate(() => this.#rejectUnanswered()))
  }

  async start(): Promise<void> {
    const result = await this.#sql.unsafe('select 1', [], {})
    const { pid } = (result as { readonly state?: { readonly pid?: number | null } }).state ?? {}
    this.announcedPid = pid ?? undefined
  }

  async query(
    text: string,
    parameters: readonly (string | null)[],
    { prepared }: { readonly prepared: boolean },
  ): Promise<readonly SqlRow[]> {
    const result = await this.#answered(this.#sql.unsafe(text, [...parameters], { prepare: prepared }))
    const results = result as readonly SqlRow[] | readonly (readonly SqlRow[])[]
    return (Array.isArray(results[0]) ? results.at(-1) : results) as readonly SqlRow[]
  }

  #answered(answer: PromiseLike<unknown>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#unanswered.add(reject)
      answer.then(
        (result) => {
          this.#unanswered.delete(reject)
          resolve(result)
        },
        (error: unknown) => {
          this.#unanswered.delete(reject)
          reject(error)
        },
      )
    })
  }

  #rejectUnanswered(): void {
    for (const reject of this.#unanswered) reject(new Error('The connection was closed.'))
  }

  onMessage(listener: (channel: string, payload: string) => void): void {
    this.#line.onMessage = listener
  }

  keepProcess(keeps: boolean): void {
    this.#line.keepProcess(keeps)
  }

  close(): void {
    // In this order: over TLS, a goodbye written to a socket that is destroyed is an error that nobody can catch.
    this.#line.end(this.#sql.end({ timeout: 0 }))
  }
}
