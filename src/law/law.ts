import { UNLIMITED } from '../contract/store.ts'

/**
 * The one law of Holdfast:
 *
 * > Several tickets may hold the key at the same time only while the sum of their units does not exceed the smallest limit among them.
 *
 * - A mutex or a write lock takes 1 unit and tolerates 1.
 * - A read lock takes 1 unit and tolerates any number.
 * - A holder of a semaphore of n takes as many units as it has permits, and tolerates n.
 *
 * Read/write locks, weighted semaphores, mixed kinds on one key and a change of n during a rolling deploy follow from
 * the law. Nothing else decides who may hold together.
 */
export interface Share {
  readonly units: number
  readonly limit: number
}

/** Whether these tickets may hold the key at the same time. The specification, in the plainest form. */
export function mayStandTogether(shares: readonly Share[]): boolean {
  let units = 0
  let limit = UNLIMITED
  for (const share of shares) {
    units += share.units
    limit = Math.min(limit, share.limit)
  }
  return units <= limit
}

/** A holder in the list of holders. */
interface Listed {
  readonly value: { readonly ticket: Share }
  readonly next: Listed | undefined
}

/** The sum of the units of some holders, and their smallest limit. It admits one more without looking at each of them. */
export class Sum {
  #units = 0
  #limit = UNLIMITED
  /** How many holders have the smallest limit. Only when this falls to 0, `subtract` has to look for the next smallest. */
  #smallest = 0

  admits(share: Share): boolean {
    return this.#units + share.units <= Math.min(this.#limit, share.limit)
  }

  add(share: Share): void {
    this.#units += share.units
    this.#count(share.limit)
  }

  /** Takes out one holder. `left`: the holders that stay. */
  subtract(share: Share, left: { readonly first: Listed | undefined }): void {
    this.#units -= share.units
    if (share.limit > this.#limit) return
    this.#smallest -= 1
    if (this.#smallest > 0) return
    this.#limit = UNLIMITED
    for (let one = left.first; one !== undefined; one = one.next) this.#count(one.value.ticket.limit)
  }

  #count(limit: number): void {
    if (limit < this.#limit) {
      this.#limit = limit
      this.#smallest = 1
    } else if (limit === this.#limit) this.#smallest += 1
  }
}
