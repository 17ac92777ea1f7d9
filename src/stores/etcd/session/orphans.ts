import { type Backoff, backoffMs } from '../../../base/backoff.ts'
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
  readonly cluster: Pick<Cluster, 'ask'>
  readonly names: KeyNames
  readonly leases: Pick<EtcdLeases, 'isOurs'>
  readonly tickets: ReadonlyMap<string, OwnTicket>
}

/**
 * Deletes keys that no ticket of this process owns: a request that writes such a key got no answer, and may be carried out late.
 * The key would be bound to a lease that is kept alive for other tickets, so it would never end. It is looked for when the time
 * of its ticket is over, and once more a minute later, when hardly any request is still under way.
 */
export class Orphans {
  readonly #options: OrphansOptions
  readonly #orphans = new Map<string, Orphan>()
  #timer: NodeJS.Timeout | undefined
  /** How many looks in a row etcd has refused. */
  #refusals = 0
  #isClosed = false

  constructor(options: OrphansOptions) {
    this.#options = options
  }

  add(ticket: Ticket): void {
    const at = performance.now() + Math.max(ticket.ttlMs, ticket.patienceMs)
    this.#orphans.set(ticket.id, { ticket, at, isLast: false })
    this.#lookIn(AGAIN_MS)
  }

  /** The ticket has left a tombstone, so a late request has no effect. */
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
      // Its caller asked again, and the ticket is one of this process now. If it ends by its time, it becomes an orphan again.
      if (own !== undefined) {
        own.putInDoubt()
        this.#orphans.delete(orphan.ticket.id)
      } else if (orphan.at <= now) due.push(orphan)
    }
    try {
      for (let start = 0; start < due.length; start += TOGETHER)
        await this.#remove(due.slice(start, start + TOGETHER))
      this.#refusals = 0
    } catch (error) {
      // What makes etcd refuse often passes: a password that is being changed, for example.
      this.#refusals = isHoldfastError(error, 'store-refused') ? this.#refusals + 1 : 0
    }
    this.#timer = undefined
    if (this.#orphans.size > 0)
      this.#lookIn(this.#refusals === 0 ? AGAIN_MS : backoffMs(AFTER_REFUSAL, this.#refusals))
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
      // If another process has taken the ticket over, that process ends it. A tombstone has a lease of its own kind.
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
  /** When its key is looked for, by the monotonic clock. */
  readonly at: number
  /** Whether this is the second time. */
  readonly isLast: boolean
}

const AGAIN_MS = 1000
/** Somebody may have to correct the cause of a refusal, which takes a while. */
const AFTER_REFUSAL: Backoff = { firstMs: 2000, longestMs: 30_000, jitter: 0.5 }
/** etcd takes 128 operations in one transaction. */
const TOGETHER = 100
