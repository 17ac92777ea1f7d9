import {
  type ChannelsConnection,
  type MessageListener,
  type MessageSubscription,
  type RedisLink,
  reconnectDelayMs,
} from './client-link.ts'

/** A server that a subscription can be on. */
export interface SubscriptionHost {
  readonly link: RedisLink
}

export interface MovingSubscriptionOptions<Host extends SubscriptionHost> {
  readonly channel: string
  readonly listener: MessageListener
  /** The server to subscribe on. `left`: the one that the subscription was on before. */
  readonly find: (left: Host | undefined) => Host | Promise<Host>
  /** Whether the first subscription gives up with this error. Once messages have flowed, it is tried again for ever. */
  readonly isFinal: (error: unknown) => boolean
  /** A connection was lost on which messages had flowed. */
  readonly onLost?: (host: Host) => void
}

/** Messages of one channel. When their connection is lost, the subscription moves to a new one, on the same server or on another. */
export class MovingSubscription<Host extends SubscriptionHost> implements MessageSubscription {
  readonly flowing: Promise<void>
  readonly #options: MovingSubscriptionOptions<Host>
  #flows: { resolve(): void; reject(error: unknown): void } | undefined
  #host: Host | undefined
  #connection: ChannelsConnection | undefined
  /** Counts the attempts; the result of an older attempt is ignored. */
  #generation = 0
  #failures = 0
  #pause: NodeJS.Timeout | undefined
  #closed = false
  #flowsNow = false

  constructor(options: MovingSubscriptionOptions<Host>) {
    this.#options = options
    this.flowing = new Promise((resolve, reject) => {
      this.#flows = { resolve, reject }
    })
    this.#begin()
  }

  /** Whether messages have ever flowed. */
  get hasFlowed(): boolean {
    return this.#flows === undefined
  }

  get flow(): 'none' | 'counted' {
    return this.#flowsNow ? 'counted' : 'none'
  }

  /** Undefined while the next server is looked for. */
  get host(): Host | undefined {
    return this.#host
  }

  /** Subscribes anew, on another server if there is one. */
  leave(): void {
    this.#begin(this.#host)
  }

  close(): void {
    this.#closed = true
    this.#end()
    this.#flows?.reject(new Error('The connection was closed'))
    this.#flows = undefined
  }

  #begin(left?: Host): void {
    this.#end()
    if (this.#closed) return
    const generation = this.#generation
    const mine = (): boolean => generation === this.#generation
    this.#subscribe(left, mine).then(
      () => mine() && this.#begun(),
      (error: unknown) => mine() && this.#failed(error),
    )
  }

  async #subscribe(left: Host | undefined, mine: () => boolean): Promise<void> {
    const { channel, listener, find } = this.#options
    const host = await find(left)
    if (!mine()) return
    this.#host = host
    let flows = false
    const connection = host.link.openChannels({
      onMessage: (message) => listener.onMessage(message),
      onLost: () => flows && mine() && this.#lost(host),
    })
    this.#connection = connection
    await connection.add(channel)
    flows = true
  }

  #begun(): void {
    this.#failures = 0
    this.#flowsNow = true
    if (this.#flows === undefined) return this.#options.listener.onResubscribed()
    this.#flows.resolve()
    this.#flows = undefined
  }

  #lost(host: Host): void {
    const generation = this.#generation
    this.#options.onLost?.(host)
    // `onLost` may have called `leave`, which has begun anew.
    if (generation === this.#generation) this.#beginLater()
  }

  #failed(error: unknown): void {
    if (this.#flows !== undefined && this.#options.isFinal(error)) {
      this.#flows.reject(error)
      this.#flows = undefined
      this.close()
      return
    }
    this.#beginLater()
  }

  #beginLater(): void {
    const left = this.#host
    this.#end()
    this.#failures += 1
    this.#pause = setTimeout(() => this.#begin(left), reconnectDelayMs(this.#failures)).unref()
  }

  #end(): void {
    this.#generation += 1
    this.#flowsNow = false
    this.#host = undefined
    clearTimeout(this.#pause)
    this.#connection?.close()
    this.#connection = undefined
  }
}
