import type { Store } from '../contract/store.ts'
import type { ClosedError } from '../errors.ts'
import type { Renewable, RenewalLoop } from './renewal-loop.ts'

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
   * Undefined for a store in this process, where such wakes are rare and an entry for each lease would be felt.
   */
  readonly #byId: Map<string, ListedLease> | undefined

  constructor(store: Store, renewals: RenewalLoop) {
    this.#renewals = renewals
    this.#byId = store.inProcess === true ? undefined : new Map()
  }

  add(lease: ListedLease): void {
    this.#renewals.schedule(lease)
    this.#byId?.set(lease.id, lease)
  }

  remove(lease: ListedLease): void {
    this.#renewals.remove(lease)
    // Another lease may have the id by now, if the same ticket was adopted once more.
    if (this.#byId?.get(lease.id) === lease) this.#byId.delete(lease.id)
  }

  find(id: string): ListedLease | undefined {
    if (this.#byId !== undefined) return this.#byId.get(id)
    return this.#renewals.find((one) => isLease(one) && one.id === id) as ListedLease | undefined
  }

  list(): ListedLease[] {
    return this.#renewals.list(isLease) as ListedLease[]
  }
}

function isLease(one: Renewable): one is ListedLease {
  return one.kind === 'lease'
}
