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
} from '../../src/contract/store.ts'
import { StoreError } from '../../src/errors.ts'
import type { SimulatedNetwork } from '../../src/testing/simulated-network.ts'
import type { Reception, StoreAnswer, StoreCall, Subscription } from '../../src/testing/simulated-server.ts'

/**
 * A store in the same process. It answers in the same tick. If it throws, it throws in the same tick, before or after
 * it has acted.
 */
export class DirectLink implements Store {
  readonly name = 'memory'
  readonly #network: SimulatedNetwork
  readonly #deliver: (act: () => void) => void
  #unlisten: (() => void) | undefined
  #subscription: Subscription | undefined

  constructor(network: SimulatedNetwork, deliver: (act: () => void) => void) {
    this.#network = network
    this.#deliver = deliver
  }

  acquire(ticket: Ticket): AcquireAnswer {
    return this.#ask<AcquireAnswer>({ verb: 'acquire', ticket })
  }

  renew(tickets: readonly Ticket[]): readonly RenewAnswer[] {
    return this.#ask<readonly RenewAnswer[]>({ verb: 'renew', tickets })
  }

  release(request: ReleaseRequest): ReleaseAnswer {
    return this.#ask<ReleaseAnswer>({ verb: 'release', request })
  }

  inspect(request: InspectRequest): RoomPage {
    return this.#ask<RoomPage>({ verb: 'inspect', request })
  }

  evict(request: EvictRequest): readonly string[] {
    return this.#ask<readonly string[]>({ verb: 'evict', request })
  }

  async listen(onWake: (wake: Wake) => void): Promise<() => void> {
    const { clock, random, server } = this.#network
    this.#subscription = {
      onWake: (wake) => {
        // A wake that is lost here stands for a wake that was sent while no process listened.
        if (random.chance(this.#network.weather.loseWake)) return
        clock.startTimer(0, () => this.#deliver(() => onWake(wake)))
      },
      onDrop: () => {},
    }
    this.#unlisten = server.subscribe(this.#subscription)
    if (this.#unlisten === undefined)
      throw new StoreError('store-unavailable', 'No subscription (simulated).')
    return () => this.#unlisten?.()
  }

  async close(): Promise<void> {
    this.#unlisten?.()
  }

  #ask<T extends StoreAnswer>(call: StoreCall): T {
    const { random, server, weather } = this.#network
    const failed = new StoreError('store-unavailable', `The ${call.verb} failed (simulated).`)
    if (random.chance(weather.loseRequest)) throw failed
    const received: Reception[] = []
    server.receive(call, (reception) => received.push(reception), this.#subscription)
    const [reception] = received
    if (reception?.tag !== 'answer' || random.chance(weather.loseReply)) throw failed
    return reception.answer as T
  }
}
