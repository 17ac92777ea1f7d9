import type { ClusterNode } from './node.ts'
import type { MessageListener, Subscription } from '../server/client-link.ts'
import { needsPerson } from '../server/failures.ts'
import { LastingSubscription } from '../server/moving-subscription.ts'
import type { RoomNames } from '../server/room-names.ts'

export interface ClusterInboxOptions {
  readonly inbox: string
  readonly listener: MessageListener
  readonly names: RoomNames
  /** Some server, another one than this if there is one. */
  readonly pick: (but: ClusterNode | undefined) => Promise<ClusterNode>
  readonly onLost: (node: ClusterNode) => void
}

/** The messages that go to all servers, heard on one of them: on another one when that is lost or hangs. */
export class ClusterInbox implements Subscription {
  readonly name: string
  readonly #listener: MessageListener
  readonly #subscription: LastingSubscription<ClusterNode>
  #closed = false

  constructor({ inbox, listener, names, pick, onLost }: ClusterInboxOptions) {
    this.name = inbox
    this.#listener = listener
    this.#subscription = new LastingSubscription({
      channel: names.channel(inbox),
      listener,
      find: pick,
      // It may be begun during a fail-over.
      isFinal: needsPerson,
      onLost,
    })
  }

  get flowing(): Promise<void> {
    return this.#subscription.flowing
  }

  /** A server of a cluster does not know how many got a message on the others. */
  readonly provesLife = false

  /** A message that came on another connection. */
  take(message: string): void {
    if (!this.#closed) this.#listener.onMessage(message)
  }

  /** A server was lost, and with it perhaps what it had. */
  missed(): void {
    if (!this.#closed && this.#subscription.hasFlowed) this.#listener.onResubscribed()
  }

  leave(node: ClusterNode): void {
    if (this.#subscription.place === node) this.#subscription.leave()
  }

  close(): void {
    this.#closed = true
    this.#subscription.close()
  }
}
