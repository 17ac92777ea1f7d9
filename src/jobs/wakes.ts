import type { PostgresConnections } from '../postgres/connections.ts'
import type { ChannelSubscription } from '../postgres/subscription.ts'
import { CHANNEL } from './job-tables.ts'

export interface WakeListener {
  /** `name`: that of jobs that are ready, or of a worker whose job was cancelled; null: jobs of any name may be ready. */
  wake(name: string | null): void
}

/**
 * Subscribes to the names of jobs that became ready: one subscription for all workers of a process, while there is one. A
 * message is only a hint. Without it a worker finds the job at its next poll.
 */
export class JobWakes {
  readonly #connections: PostgresConnections
  readonly #listeners = new Set<WakeListener>()
  #subscription: ChannelSubscription | undefined
  #isStarting = false
  #again: NodeJS.Timeout | undefined

  constructor(connections: PostgresConnections) {
    this.#connections = connections
  }

  add(listener: WakeListener): void {
    this.#listeners.add(listener)
    void this.#listen()
  }

  delete(listener: WakeListener): void {
    this.#listeners.delete(listener)
    if (this.#listeners.size > 0) return
    clearTimeout(this.#again)
    this.#subscription?.close()
    this.#subscription = undefined
  }

  /** Finds out whether the connection still works. A worker calls it when it has just asked for jobs. */
  probe(): void {
    this.#subscription?.probe()
  }

  async #listen(): Promise<void> {
    if (this.#subscription !== undefined || this.#isStarting) return
    this.#isStarting = true
    clearTimeout(this.#again)
    try {
      this.#subscription = await this.#connections.listen(CHANNEL, {
        onMessage: (name) => this.#wake(name),
        onResubscribed: () => this.#wake(null),
      })
      // Jobs may have become ready before the subscription.
      this.#wake(null)
    } catch {
      // A pooler in between, or no server yet. Meanwhile the workers poll.
      this.#again = setTimeout(() => void this.#listen(), AGAIN_MS)
      this.#again.unref()
    } finally {
      this.#isStarting = false
    }
    if (this.#listeners.size > 0) return
    clearTimeout(this.#again)
    this.#subscription?.close()
    this.#subscription = undefined
  }

  #wake(name: string | null): void {
    for (const listener of this.#listeners) listener.wake(name)
  }
}

const AGAIN_MS = 10_000
