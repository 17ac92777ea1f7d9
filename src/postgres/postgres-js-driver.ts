import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { createSecureContext, type SecureContextOptions } from 'node:tls'
import { notInstalled } from '../base/packages.ts'
import { packagePostgres } from './client-packages.ts'
import {
  type DriverSession,
  KEEP_ALIVE_MS,
  type PostgresDriver,
  type SessionStart,
  startOptions,
} from './driver.ts'
import type { SqlRow } from './executor.ts'

/** The part of the user's `sql` that is used. */
export interface PostgresJs {
  readonly options: object
  unsafe: unknown
}

/** A `sql` of our own with a single connection. */
interface OwnSql {
  unsafe(text: string, parameters: unknown[], options: object): PromiseLike<unknown>
  end(options: { timeout: number }): Promise<void>
}

/** `sql.options`: what the user gave, with the parts of a URL and the environment filled in. */
interface ParsedOptions {
  readonly host: readonly string[]
  readonly port: readonly number[]
  readonly path?: string | false
  readonly database: string
  readonly user: string
  readonly pass: unknown
  readonly connection: Readonly<Record<string, unknown>>
  readonly ssl?: SecureContextOptions | string | boolean
  readonly sslnegotiation?: string | null
  readonly connect_timeout: number
  readonly target_session_attrs?: string | undefined
  readonly socket?: ((options: object) => Socket | Promise<Socket>) | undefined
}

export function postgresJsDriver(sql: PostgresJs): PostgresDriver {
  const options = sql.options as ParsedOptions
  return {
    async open(start) {
      // A `sql` does not name the function that made it.
      const postgres = await packagePostgres()
      if (postgres === undefined) throw notInstalled('postgres')
      start.signal.throwIfAborted()
      // The package throws what is wrong with a certificate where nobody can catch it: that would end the process.
      if (typeof options.ssl === 'object') createSecureContext(options.ssl)
      return openSession(postgres as unknown as (options: object) => OwnSql, options, start)
    },
  }
}

async function openSession(
  postgres: (options: object) => OwnSql,
  options: ParsedOptions,
  { applicationName, settings, signal }: SessionStart,
): Promise<DriverSession> {
  const { host, port, path, database, user, pass, ssl, connect_timeout, target_session_attrs } = options
  const socket = new SessionSocket(options)
  const sql = postgres({
    host,
    port,
    path,
    database,
    user,
    pass,
    ssl,
    sslnegotiation: options.sslnegotiation ?? null,
    connect_timeout,
    target_session_attrs,
    connection: {
      ...withoutOurs(options.connection, settings),
      application_name: applicationName,
      ...startOptions(options.connection['options'], settings),
    },
    socket: () => socket.connect(),
    max: 1,
    idle_timeout: null,
    max_lifetime: null,
    keep_alive: KEEP_ALIVE_MS / 1000,
    fetch_types: false,
    prepare: true,
    types: AS_TEXT,
    debug: false,
    onnotice() {},
    onnotify: (channel: string, payload: string) => socket.onMessage(channel, payload),
    onclose: () => socket.lost(),
  })
  const session = new PostgresJsSession(sql, socket)
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

/** Every type that the package would parse: numbers, JSON, booleans, dates and bytes. */
const AS_TEXT = {
  text: {
    to: 25,
    from: [16, 17, 21, 23, 26, 114, 700, 701, 1082, 1114, 1184, 3802],
    serialize: (value: unknown) => value,
    parse: (value: unknown) => value,
  },
}

/** The server would prefer a setting that is a parameter of its own to the same setting in `options`. */
function withoutOurs(
  connection: Readonly<Record<string, unknown>>,
  settings: Readonly<Record<string, string>>,
): object {
  const isOurs = (name: string): boolean => LIMITS.has(name) || Object.hasOwn(settings, name)
  return Object.fromEntries(Object.entries(connection).filter(([name]) => !isOurs(name.toLowerCase())))
}

const LIMITS: ReadonlySet<string> = new Set([
  'statement_timeout',
  'lock_timeout',
  'idle_in_transaction_session_timeout',
])

/**
 * The socket of a `sql`. We make it, because the package neither unrefs its socket nor stops reconnecting when the
 * connection is gone.
 */
class SessionSocket {
  readonly closed: Promise<void>
  onMessage: (channel: string, payload: string) => void = () => {}
  readonly #options: ParsedOptions
  readonly #ending = new AbortController()
  #socket: Socket | undefined
  #keepsProcess = true
  #ended = false
  #tries = 0
  readonly #resolveClosed: () => void

  constructor(options: ParsedOptions) {
    this.#options = options
    let resolveClosed = (): void => {}
    this.closed = new Promise((resolve) => {
      resolveClosed = resolve
    })
    this.#resolveClosed = resolveClosed
  }

  async connect(): Promise<Socket> {
    const { host, port, path, socket } = this.#options
    // Each host once. A lost connection is replaced by a new session, not by a new socket.
    if (this.#ended || this.#tries >= Math.max(host.length, 1)) throw new Error('The connection was closed.')
    const index = this.#tries
    this.#tries += 1
    if (socket !== undefined) {
      this.#socket = await socket(this.#options)
    } else {
      const own = path ? connect(path) : connect(port[index] ?? 5432, host[index] ?? 'localhost')
      this.#socket = own
      // The package listens only once it has the socket. An error before that would end the process.
      own.on('error', () => {})
      await once(own, 'connect', { signal: this.#ending.signal })
      // The package compares the certificate with this name.
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

class PostgresJsSession implements DriverSession {
  readonly closed: Promise<unknown>
  announcedPid: number | undefined
  readonly #sql: OwnSql
  readonly #socket: SessionSocket
  readonly #unanswered = new Set<(error: Error) => void>()
  #isClosed = false

  constructor(sql: OwnSql, socket: SessionSocket) {
    this.#sql = sql
    this.#socket = socket
    this.closed = socket.closed
    // The package rejects first, with a better reason. It forgets a statement that it was given just as the connection ended.
    void socket.closed.then(() => {
      this.#isClosed = true
      setImmediate(() => this.#rejectUnanswered())
    })
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
      if (this.#isClosed) setImmediate(() => this.#rejectUnanswered())
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
    this.#socket.onMessage = listener
  }

  keepProcess(keeps: boolean): void {
    this.#socket.keepProcess(keeps)
  }

  close(): void {
    // The goodbye before the socket is destroyed: over TLS, writing to a destroyed socket is an error that nobody can catch.
    this.#socket.end(this.#sql.end({ timeout: 0 }))
  }
}
