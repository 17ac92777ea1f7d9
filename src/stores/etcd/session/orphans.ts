import { type Ticket, TOMBSTONE_MS } from '../../../contract/store.ts'
import { isHoldfastError } from '../../../errors.ts'
import type { Cluster } from '../grpc/cluster.ts'
import { isAt } from '../grpc/conditions.ts'
import { TXN } from '../grpc/messages.ts'
import type { KeyNames } from '../rooms/key-names.ts'
import { entryOf } from '../rooms/room-entry.ts'
import type { EtcdLeases } from './leases.ts'
import type { OwnTicket } from './own-ticket.ts'

export interface OrphansOptions {
  readonly cluster: Cluster
  readonly names: KeyNames
  readonly leases: EtcdLeases
  readonly tickets: ReadonlyMap<string, OwnTicket>
}

/**
 * Tickets whose key may be in etcd, or may still come there, although this process does not know it as its own: a request that
 * writes the key got no answer. The key would be bound to a lease that is kept alive for other tickets, so it would never end.
 * Such a key is looked for when the time of its ticket is over, and once more when hardly any request is that late.
 */
export class Orphans {
  readonly #options: OrphansOptions
  readonly #orphans = new Map<string, Orphan>()
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(options: OrphansOptions) {
    this.#options = options
  }

  add(ticket: Ticket): void {
    const at = performance.now() + Math.max(ticket.ttlMs, ticket.patienceMs)
    this.#orphans.set(ticket.id, { ticket, at, isLast: false })
    this.#lookIn(AGAIN_MS)
  }

  /** The ticket has left a tombstone, and a request that comes late finds that. */
  drop(id: string): void {
    this.#orphans.delete(id)
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#timer)
  }

  #lookIn(ms: number): void {
    if (this.#timer !== undefined || this.#isClosed) return
    this.#timer = setTimeout(() => void this.#look(), ms)
    this.#timer.unref()
  }

  async #look(): Promise<void> {
    const now = performance.now()
    const due: Orphan[] = []
    for (const orphan of this.#orphans.values()) {
      const own = this.#options.tickets.get(orphan.ticket.id)
      // Asked for again, and known by now. Should it end by its time, it is looked for after that.
      if (own !== undefined) {
        own.putInDoubt()
        this.#orphans.delete(orphan.ticket.id)
      } else if (orphan.at <= now) due.push(orphan)
    }
    try {
      for (let start = 0; start < due.length; start += TOGETHER)
        await this.#remove(due.slice(start, start + TOGETHER))
    } catch (error) {
      // The right to ask was taken away, and will not come back by asking.
      if (isHoldfastError(error, 'store-refused')) this.#orphans.clear()
    }
    this.#timer = undefined
    if (this.#orphans.size > 0) this.#lookIn(AGAIN_MS)
  }

  async #remove(orphans: readonly Orphan[]): Promise<void> {
    const { cluster, names, leases, tickets } = this.#options
    const { reply } = await cluster.ask(TXN, {
      when: [],
      apply: orphans.map(
        ({ ticket: { key, id } }) => ({ tag: 'range', key: names.ticket(key, id) }) as const,
      ),
      otherwise: [],
    })
    for (const [index, orphan] of orphans.entries()) {
      const { id } = orphan.ticket
      const pair = reply.ranges[index]?.pairs[0]
      // If another process has taken it over, that process ends it. A tombstone has a lease that no ticket has.
      const isOurs = pair !== undefined && leases.isOurs(pair.lease) && !tickets.has(id)
      if (isOurs && entryOf(pair, names).value.state === 'here')
        await cluster.ask(TXN, {
          when: [isAt(pair.key, pair.modRevision)],
          apply: [{ tag: 'delete', key: pair.key }],
          otherwise: [],
        })
      if (this.#orphans.get(id) !== orphan) continue
      if (orphan.isLast) this.#orphans.delete(id)
      else this.#orphans.set(id, { ...orphan, at: performance.now() + TOMBSTONE_MS, isLast: true })
    }
  }
}

interface Orphan {
  readonly ticket: Ticket
  /** When it is looked for, by the monotonic clock. */
  readonly at: number
  /** Whether it was looked for once. */
  readonly isLast: boolean
}

const AGAIN_MS = 1000
/** etcd takes 128 operations in one transaction. */
const TOGETHER = 100
