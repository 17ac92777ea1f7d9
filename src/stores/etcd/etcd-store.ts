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
import { isDamagedRoom, type RenewTogether, renewBesideDamage } from '../damaged-rooms.ts'
import { acquire, acquireAll } from './acquire.ts'
import { evict } from './evict.ts'
import type { Cluster } from './grpc/cluster.ts'
import { inspect } from './inspect.ts'
import { release } from './release.ts'
import { renew, takeOffers } from './renew.ts'
import { Session } from './session/session.ts'

/**
 * Keys in etcd, one per ticket. Every request is a transaction that names the revision it is about. So it may be repeated, and
 * come late, and still has only the effect that was meant. Where to read on:
 *
 * - acquire.ts: the way of a ticket, from the request to the answer
 * - rooms/room.ts: which tickets hold
 * - session/own-ticket.ts: the states of a ticket of this process
 * - session/leases.ts: what the death of a process costs; session/ticket-timers.ts: what ends a single ticket
 */
export class EtcdStore implements Store {
  readonly name = 'etcd'
  readonly #session: Session
  readonly #renewTogether: RenewTogether

  constructor(cluster: Cluster, prefix: string) {
    const session = new Session(cluster, prefix)
    this.#session = session
    this.#renewTogether = { ask: (tickets) => renew(session, tickets), isDamage: isDamagedRoom }
  }

  acquire(ticket: Ticket): Promise<AcquireAnswer> {
    return acquire(this.#session, ticket)
  }

  acquireAll(tickets: readonly Ticket[]): Promise<readonly bigint[] | undefined> {
    return acquireAll(this.#session, tickets)
  }

  renew(tickets: readonly Ticket[]): Answer<readonly RenewAnswer[]> {
    return takeOffers(this.#session, tickets) ?? renewBesideDamage(this.#renewTogether, tickets)
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    return release(this.#session, request)
  }

  /** Wakes come from the watches. A watch is there before its first waiter waits. */
  listen(onWake: (wake: Wake) => void): () => void {
    return this.#session.listen(onWake)
  }

  inspect(request: InspectRequest): Promise<RoomPage> {
    return inspect(this.#session, request)
  }

  evict(request: EvictRequest): Promise<readonly string[]> {
    return evict(this.#session, request)
  }

  async close(): Promise<void> {
    this.#session.close()
  }
}
