import type { Cluster } from '../grpc/cluster.ts'
import { isAt, MOST_TRIES, tooBusy } from '../grpc/conditions.ts'
import { isLeaseGone } from '../grpc/failures.ts'
import { type Compare, type Operation, TXN, type TxnReply } from '../grpc/messages.ts'
import type { RoomNames } from '../rooms/room-names.ts'
import { type Entry, entryOf, kept, ticketValue } from '../rooms/ticket-value.ts'
import type { Lease, Leases } from './leases.ts'
import { type OwnTicket, termMs } from './own-ticket.ts'

export interface OwnKeysOptions {
  readonly cluster: Cluster
  readonly names: RoomNames
  readonly leases: Leases
  readonly own: ReadonlyMap<string, OwnTicket>
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
        when: [isAt(own.name, own.modRevision), ...when],
        apply,
        otherwise: [{ tag: 'range', key: own.name }],
      })
      if (reply.succeeded) return reply
      const pair = reply.ranges[0]?.pairs[0]
      if (pair === undefined || !this.adopt(own, entryOf(pair, names))) return undefined
    }
    throw tooBusy(own.ticket.key)
  }

  /** Sees to it that the key of a holder is bound to a lease that is long enough. False when it is no longer ours. */
  async bind(own: OwnTicket): Promise<boolean> {
    const { leases } = this.#options
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const holdMs = own.holdUntil - performance.now()
      const isPinned = holdMs > 0
      const needMs = termMs(own.ticket)
      if (isPinned === own.pinned && (isPinned || own.lease.termMs >= needMs)) return true
      const lease = isPinned
        ? await leases.once(Math.max(holdMs, own.ticket.ttlMs) + own.ticket.lockDelayMs)
        : await leases.shared(needMs)
      // Bound to it by another question meanwhile.
      if (own.lease === lease && own.pinned === isPinned) return true
      try {
        const value = ticketValue(kept(own.ticket, { at: own.at, pinned: isPinned }))
        const put: Operation = { tag: 'put', key: own.name, value, lease: lease.id }
        const reply = await this.change(own, () => ({ apply: [put] }))
        if (reply === undefined) return false
        this.bound(own, { revision: reply.revision, lease })
        own.pinned = isPinned
        return true
      } catch (error) {
        if (!isLeaseGone(error)) {
          // Its key may outlive the lease to which it was bound, as far as this process knows.
          own.isDoubtful = true
          throw error
        }
        leases.lost(lease)
      }
    }
    throw tooBusy(own.ticket.key)
  }

  /** Takes note of how its key was seen. False when somebody else has written it, or removed it. */
  adopt(own: OwnTicket, entry: Entry): boolean {
    const { leases } = this.#options
    const isSame = entry.createRevision === own.createRevision && entry.value.state === 'here'
    if (!isSame || !leases.isOurs(entry.lease)) return false
    this.bound(own, { revision: entry.modRevision, lease: leases.kept(entry.lease) ?? own.lease })
    return true
  }

  /** Its key was bound to this lease at this revision. */
  bound(own: OwnTicket, { revision, lease }: { readonly revision: number; readonly lease: Lease }): void {
    if (revision < own.modRevision) return
    const { leases, own: all } = this.#options
    own.modRevision = revision
    // Forgotten meanwhile, it counts for no lease.
    if (all.get(own.ticket.id) === own) {
      own.lease.tickets -= 1
      leases.used(lease)
    }
    own.lease = lease
  }
}

interface Plan {
  /** What else has to be so. */
  readonly when?: readonly Compare[]
  readonly apply: readonly Operation[]
}
