import {
  type ChannelsConnection,
  type MessageListener,
  type RedisLink,
  reconnectDelayMs,
  type Subscription,
} from './client-link.ts'

/** Where a subscription is. */
export interface SubscriptionPlace {
  readonly link: RedisLink
}

export interface LastingSubscriptionOptions<Place extends SubscriptionPlace> {
  readonly channel: string
  readonly listener: MessageListener
  /** Where to subscribe. `left`: where it was lost, or was told to leave. */
  readonly find: (left: Place | undefined) => Place | Promise<Place>
  /** Whether it gives up with this error, as long as messages have never flowed. Afterwards it goes on for ever. */
  readonly isFinal: (error: unknown) => boolean
  /** The connection was lost on which messages flowed. */
  readonly onLost?: (place: Place) => void
}

/** Messages of one channel, on one connection after the other. */
export class LastingSubscription<Place extends SubscriptionPlace> implements Subscription {
  readonly flowing: Promise<void>
  readonly #options: LastingSubscriptionOptions<Place>
  #flows: { resolve(): void; reject(error: unknown): void } | undefined
  #place: Place | undefined
  #connection: ChannelsConnection | undefined
  /** Counts the attempts; the result of an older attempt is ignored. */
  #turn = 0
  #failures = 0
  #pause: NodeJS.Timeout | undefined
  #closed = false
  #flowsNow = false

  constructor(options: LastingSubscriptionOptions<Place>) {
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

  get provesLife(): boolean {
    return this.#flowsNow
  }

  /** Undefined while the next place is looked for. */
  get place(): Place | undefined {
    return this.#place
  }

  /** Subscribes anew, somewhere else if there is another place. */
  leave(): void {
    this.#begin(this.#place)
  }

  close(): void {
    this.#closed = true
    this.#end()
    this.#flows?.reject(new Error('The connection was closed'))
    this.#flows = undefined
  }

  #begin(left?: Place): void {
    this.#end()
    if (this.#closed) return
    const turn = this.#turn
    const mine = (): boolean => turn === this.#turn
    this.#subscribe(left, mine).then(
      () => mine() && this.#begun(),
      (error: unknown) => mine() && this.#failed(error),
    )
  }

  async #subscribe(left: Place | undefined, mine: () => boolean): Promise<void> {
    const { channel, listener, find } = this.#options
    const place = await find(left)
    if (!mine()) return
    this.#place = place
    let flows = false
    const connection = place.link.openChannels({
      onMessage: (message) => listener.onMessage(message),
      onLost: () => flows && mine() && this.#lost(place),
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

  #lost(place: Place): void {
    const turn = this.#turn
    this.#options.onLost?.(place)
    // Told to leave meanwhile, it has begun anew.
    if (turn === this.#turn) this.#beginLater()
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
    const left = this.#place
    this.#end()
    this.#failures += 1
    this.#pause = setTimeout(() => this.#begin(left), reconnectDelayMs(this.#failures)).unref()
  }

  #end(): void {
    this.#turn += 1
    this.#flowsNow = false
    this.#place = undefined
    clearTimeout(this.#pause)
    this.#connection?.close()
    this.#connection = undefined
  }
}
