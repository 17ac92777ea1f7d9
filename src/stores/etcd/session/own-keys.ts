import type { Ticket } from '../../../contract/store.ts'
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
 * Writes the keys of tickets of this process. Each transaction names the known revision of the key. If the key has another
 * revision, perhaps by an earlier request of this process whose answer was lost, the key is read and the change is tried again.
 */
export class OwnKeys {
  readonly #options: OwnKeysOptions

  constructor(options: OwnKeysOptions) {
    this.#options = options
  }

  /** Carries out a plan, which is made anew for each try. Undefined if the ticket is not one of this process any more. */
  async change(own: OwnTicket, plan: (tries: number) => Plan): Promise<TxnReply | undefined> {
    const { cluster, names } = this.#options
    for (let tries = 0; tries < MOST_TRIES && !own.isForgotten; tries += 1) {
      const { when = [], apply } = plan(tries)
      const { reply } = await cluster.ask(TXN, {
        when: [isAt(own.name, own.binding.revision), ...when],
        apply,
        otherwise: [{ tag: 'range', key: own.name }],
      })
      if (reply.succeeded) return reply
      const pair = reply.ranges[0]?.pairs[0]
      // If the ticket was taken anew meanwhile, the key is there and belongs to the new one.
      if (own.isForgotten || pair === undefined || !this.adopt(own, entryOf(pair, names))) return undefined
    }
    if (own.isForgotten) return undefined
    throw tooBusy(own.ticket.key)
  }

  /**
   * Confirms or renews a ticket, and promises it its ttl once its key is bound to a lease that surely lasts as long. False if the
   * ticket holds no longer.
   */
  async hold(own: OwnTicket, ticket: Ticket): Promise<boolean> {
    own.confirmed(ticket, performance.now())
    if (!(await this.bind(own))) return false
    await this.#options.leases.ensure(own.binding.lease, termMs(ticket))
    if (own.binding.lease.isLost || own.state.tag !== 'held') return false
    own.renewed(ticket.ttlMs, performance.now())
    return true
  }

  /** Binds the key of a holder to a lease that is long enough. False if the ticket holds no longer, or another process has it. */
  async bind(own: OwnTicket): Promise<boolean> {
    const { cluster, leases } = this.#options
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const holdMs = own.state.tag === 'held' ? own.state.minHoldUntil - performance.now() : 0
      const isForMinHold = holdMs > 0
      const needMs = termMs(own.ticket)
      const isSame = own.binding.isForMinHold === isForMinHold
      if (isSame && (isForMinHold || own.binding.lease.termMs >= needMs)) return true
      const lease = isForMinHold
        ? await leases.expiring(Math.max(holdMs, own.ticket.ttlMs) + own.ticket.lockDelayMs)
        : await leases.shared(needMs)
      // The ticket was released while the lease was granted, and its key says so. This write would undo that.
      if (own.state.tag !== 'held') return false
      // Another request has bound it to that lease meanwhile.
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
          // The write may be carried out later, so the key may outlive the lease to which it is bound as far as this process
          // knows.
          if (cluster.leavesDoubt(error)) own.putInDoubt()
          throw error
        }
        leases.lost(lease)
      }
    }
    throw tooBusy(own.ticket.key)
  }

  /** Notes the binding of a key that was read. False if another process has written the key, or it is a tombstone. */
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

  /** Notes that the key of a ticket has this binding. */
  bound(own: OwnTicket, binding: Binding): void {
    const before = own.binding.lease
    // A forgotten ticket counts for no lease.
    if (!own.bound(binding) || own.state.tag === 'forgotten') return
    before.released()
    this.#options.leases.used(binding.lease)
  }
}

interface Plan {
  /** Further conditions. */
  readonly when?: readonly Compare[]
  readonly apply: readonly Operation[]
}
