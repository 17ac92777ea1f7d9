import type { Cluster } from '../grpc/cluster.ts'
import { isAt, MOST_TRIES, tooBusy } from '../grpc/conditions.ts'
import { isLeaseGone } from '../grpc/failures.ts'
import { type Compare, type Operation, TXN, type TxnReply } from '../grpc/messages.ts'
import type { KeyNames } from '../rooms/key-names.ts'
import { entryOf, type RoomEntry, ticketText, ticketValue } from '../rooms/room-entry.ts'
import type { EtcdLeases } from './leases.ts'
import { type Binding, type OwnTicket, termMs } from './own-ticket.ts'

export interface OwnKeysOptions {
  readonly cluster: Cluster
  readonly names: KeyNames
  readonly leases: EtcdLeases
}

/**
 * Writes the keys of tickets of this process. Each transaction names the revision of the key as it is known, which an earlier
 * request of this process may have changed without its reply being heard. Then the key is read, and the change is tried again.
 */
export class OwnKeys {
  readonly #options: OwnKeysOptions

  constructor(options: OwnKeysOptions) {
    this.#options = options
  }

  /** Carries out a plan, which is made anew for each try. Undefined when the key is not ours any more. */
  async change(own: OwnTicket, plan: (tries: number) => Plan): Promise<TxnReply | undefined> {
    const { cluster, names } = this.#options
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const { when = [], apply } = plan(tries)
      const { reply } = await cluster.ask(TXN, {
        when: [isAt(own.name, own.binding.revision), ...when],
        apply,
        otherwise: [{ tag: 'range', key: own.name }],
      })
      if (reply.succeeded) return reply
      const pair = reply.ranges[0]?.pairs[0]
      if (pair === undefined || !this.adopt(own, entryOf(pair, names))) return undefined
    }
    throw tooBusy(own.ticket.key)
  }

  /** Binds the key of a holder to a lease that is long enough. False when the key is no longer ours, or the ticket holds no longer. */
  async bind(own: OwnTicket): Promise<boolean> {
    const { leases } = this.#options
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const holdMs = own.state.tag === 'held' ? own.state.minHoldUntil - performance.now() : 0
      const isForMinHold = holdMs > 0
      const needMs = termMs(own.ticket)
      const isSame = own.binding.isForMinHold === isForMinHold
      if (isSame && (isForMinHold || own.binding.lease.termMs >= needMs)) return true
      const lease = isForMinHold
        ? await leases.expiring(Math.max(holdMs, own.ticket.ttlMs) + own.ticket.lockDelayMs)
        : await leases.shared(needMs)
      // Released while the lease was granted: this write would undo that its key says so.
      if (own.state.tag !== 'held') return false
      // Bound to it by another question meanwhile.
      if (own.binding.lease === lease && own.binding.isForMinHold === isForMinHold) return true
      try {
        const value = ticketText(ticketValue(own.ticket, { at: own.at, isForMinHold }))
        const put: Operation = { tag: 'put', key: own.name, value, lease: lease.id }
        const reply = await this.change(own, () => ({ apply: [put] }))
        if (reply === undefined) return false
        this.bound(own, { revision: reply.revision, lease, isForMinHold })
        return true
      } catch (error) {
        if (!isLeaseGone(error)) {
          // Its key may outlive the lease to which it was bound, as far as this process knows.
          own.putInDoubt()
          throw error
        }
        leases.lost(lease)
      }
    }
    throw tooBusy(own.ticket.key)
  }

  /** Takes note of how the key of a ticket was seen. False when another process has written it, or it is a tombstone. */
  adopt(own: OwnTicket, { createRevision, modRevision, lease, value }: RoomEntry): boolean {
    const { leases } = this.#options
    if (createRevision !== own.createRevision || value.state !== 'here' || !leases.isOurs(lease)) return false
    this.bound(own, {
      ...own.binding,
      revision: modRevision,
      lease: leases.keptAlive(lease) ?? own.binding.lease,
    })
    return true
  }

  /** The key of a ticket was bound to this lease at this revision. */
  bound(own: OwnTicket, binding: Binding): void {
    const before = own.binding.lease
    // Once it is forgotten, it counts for no lease.
    if (!own.bound(binding) || own.state.tag === 'forgotten') return
    before.tickets -= 1
    this.#options.leases.used(binding.lease)
  }
}

interface Plan {
  /** What else has to be so. */
  readonly when?: readonly Compare[]
  readonly apply: readonly Operation[]
}
