import type { Store } from '../contract/store.ts'
import type { ClosedError } from '../errors.ts'
import type { Renewable } from './renewable.ts'
import type { RenewalLoop } from './renewal-loop.ts'
import { TicketIndex } from './ticket-index.ts'

/** A lease, as the wakes and `close()` see it. */
export interface ListedLease extends Renewable {
  readonly kind: 'lease'
  readonly key: string
  readonly id: string
  /** Whether somebody has its signal. */
  readonly isWatched: boolean
  /** Asks the store whether the ticket still holds. */
  check(): void
  close(error: ClosedError): Promise<void>
}

/** All leases of one engine that are neither lost, released nor detached. */
export class Leases {
  readonly #renewals: RenewalLoop
  /**
   * By ticket id, to find the one that a wake is about: walking over ten thousand leases for each wake would be felt.
   * With a store in this process such wakes are rare, and an entry for each lease would be felt. So there the index is made
   * when it is first asked for, and dropped with the last lease.
   */
  #byId: TicketIndex<ListedLease> | undefined
  readonly #alwaysIndexed: boolean
  /** Whether a lease had the id of another one, so that the index may lack a lease. */
  #hasTwins = false

  constructor(store: Store, renewals: RenewalLoop) {
    this.#renewals = renewals
    this.#alwaysIndexed = store.inProcess !== true
    if (this.#alwaysIndexed) this.#byId = new TicketIndex()
  }

  /** `now`: a recent look at the monotonic clock. */
  add(lease: ListedLease, now: number): void {
    this.#renewals.schedule(lease, now)
    if (this.#byId?.add(lease) === true) this.#hasTwins = true
  }

  remove(lease: ListedLease): void {
    this.#renewals.remove(lease)
    if (this.#byId === undefined) return
    // Another lease may have the id by now, if the same ticket was adopted once more.
    this.#byId.remove(lease)
    if (this.#byId.size === 0 && !this.#alwaysIndexed) this.#byId = undefined
  }

  find(id: string): ListedLease | undefined {
    if (this.#renewals.size === 0) return undefined
    this.#byId ??= this.#indexed()
    return this.#byId.find(id)
  }

  #indexed(): TicketIndex<ListedLease> {
    const index = new TicketIndex<ListedLease>()
    for (const lease of this.list()) if (index.add(lease)) this.#hasTwins = true
    return index
  }

  /** Whether one of them is on this key. Only for a message, so a process with very many leases does not look. */
  holds(key: string): boolean {
    return this.#renewals.size <= FEW && this.list().some((lease) => lease.key === key)
  }

  /** The same in no order, without a look at each: they are in no cache, and a hundred thousand would take 30 ms. */
  listQuickly(): ListedLease[] {
    return this.#byId === undefined || this.#hasTwins ? this.list() : this.#byId.list()
  }

  list(): ListedLease[] {
    return this.#renewals.list(isLease) as ListedLease[]
  }
}

/** To walk over so many takes less than a tenth of a millisecond. */
const FEW = 1000

function isLease(one: Renewable): one is ListedLease {
  return one.kind === 'lease'
}
