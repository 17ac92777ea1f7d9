import type {
  AcquireAnswer,
  Answer,
  EvictRequest,
  InspectRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomPage,
  Store,
  Ticket,
  Wake,
} from '../../contract/store.ts'
import { isHoldfastError } from '../../errors.ts'
import { Entrance } from './acquire.ts'
import type { Cluster } from './grpc/cluster.ts'
import { MOST_TRIES, tooBusy } from './grpc/conditions.ts'
import { evict, inspect } from './inspect.ts'
import { Departure } from './release.ts'
import { Presence } from './renew.ts'
import type { OwnTicket } from './session/own-ticket.ts'
import { Register } from './session/session.ts'

/**
 * Keys in etcd, one per ticket; see `room.ts` for who holds, `leases.ts` for what a crash costs, and `wardens.ts` for what
 * ends a single ticket. Every request is a transaction that names the revision it is about, so it may be repeated, and come
 * late, without any effect but the one that was meant.
 */
export class EtcdStore implements Store {
  readonly name = 'etcd'
  readonly #register: Register
  readonly #presence: Presence
  readonly #entrance: Entrance
  readonly #departure: Departure

  constructor(cluster: Cluster, prefix: string) {
    this.#register = new Register(cluster, prefix)
    this.#presence = new Presence(this.#register)
    this.#entrance = new Entrance(this.#register, this.#presence)
    this.#departure = new Departure(this.#register)
  }

  async acquire(ticket: Ticket): Promise<AcquireAnswer> {
    try {
      return await this.#acquire(ticket)
    } catch (error) {
      if (isHoldfastError(error, 'store-unavailable')) this.#register.doubts.add(ticket)
      throw error
    }
  }

  async #acquire(ticket: Ticket): Promise<AcquireAnswer> {
    const own = this.#register.own.get(ticket.id)
    if (own !== undefined) {
      const answer = await this.#presence.ask(own, ticket)
      if (answer !== undefined)
        return answer.tag === 'queued' ? { ...answer, ahead: this.#register.ahead(ticket) } : answer
    }
    return this.#entrance.enter(ticket)
  }

  async acquireAll(tickets: readonly Ticket[]): Promise<readonly bigint[] | undefined> {
    try {
      return await this.#entrance.enterAll(tickets)
    } catch (error) {
      if (isHoldfastError(error, 'store-unavailable'))
        for (const ticket of tickets) this.#register.doubts.add(ticket)
      throw error
    }
  }

  renew(tickets: readonly Ticket[]): Answer<readonly RenewAnswer[]> {
    return this.#presence.takeOffers(tickets) ?? this.#renewOrDoubt(tickets)
  }

  async #renewOrDoubt(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    try {
      return await this.#renew(tickets)
    } catch (error) {
      // One that comes from another process may be bound to a lease of this one by now.
      const strange = tickets.filter(({ id }) => !this.#register.own.has(id))
      if (isHoldfastError(error, 'store-unavailable'))
        for (const ticket of strange) this.#register.doubts.add(ticket)
      throw error
    }
  }

  async #renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const held: OwnTicket[] = []
    for (const ticket of tickets) {
      const own = this.#register.own.get(ticket.id)
      if (own?.state !== 'held') continue
      own.until = Math.max(own.until, performance.now() + ticket.ttlMs)
      held.push(own)
    }
    await this.#presence.verify(held)
    return Promise.all(tickets.map((ticket) => this.#presence.renewOne(ticket)))
  }

  async release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    const answer = await this.#release(request)
    if (request.cancel) this.#register.doubts.settle(request.id)
    return answer
  }

  async #release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    const own = this.#register.own.get(request.id)
    if (own?.ticket.key === request.key) {
      await own.ending
      const answer =
        own.state === 'ended'
          ? undefined
          : await this.#departure
              .releaseOwn(own, request)
              .catch((error: unknown) => this.#register.tombsGone(error))
      if (answer !== undefined) return answer
    }
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const answer = await this.#departure
        .releaseAny(request)
        .catch((error: unknown) => this.#register.tombsGone(error))
      if (answer !== undefined) return answer
    }
    throw tooBusy(request.key)
  }

  /** Wakes come from the watches, which are there before anybody has to wait for one. */
  listen(onWake: (wake: Wake) => void): () => void {
    const listener = { onWake }
    this.#register.listeners.add(listener)
    this.#register.wardens.look()
    return () => {
      this.#register.listeners.delete(listener)
    }
  }

  inspect(request: InspectRequest): Promise<RoomPage> {
    return inspect(request, this.#register)
  }

  evict(request: EvictRequest): Promise<readonly string[]> {
    return evict(request, this.#register)
  }

  async close(): Promise<void> {
    this.#register.wardens.close()
    this.#register.doubts.close()
    this.#register.leases.close()
    this.#register.rooms.close()
    this.#register.cluster.close()
  }
}
