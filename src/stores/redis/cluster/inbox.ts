import type { MessageListener, MessageSubscription } from '../server/client-link.ts'
import { needsPerson } from '../server/failures.ts'
import { MovingSubscription } from '../server/moving-subscription.ts'
import type { RoomNames } from '../server/room-names.ts'
import type { ClusterNode } from './node.ts'

export interface ClusterInboxOptions {
  readonly inbox: string
  readonly listener: MessageListener
  readonly names: RoomNames
  /** Some server; another one than `except` if there is one. */
  readonly pick: (except: ClusterNode | undefined) => Promise<ClusterNode>
  readonly onLost: (node: ClusterNode) => void
}

/** Receives on one server the messages that are sent to all. Moves to another server when that one is lost or hangs. */
export class ClusterInbox implements MessageSubscription {
  readonly name: string
  readonly #listener: MessageListener
  readonly #subscription: MovingSubscription<ClusterNode>
  #closed = false

  constructor({ inbox, listener, names, pick, onLost }: ClusterInboxOptions) {
    this.name = inbox
    this.#listener = listener
    this.#subscription = new MovingSubscription({
      channel: names.channel(inbox),
      listener,
      find: pick,
      // A fail-over may be under way, so only an error that needs a person ends it.
      isFinal: needsPerson,
      onLost,
    })
  }

  get flowing(): Promise<void> {
    return this.#subscription.flowing
  }

  /** A server counts only its own receivers of a message, not those on other servers. */
  get flow(): 'none' | 'uncounted' {
    return this.#subscription.flow === 'none' ? 'none' : 'uncounted'
  }

  /** A message that was sent to the channel of one slot. */
  take(message: string): void {
    if (!this.#closed) this.#listener.onMessage(message)
  }

  /** Another server may have been lost together with its messages. */
  missed(): void {
    if (!this.#closed && this.#subscription.hasFlowed) this.#listener.onResubscribed()
  }

  leave(node: ClusterNode): void {
    if (this.#subscription.host === node) this.#subscription.leave()
  }

  close(): void {
    this.#closed = true
    this.#subscription.close()
  }
}
