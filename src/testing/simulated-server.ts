import type {
  AcquireAnswer,
  EvictRequest,
  InspectRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomPage,
  Store,
  Ticket,
  Wake,
} from '../contract/store.ts'
import { StoreError } from '../errors.ts'

/** A request as it travels. */
export type StoreCall =
  | { readonly verb: 'acquire'; readonly ticket: Ticket }
  | { readonly verb: 'renew'; readonly tickets: readonly Ticket[] }
  | { readonly verb: 'release'; readonly request: ReleaseRequest }
  | { readonly verb: 'inspect'; readonly request: InspectRequest }
  | { readonly verb: 'evict'; readonly request: EvictRequest }

/** What a store answers to a {@link StoreCall}. */
export type StoreAnswer =
  | AcquireAnswer
  | readonly RenewAnswer[]
  | ReleaseAnswer
  | RoomPage
  | readonly string[]

/** The outcome of a request. `refused` certainly had no effect. `broken` may have had one. */
export type Reception =
  | { readonly tag: 'answer'; readonly answer: StoreAnswer }
  | { readonly tag: 'error'; readonly error: unknown }
  | { readonly tag: 'refused' }
  | { readonly tag: 'broken' }

/** One process that listens to the server. */
export interface Subscription {
  /** Called with each message. */
  readonly onWake: (wake: Wake) => void
  /** The connection broke. */
  readonly onDrop: () => void
}

/** Which store the server keeps, and who hears of its requests. */
export interface SimulatedServerOptions {
  /**
   * Makes an empty store; called again after a loss of data. `reaches`: whether the process that asked about a ticket last is
   * subscribed, so that a message to it is taken. A store that does not look at it takes all messages for taken.
   */
  readonly open: (reaches: (id: string) => boolean) => Store
  /** Called after each request that was carried out. */
  readonly onCall?: (call: StoreCall, answer: StoreAnswer) => void
}

/**
 * The server of a store. It carries out requests at once and in order, unless it hangs (SIGSTOP), refuses or is down. It may
 * come back without its data. Processes reach it through a `SimulatedNetwork`.
 *
 * ```ts
 * import { memoryStore } from 'holdfast/memory'
 * import { SimulatedServer, SimulatedTime } from 'holdfast/testing'
 *
 * const time = new SimulatedTime()
 * const now = () => ({ ms: time.wallMs(), us: time.wallMs() * 1000 })
 * const server = new SimulatedServer({ open: () => memoryStore({ now }) })
 * server.hang()
 * time.startTimer(3000, () => server.goOn())
 * ```
 */
export class SimulatedServer {
  readonly #options: SimulatedServerOptions
  readonly #subscriptions = new Set<Subscription>()
  /** By ticket, the subscription of the process that asked about it last. */
  readonly #hearers = new Map<string, Subscription | undefined>()
  #store: Store
  #state: 'up' | 'hung' | 'refusing' | 'down' = 'up'
  #waiting: { readonly call: StoreCall; readonly reply: (reception: Reception) => void }[] = []

  constructor(options: SimulatedServerOptions) {
    this.#options = options
    this.#store = this.#open()
  }

  /** The store itself, without a network in between. */
  get store(): Store {
    return this.#store
  }

  /** Whether the server runs, and neither hangs nor refuses. */
  get isUp(): boolean {
    return this.#state === 'up'
  }

  /**
   * Takes a request that has arrived. It is carried out, refused, or kept while the server hangs. `hearer`: the subscription of
   * the process that asks.
   */
  receive(call: StoreCall, reply: (reception: Reception) => void, hearer?: Subscription): void {
    for (const id of idsOf(call)) {
      if (call.verb === 'release') this.#hearers.delete(id)
      else this.#hearers.set(id, hearer)
    }
    if (this.#state === 'down') return reply({ tag: 'refused' })
    if (this.#state === 'refusing') return reply({ tag: 'error', error: refusal() })
    if (this.#state === 'hung') this.#waiting.push({ call, reply })
    else this.#carryOut(call, reply)
  }

  /** Delivers wakes until the connection breaks. `undefined` if the server cannot be connected to. */
  subscribe(subscription: Subscription): (() => void) | undefined {
    if (this.#state !== 'up') return undefined
    this.#subscriptions.add(subscription)
    return () => {
      this.#subscriptions.delete(subscription)
    }
  }

  /** Hangs: connections stay open, and no request is answered. */
  hang(): void {
    if (this.#state === 'up') this.#state = 'hung'
  }

  /** Refuses every request, as a server that has become a read-only replica. */
  refuse(): void {
    if (this.#state === 'up') this.#state = 'refusing'
  }

  /** Ends `hang` and `refuse`. */
  goOn(): void {
    if (this.#state !== 'hung' && this.#state !== 'refusing') return
    this.#state = 'up'
    const waiting = this.#waiting
    this.#waiting = []
    for (const { call, reply } of waiting) this.#carryOut(call, reply)
  }

  /** Stops the server and breaks all connections. Requests that it has kept are lost. */
  stop(): void {
    this.#state = 'down'
    const waiting = this.#waiting
    this.#waiting = []
    for (const { reply } of waiting) reply({ tag: 'broken' })
    const subscriptions = [...this.#subscriptions]
    this.#subscriptions.clear()
    for (const { onDrop } of subscriptions) onDrop()
  }

  /** Starts the server again after {@link stop}, with its data or without. */
  start(options: { readonly keepData: boolean }): void {
    if (!options.keepData) this.forget()
    this.#state = 'up'
  }

  /** Deletes all data while the server runs on (FLUSHALL). Subscriptions stay. */
  forget(): void {
    this.#store = this.#open()
  }

  #open(): Store {
    const store = this.#options.open((id) => {
      const hearer = this.#hearers.get(id)
      return hearer !== undefined && this.#subscriptions.has(hearer)
    })
    void store.listen?.((wake) => {
      for (const { onWake } of this.#subscriptions) onWake(wake)
    })
    return store
  }

  #carryOut(call: StoreCall, reply: (reception: Reception) => void): void {
    const told = (answer: StoreAnswer): void => {
      this.#options.onCall?.(call, answer)
      reply({ tag: 'answer', answer })
    }
    try {
      const answer = ask(this.#store, call)
      // If the store answers at once, the answer counts at once. Otherwise two requests would overlap that did not.
      if (answer instanceof Promise) answer.then(told, (error: unknown) => reply({ tag: 'error', error }))
      else told(answer)
    } catch (error) {
      reply({ tag: 'error', error })
    }
  }
}

function idsOf(call: StoreCall): readonly string[] {
  switch (call.verb) {
    case 'acquire':
      return [call.ticket.id]
    case 'renew':
      return call.tickets.map(({ id }) => id)
    case 'release':
      return [call.request.id]
    case 'inspect':
    case 'evict':
      return []
    default:
      return call satisfies never
  }
}

function refusal(): StoreError {
  return new StoreError('store-refused', 'The server is read-only (simulated).')
}

function ask(store: Store, call: StoreCall): StoreAnswer | Promise<StoreAnswer> {
  switch (call.verb) {
    case 'acquire':
      return store.acquire(call.ticket)
    case 'renew':
      return store.renew(call.tickets)
    case 'release':
      return store.release(call.request)
    case 'inspect':
      return store.inspect(call.request)
    case 'evict':
      return store.evict(call.request)
    default:
      return call satisfies never
  }
}
