import { randomBytes } from 'node:crypto'
import type { AcquireAnswer, RenewAnswer, Wake } from '../../contract/store.ts'
import type { PostgresConnections } from '../../postgres/connections.ts'
import { storeErrorOf } from '../../postgres/failures.ts'
import type { ChannelSubscription } from '../../postgres/subscription.ts'
import { wakeOf } from '../answers.ts'
import { presenceOf } from './statements.ts'

/** Receives the notifications for the tickets of this process, and passes them on to its listeners. */
export class NotificationInbox {
  /** The channel. The rows of the tickets name it. */
  readonly name: string = `holdfast_${randomBytes(9).toString('base64url')}`
  readonly #connections: PostgresConnections
  readonly #listeners = new Set<{ readonly onWake: (wake: Wake) => void }>()
  #listening: Promise<void> | undefined
  #subscription: ChannelSubscription | undefined
  #polls = false

  constructor(connections: PostgresConnections) {
    this.#connections = connections
  }

  /** Whether our session listens, with its lock as a sign of life. Behind a pooler there is no such session. */
  get isOpen(): boolean {
    return this.#subscription?.isOpen === true
  }

  /** Behind a pooler only the wakes of this process flow. Every waiter is then told to ask again soon. */
  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    const listener = { onWake }
    this.#listeners.add(listener)
    this.#listening ??= this.#start()
    const listening = this.#listening
    try {
      await listening
    } catch (error) {
      if (this.#listening === listening) this.#listening = undefined
      this.#listeners.delete(listener)
      throw storeErrorOf(error, { doing: 'listening for messages' })
    }
    return () => {
      this.#listeners.delete(listener)
    }
  }

  /** Looks from time to time whether the session still has a connection. */
  probe(): void {
    this.#subscription?.probe()
  }

  wake(wake: Wake): void {
    for (const { onWake } of this.#listeners) onWake(wake)
  }

  /** Behind a pooler nobody can wake a waiter. It has to ask again long before its patience ends. */
  polling<Answer extends AcquireAnswer | RenewAnswer>(answer: Answer): Answer {
    if (!this.#polls || answer.tag !== 'queued') return answer
    return { ...answer, askAgainMs: Math.min(answer.askAgainMs, POLL_MS) }
  }

  /** The connections close the session itself. */
  close(): void {
    this.#listeners.clear()
  }

  async #start(): Promise<void> {
    if (await this.#connections.isPooled()) {
      this.#polls = true
      return
    }
    this.#subscription = await this.#connections.listen(this.name, {
      onMessage: (message) => this.wake(wakeOf(message)),
      onResubscribed: () => this.wake({ tag: 'all' }),
      presence: presenceOf(this.name),
    })
  }
}

/** Behind a pooler: how long a hand-over may go unnoticed. It costs one call for each process and turn. */
const POLL_MS = 250
