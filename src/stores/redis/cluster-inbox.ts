import type { ClusterNode } from './cluster-node.ts'
import { type MessageListener, reconnectDelayMs, type Subscription } from './connection.ts'
import { storeErrorOf } from './failures.ts'
import type { RoomNames } from './room-names.ts'

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
  readonly flowing: Promise<void>
  readonly name: string
  readonly #options: ClusterInboxOptions
  #flows: { resolve(): void; reject(error: unknown): void } | undefined
  #node: ClusterNode | undefined
  #inner: Subscription | undefined
  /** Of what was begun before it is no longer the turn. */
  #turn = 0
  #attempts = 0
  #pause: NodeJS.Timeout | undefined
  #closed = false

  constructor(options: ClusterInboxOptions) {
    this.name = options.inbox
    this.#options = options
    this.flowing = new Promise((resolve, reject) => {
      this.#flows = { resolve, reject }
    })
    this.#begin()
  }

  /** A message that came on another connection. */
  take(message: string): void {
    if (!this.#closed) this.#options.listener.onMessage(message)
  }

  /** A server was lost, and with it perhaps what it had. */
  missed(): void {
    if (!this.#closed && this.#flows === undefined) this.#options.listener.onResubscribed()
  }

  leave(node: ClusterNode): void {
    if (this.#node === node) this.#begin(node)
  }

  close(): void {
    this.#closed = true
    this.#end()
    this.#flows?.reject(new Error('The connection was closed'))
    this.#flows = undefined
  }

  #begin(but?: ClusterNode): void {
    this.#end()
    if (this.#closed) return
    const turn = this.#turn
    const mine = (): boolean => turn === this.#turn
    this.#subscribe(but, mine).then(
      () => mine() && this.#begun(),
      (error: unknown) => mine() && this.#failed(error),
    )
  }

  async #subscribe(but: ClusterNode | undefined, mine: () => boolean): Promise<void> {
    const { pick, names, listener, onLost } = this.#options
    const node = await pick(but)
    if (!mine()) return
    this.#node = node
    let flows = false
    this.#inner = node.link.subscribe(names.channel(this.name), {
      onMessage: (message) => listener.onMessage(message),
      onResubscribed: () => mine() && listener.onResubscribed(),
      onLost: () => {
        if (!mine() || !flows) return
        onLost(node)
        // If the server was in doubt already.
        this.leave(node)
      },
    })
    await this.#inner.flowing
    flows = true
  }

  #begun(): void {
    this.#attempts = 0
    if (this.#flows === undefined) return this.#options.listener.onResubscribed()
    this.#flows.resolve()
    this.#flows = undefined
  }

  #failed(error: unknown): void {
    // Also the first time it goes on trying, unless a person has to do something: it may be begun during a fail-over.
    if (this.#flows !== undefined && storeErrorOf(error, undefined, 0).code === 'store-refused') {
      this.#flows.reject(error)
      this.#flows = undefined
      this.close()
      return
    }
    this.#attempts += 1
    this.#pause = setTimeout(() => this.#begin(this.#node), reconnectDelayMs(this.#attempts)).unref()
  }

  #end(): void {
    this.#turn += 1
    this.#node = undefined
    clearTimeout(this.#pause)
    this.#inner?.close()
    this.#inner = undefined
  }
}
