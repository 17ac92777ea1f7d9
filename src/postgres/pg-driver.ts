import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { type DriverSession, KEEP_ALIVE_MS, type PostgresDriver, startOptions } from './driver.ts'
import type { SqlRow } from './executor.ts'

/** The part of the user's `Pool` that is used. */
export interface PgPool {
  readonly options: object
  readonly totalCount: number
}

/** The part of the user's `Client` that is used. */
export interface PgClient {
  readonly host: string
  readonly port: number
  setTypeParser: unknown
}

/** A client of our own, made by the user's copy of the package. */
interface OwnClient {
  readonly processID: number | null
  readonly connectionParameters: object
  connect(): Promise<unknown>
  query(statement: object): Promise<{ readonly rows: readonly SqlRow[] } | readonly { rows: SqlRow[] }[]>
  on(event: string, listener: (event: never) => void): unknown
  end(): Promise<void>
}

type OwnClientClass = new (configuration: object) => OwnClient

export function pgPoolDriver(pool: PgPool): PostgresDriver {
  const { Client } = pool as unknown as { readonly Client: OwnClientClass }
  // The password is not enumerable.
  const { password } = pool.options as { readonly password?: unknown }
  return driverOf(Client, { ...pool.options, ...(password === undefined ? {} : { password }) })
}

export function pgClientDriver(client: PgClient): PostgresDriver {
  return driverOf(client.constructor as OwnClientClass, parametersOf(client as unknown as OwnClient))
}

function driverOf(Client: OwnClientClass, given: object): PostgresDriver {
  return {
    async open({ applicationName, settings, signal }) {
      signal.throwIfAborted()
      // The package itself resolves the connection string. Otherwise the string would win over the settings below.
      const parameters = parametersOf(new Client({ ...given, stream: new Socket() }))
      const { connectionString: _, stream: own, ...rest } = given as GivenOptions
      // Kept here, so that it can be unref'd and destroyed.
      let stream: PgStream = typeof own === 'object' && own !== null ? own : new Socket()
      const makeOwn = (config: object): PgStream => {
        stream = (own as StreamFactory)(config) ?? stream
        return stream
      }
      const client = new Client({
        ...rest,
        ...parameters,
        application_name: applicationName,
        ...startOptions((parameters as { readonly options?: unknown }).options, settings),
        keepAlive: true,
        keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
        types: AS_TEXT,
        pipeline: false,
        stream: typeof own === 'function' ? makeOwn : stream,
      })
      // What the options leave open has come from `pg.defaults`.
      for (const name of LIMITS) Object.assign(client.connectionParameters, { [name]: undefined })
      const session = new PgSession(client, stream)
      let giveUp = (): void => {}
      // After `end()` the package's `connect()` never settles.
      const givenUp = new Promise<never>((_, reject) => {
        giveUp = () => reject(signal.reason)
      })
      signal.addEventListener('abort', giveUp)
      try {
        await Promise.race([client.connect(), givenUp])
        return session
      } catch (error) {
        session.close()
        throw error
      } finally {
        signal.removeEventListener('abort', giveUp)
      }
    },
  }
}

interface GivenOptions {
  readonly connectionString?: string
  /** The user's own way to the server, through a proxy for instance. */
  readonly stream?: PgStream | StreamFactory | null
}

type StreamFactory = (config: object) => PgStream | undefined

type PgStream = Duplex & Partial<Pick<Socket, 'ref' | 'unref'>>

function parametersOf(client: OwnClient): object {
  const { connectionParameters } = client
  const { password } = connectionParameters as { readonly password?: unknown }
  return { ...connectionParameters, password }
}

/**
 * The time limits of the application's own statements. The package would send them as parameters, which the server prefers to
 * `options`. `query_timeout` is a timer of the package.
 */
const LIMITS = ['statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'query_timeout']

const AS_TEXT = { getTypeParser: () => (value: unknown) => value }

class PgSession implements DriverSession {
  readonly closed: Promise<unknown>
  readonly #client: OwnClient
  readonly #stream: PgStream
  /** Names of prepared statements, by their text. */
  readonly #names = new Map<string, string>()
  /** The answer to the last statement: the package takes the next statement only after it. */
  #last: Promise<unknown> = Promise.resolve()
  #busy = 0

  constructor(client: OwnClient, stream: PgStream) {
    this.#client = client
    this.#stream = stream
    this.closed = new Promise((resolve) => {
      // After its first error the client takes no statement any more. The error says why, and comes before the end.
      client.on('error', resolve)
      client.on('end', () => resolve(undefined))
    })
  }

  get announcedPid(): number | undefined {
    return this.#client.processID ?? undefined
  }

  query(
    text: string,
    parameters: readonly (string | null)[],
    { prepared }: { readonly prepared: boolean },
  ): Promise<readonly SqlRow[]> {
    const statement = prepared
      ? { name: this.#nameOf(text), text, values: parameters }
      : { text, values: parameters }
    this.#busy += 1
    const answer = this.#busy === 1 ? this.#ask(statement) : this.#last.then(() => this.#ask(statement))
    this.#last = answer.catch(() => {})
    return answer
  }

  async #ask(statement: object): Promise<readonly SqlRow[]> {
    try {
      const result = await this.#client.query(statement)
      return 'rows' in result ? result.rows : (result.at(-1)?.rows ?? [])
    } finally {
      this.#busy -= 1
    }
  }

  onMessage(listener: (channel: string, payload: string) => void): void {
    this.#client.on('notification', (message: { readonly channel: string; readonly payload?: string }) => {
      listener(message.channel, message.payload ?? '')
    })
  }

  keepProcess(keeps: boolean): void {
    if (keeps) this.#stream.ref?.()
    else this.#stream.unref?.()
  }

  close(): void {
    this.#client.end().catch(() => {})
    // A goodbye that nobody answers would leave the stream open.
    setImmediate(() => this.#stream.destroy())
  }

  #nameOf(text: string): string {
    const known = this.#names.get(text)
    if (known !== undefined) return known
    const name = `holdfast_${this.#names.size + 1}`
    this.#names.set(text, name)
    return name
  }
}
