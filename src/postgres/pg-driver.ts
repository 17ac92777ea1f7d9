import { KEEP_ALIVE_MS, type PostgresDriver, type Session, startOptions } from './driver.ts'
import type { SqlRow } from './executor.ts'

/** What is used of a `Pool` of the package pg. */
export interface PgPool {
  readonly options: object
  readonly totalCount: number
}

/** What is used of a `Client` of the package pg. */
export interface PgClient {
  readonly host: string
  readonly port: number
  setTypeParser: unknown
}

/** A connection of our own, made by the user's copy of the package. */
interface OwnClient {
  readonly processID: number | null
  readonly connectionParameters: object
  connect(): Promise<unknown>
  query(question: object): Promise<{ readonly rows: readonly SqlRow[] } | readonly { rows: SqlRow[] }[]>
  on(event: string, listener: (event: never) => void): unknown
  ref(): void
  unref(): void
  end(): Promise<void>
}

type ClientClass = new (configuration: object) => OwnClient

export function pgPoolDriver(pool: PgPool): PostgresDriver {
  const { Client } = pool as unknown as { readonly Client: ClientClass }
  // The password is there, and not enumerable.
  const { password } = pool.options as { readonly password?: unknown }
  return driverOf(Client, { ...pool.options, ...(password === undefined ? {} : { password }) })
}

export function pgClientDriver(client: PgClient): PostgresDriver {
  return driverOf(client.constructor as ClientClass, parametersOf(client as unknown as OwnClient))
}

function driverOf(Client: ClientClass, given: object): PostgresDriver {
  return {
    async open({ applicationName, settings, signal }) {
      signal.throwIfAborted()
      // Resolved by the package itself, since what a connection string says would win over what is added here.
      const parameters = parametersOf(new Client(given))
      const { connectionString: _, ...rest } = given as { readonly connectionString?: string }
      const client = new Client({
        ...rest,
        ...parameters,
        application_name: applicationName,
        ...startOptions((parameters as { readonly options?: unknown }).options, settings),
        keepAlive: true,
        keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
        types: AS_TEXT,
        pipeline: false,
      })
      const session = new PgSession(client)
      let giveUp = (): void => {}
      // Once `end()` was called, the package's `connect()` never settles.
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

/** Without the limits of the application's own statements. */
function parametersOf(client: OwnClient): object {
  const { connectionParameters } = client
  const { password } = connectionParameters as { readonly password?: unknown }
  const {
    statement_timeout: _statement,
    lock_timeout: _lock,
    idle_in_transaction_session_timeout: _idle,
    query_timeout: _query,
    ...parameters
  } = connectionParameters as Readonly<Record<string, unknown>>
  return { ...parameters, password }
}

const AS_TEXT = { getTypeParser: () => (value: unknown) => value }

class PgSession implements Session {
  readonly closed: Promise<unknown>
  readonly #client: OwnClient
  /** Names of prepared statements, by their text. */
  readonly #names = new Map<string, string>()
  /** The package takes the next statement only after the answer to the last one. */
  #last: Promise<unknown> = Promise.resolve()
  #busy = 0

  constructor(client: OwnClient) {
    this.#client = client
    this.closed = new Promise((resolve) => {
      // From its first error on, which says why and comes a moment before the end, it takes no statement any more.
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
    const question = prepared
      ? { name: this.#nameOf(text), text, values: parameters }
      : { text, values: parameters }
    this.#busy += 1
    const answer = this.#busy === 1 ? this.#ask(question) : this.#last.then(() => this.#ask(question))
    this.#last = answer.catch(() => {})
    return answer
  }

  async #ask(question: object): Promise<readonly SqlRow[]> {
    try {
      const result = await this.#client.query(question)
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
    if (keeps) this.#client.ref()
    else this.#client.unref()
  }

  close(): void {
    this.#client.end().catch(() => {})
    // A goodbye that nobody answers would leave the socket open.
    const { connection } = this.#client as unknown as {
      readonly connection?: { stream?: { destroy(): void } }
    }
    setImmediate(() => connection?.stream?.destroy())
  }

  #nameOf(text: string): string {
    const known = this.#names.get(text)
    if (known !== undefined) return known
    const name = `holdfast_${this.#names.size + 1}`
    this.#names.set(text, name)
    return name
  }
}
