import { systemClock } from '../base/clock.ts'
import type { Clock } from '../contract/clock.ts'
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
import type { Random } from './random.ts'
import type { Reception, SimulatedServer, StoreAnswer, StoreCall, Subscription } from './simulated-server.ts'

/** The faults that messages meet. Each is a probability from 0 to 1, or the least and most of a time in milliseconds. */
export interface Weather {
  /** How long a message takes. */
  readonly latencyMs: readonly [number, number]
  /** Some messages take much longer. */
  readonly slow: number
  /** How long a slow message takes. */
  readonly slowMs: readonly [number, number]
  /** The request is lost, and was not carried out. */
  readonly loseRequest: number
  /** The request is carried out, and its reply is lost. */
  readonly loseReply: number
  /** How often the sender of a lost message gets no reply at all. Otherwise it gets an error. */
  readonly silence: number
  /** The request arrives twice. */
  readonly duplicate: number
  /** Whether a message may overtake one that was sent before it on the same link. */
  readonly reorder: boolean
  /** The wake is lost. */
  readonly loseWake: number
  /** The wake arrives twice. */
  readonly duplicateWake: number
  /** The wake takes up to five seconds. */
  readonly slowWake: number
  /** A subscription fails, and is tried again. */
  readonly failListen: number
}

/** No faults, only a short latency. */
export const calmWeather: Weather = {
  latencyMs: [0.2, 1],
  slow: 0,
  slowMs: [0, 0],
  loseRequest: 0,
  loseReply: 0,
  silence: 0,
  duplicate: 0,
  reorder: false,
  loseWake: 0,
  duplicateWake: 0,
  slowWake: 0,
  failListen: 0,
}

/** What a network connects, and how badly. */
export interface SimulatedNetworkOptions {
  /** The clock that counts the latencies, such as simulated time. Default: the system's clock. */
  readonly clock?: Clock
  /** Decides which message meets which fault. */
  readonly random: Random
  /** The server at the other end. */
  readonly server: SimulatedServer
  /** Default: {@link calmWeather}. */
  readonly weather?: Weather
}

/**
 * The network between processes and a server. It delays, loses, repeats and reorders messages, as its weather says. The
 * weather may change at any time. A change applies to messages that are sent after it.
 *
 * On simulated time the same seed gives the same history. On the system's clock the network shows what an application does
 * when its store answers late or not at all.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { memoryStore } from 'holdfast/memory'
 * import { calmWeather, SimulatedNetwork, SimulatedServer, seededRandom } from 'holdfast/testing'
 *
 * const server = new SimulatedServer({ open: () => memoryStore() })
 * const weather = { ...calmWeather, loseReply: 0.3 }
 * const network = new SimulatedNetwork({ server, weather, random: seededRandom('1') })
 * const locks = createLocks(network.connect())
 * await locks.withLock('report', async () => console.log('held, although every third reply is lost'))
 * ```
 */
export class SimulatedNetwork {
  /** What messages meet from now on. It may be replaced at any time. */
  weather: Weather
  /** The clock that counts the latencies. */
  readonly clock: Clock
  /** Decides which message meets which fault. */
  readonly random: Random
  /** The server at the other end. */
  readonly server: SimulatedServer

  constructor(options: SimulatedNetworkOptions) {
    this.clock = options.clock ?? systemClock
    this.random = options.random
    this.server = options.server
    this.weather = options.weather ?? calmWeather
  }

  /** Connects a process. `deliver` runs the callbacks in this process, perhaps later. Default: at once. */
  connect(deliver: (act: () => void) => void = (act) => act()): SimulatedLink {
    return new SimulatedLink(this, deliver)
  }
}

/** One process's connection: the store as this process sees it. */
export class SimulatedLink implements Store {
  readonly name: string
  readonly #network: SimulatedNetwork
  readonly #deliver: (act: () => void) => void
  /** When the last message arrives, in each direction. On a link that keeps the order, no later message arrives before it. */
  readonly #lastArrival = { out: 0, back: 0 }
  #cut = false
  #closed = false
  #hearing: Hearing | undefined

  constructor(network: SimulatedNetwork, deliver: (act: () => void) => void) {
    this.name = network.server.store.name
    this.#network = network
    this.#deliver = deliver
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    return this.#send<AcquireAnswer>({ verb: 'acquire', ticket })
  }

  renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    return this.#send<readonly RenewAnswer[]>({ verb: 'renew', tickets })
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#send<ReleaseAnswer>({ verb: 'release', request })
  }

  inspect(request: InspectRequest): Promise<RoomPage> {
    return this.#send<RoomPage>({ verb: 'inspect', request })
  }

  evict(request: EvictRequest): Promise<readonly string[]> {
    return this.#send<readonly string[]>({ verb: 'evict', request })
  }

  listen(onWake: (wake: Wake) => void): Promise<() => void> {
    const { clock, random, weather } = this.#network
    return new Promise((resolve, reject) => {
      if (random.chance(weather.failListen)) {
        if (random.chance(weather.silence)) return
        clock.startTimer(this.#latency(), () => this.#deliver(() => reject(unavailable('No subscription'))))
        return
      }
      this.#endHearing()
      const hearing: Hearing = {
        onWake,
        onFirst: () =>
          this.#deliver(() =>
            resolve(() => {
              if (this.#hearing === hearing) this.#endHearing()
            }),
          ),
        attempts: 0,
        subscription: undefined,
        end: undefined,
      }
      this.#hearing = hearing
      this.#subscribe(hearing)
    })
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#endHearing()
  }

  /** Until `mend`, no message arrives in either direction, not even one that was sent before. */
  cut(): void {
    this.#cut = true
    this.#dropHearing()
  }

  /** Ends {@link cut}. The subscription is made again, so all waiters are woken. */
  mend(): void {
    if (!this.#cut) return
    this.#cut = false
    this.reconnect()
  }

  /** The subscription breaks and is made again. Wakes in between are lost, so afterwards all waiters are woken. */
  reconnect(): void {
    this.#dropHearing()
    if (this.#hearing === undefined || this.#cut) return
    this.#subscribe(this.#hearing)
  }

  #send<T extends StoreAnswer>(call: StoreCall): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.#closed) return reject(unavailable('The link is closed'))
      const { random, weather } = this.#network
      const fail = (reason: string): void => {
        if (random.chance(weather.silence)) return
        this.#network.clock.startTimer(this.#latency(), () =>
          this.#deliver(() => reject(unavailable(reason))),
        )
      }
      const reply = (reception: Reception): void => {
        if (random.chance(this.#network.weather.loseReply)) return fail('The reply was lost')
        this.#travel('back', () => {
          if (this.#cut) return fail('The link was cut before the reply')
          // The cast is safe: the server answers each verb with the answer of that verb.
          this.#deliver(() => settle(reception, (answer) => resolve(answer as T), reject))
        })
      }
      if (random.chance(weather.loseRequest)) return fail('The request was lost')
      const arrive = (): void => {
        if (this.#cut) fail('The link is cut')
        else this.#network.server.receive(call, reply, this.#hearing?.subscription)
      }
      this.#travel('out', arrive)
      if (random.chance(weather.duplicate)) this.#travel('out', arrive)
    })
  }

  #travel(way: 'out' | 'back', arrive: () => void): void {
    const { clock, weather } = this.#network
    const now = clock.monotonicMs()
    let at = now + this.#latency()
    if (!weather.reorder) at = Math.max(at, this.#lastArrival[way])
    this.#lastArrival[way] = Math.max(at, this.#lastArrival[way])
    clock.startTimer(at - now, arrive)
  }

  #latency(): number {
    const { random, weather } = this.#network
    const [least, most] = random.chance(weather.slow) ? weather.slowMs : weather.latencyMs
    return least + random.next() * (most - least)
  }

  /** Tries to subscribe until it succeeds, as a client library does. A later call takes the place of an earlier one. */
  #subscribe(hearing: Hearing): void {
    hearing.attempts += 1
    const attempt = hearing.attempts
    const isOver = () => hearing !== this.#hearing || hearing.attempts !== attempt || this.#cut
    this.#network.clock.startTimer(this.#latency(), () => {
      if (isOver()) return
      hearing.subscription = {
        onWake: (wake) => this.#forward(wake),
        onDrop: () => {
          hearing.end = undefined
          this.reconnect()
        },
      }
      hearing.end = this.#network.server.subscribe(hearing.subscription)
      if (hearing.end !== undefined) return this.#subscribed(hearing)
      this.#network.clock.startTimer(RECONNECT_MS, () => {
        if (!isOver()) this.#subscribe(hearing)
      })
    })
  }

  /** `listen` is answered once. After that, wakes may have been lost. */
  #subscribed(hearing: Hearing): void {
    const { onFirst } = hearing
    hearing.onFirst = undefined
    if (onFirst === undefined) this.#tell({ tag: 'all' })
    else onFirst()
  }

  #forward(wake: Wake): void {
    const { clock, random, weather } = this.#network
    const times = random.chance(weather.loseWake) ? 0 : random.chance(weather.duplicateWake) ? 2 : 1
    for (let time = 0; time < times; time += 1) {
      const slow = random.chance(weather.slowWake) ? random.next() * SLOWEST_WAKE_MS : 0
      clock.startTimer(slow + this.#latency(), () => {
        if (!this.#cut) this.#tell(wake)
      })
    }
  }

  #tell(wake: Wake): void {
    this.#deliver(() => this.#hearing?.onWake(wake))
  }

  #dropHearing(): void {
    this.#hearing?.end?.()
    if (this.#hearing !== undefined) this.#hearing.end = undefined
  }

  #endHearing(): void {
    this.#dropHearing()
    this.#hearing = undefined
  }
}

/** Somebody who wants to hear the wakes, through a subscription that breaks and is made again. */
interface Hearing {
  readonly onWake: (wake: Wake) => void
  /** Called when it is subscribed for the first time. */
  onFirst: (() => void) | undefined
  /** Counts the attempts to subscribe; an older attempt goes on no more. */
  attempts: number
  subscription: Subscription | undefined
  end: (() => void) | undefined
}

const RECONNECT_MS = 100
const SLOWEST_WAKE_MS = 5000

function settle(
  reception: Reception,
  resolve: (answer: StoreAnswer) => void,
  reject: (error: unknown) => void,
): void {
  switch (reception.tag) {
    case 'answer':
      return resolve(reception.answer)
    case 'error':
      return reject(reception.error)
    case 'refused':
      return reject(unavailable('Nobody listens at the server’s address'))
    case 'broken':
      return reject(unavailable('The server broke the connection'))
    default:
      reception satisfies never
  }
}

function unavailable(reason: string): StoreError {
  return new StoreError('store-unavailable', `${reason} (simulated).`)
}
