import type { PostgresConnections } from '../../postgres/connections.ts'
import { isAbsent, retried, storeErrorOf } from '../../postgres/failures.ts'

/** What a call is about, for the message of its error. */
export interface CallSubject {
  readonly doing: string
  readonly key?: string
}

type QueryRow = Readonly<Record<string, unknown>>

/** Runs the statements of the store, and makes the tables before the first of them. */
export class StatementCalls {
  readonly #connections: PostgresConnections
  readonly #prepare: () => Promise<void>
  readonly #missesTables: boolean
  #prepared: Promise<void> | undefined
  #isPrepared = false

  /**
   * `prepare` runs before the first call, and again until it has resolved once. `missesTables`: a query of tables that are missing
   * finds nothing.
   */
  constructor(
    connections: PostgresConnections,
    { prepare, missesTables }: { readonly prepare: () => Promise<void>; readonly missesTables: boolean },
  ) {
    this.#connections = connections
    this.#prepare = prepare
    this.#missesTables = missesTables
  }

  /** Calls a function. Resolves with the lines of its answer. */
  async lines(
    statement: string,
    parameters: readonly (string | null)[],
    about: CallSubject,
  ): Promise<readonly string[]> {
    const [row] = await this.#run(statement, parameters, { isAlone: true, about })
    return String(row?.['answer']).split('\n')
  }

  /** Runs a query. Resolves with its rows. */
  rows(
    statement: string,
    parameters: readonly (string | null)[],
    about: CallSubject,
  ): Promise<readonly QueryRow[]> {
    return this.#run(statement, parameters, { isAlone: false, about })
  }

  async #run(
    statement: string,
    parameters: readonly (string | null)[],
    { isAlone, about }: { readonly isAlone: boolean; readonly about: CallSubject },
  ): Promise<readonly QueryRow[]> {
    if (!this.#isPrepared) await this.#prepareOnce()
    try {
      for (let attempt = 1; ; attempt += 1) {
        try {
          return await retried(() => this.#connections.query(statement, parameters, { isAlone }))
        } catch (error) {
          if (this.#missesTables && isAbsent(error)) return []
          if (attempt === MOST_ATTEMPTS || !isAbsent(error)) throw error
          // A fail-over may lose the schema, too.
          await this.#prepareAnew()
        }
      }
    } catch (error) {
      throw storeErrorOf(error, about)
    }
  }

  async #prepareOnce(): Promise<void> {
    this.#prepared ??= this.#prepare()
    try {
      await this.#prepared
      this.#isPrepared = true
    } catch (error) {
      this.#prepared = undefined
      throw error
    }
  }

  #prepareAnew(): Promise<void> {
    if (this.#isPrepared) this.#prepared = undefined
    this.#isPrepared = false
    return this.#prepareOnce()
  }
}

const MOST_ATTEMPTS = 5
