import type { PostgresConnections } from '../postgres/connections.ts'
import type { Listening } from '../postgres/listening.ts'
import { CHANNEL } from './job-tables.ts'

export interface Sleeper {
  wake(name: string | null): void
}

/**
 * Listens for jobs that became ready, for all workers of a process, on one connection while there is at least one.
 * Only a hint: workers that hear nothing find the jobs when they poll.
 */
export class Wakes {
  readonly #connections: PostgresConnections
  readonly #sleepers = new Set<Sleeper>()
  #listening: Listening | undefined
  #isStarting = false
  #again: NodeJS.Timeout | undefined

  constructor(connections: PostgresConnections) {
    this.#connections = connections
  }

  add(sleeper: Sleeper): void {
    this.#sleepers.add(sleeper)
    void this.#listen()
  }

  delete(sleeper: Sleeper): void {
    this.#sleepers.delete(sleeper)
    if (this.#sleepers.size > 0) return
    clearTimeout(this.#again)
    this.#listening?.close()
    this.#listening = undefined
  }

  /** Finds out whether the connection has fallen silent. For workers that have just looked for jobs by themselves. */
  prove(): void {
    this.#listening?.prove()
  }

  async #listen(): Promise<void> {
    if (this.#listening !== undefined || this.#isStarting) return
    this.#isStarting = true
    clearTimeout(this.#again)
    try {
      this.#listening = await this.#connections.listen(CHANNEL, {
        onMessage: (name) => this.#wake(name),
        onResubscribed: () => this.#wake(null),
      })
      // What became ready before it listened.
      this.#wake(null)
    } catch {
      // A pooler in between, or no server yet: polling goes on meanwhile.
      this.#again = setTimeout(() => void this.#listen(), AGAIN_MS)
      this.#again.unref()
    } finally {
      this.#isStarting = false
    }
    if (this.#sleepers.size > 0) return
    clearTimeout(this.#again)
    this.#listening?.close()
    this.#listening = undefined
  }

  #wake(name: string | null): void {
    for (const sleeper of this.#sleepers) sleeper.wake(name)
  }
}

const AGAIN_MS = 10_000
