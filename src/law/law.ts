import { UNLIMITED } from '../contract/store.ts'

/**
 * The one law of Holdfast:
 *
 * > Holders may stand together only while the sum of their units does not exceed the smallest limit among them.
 *
 * A mutex (or write lock) takes 1 unit and tolerates 1, a read lock takes 1 and tolerates any number, a semaphore of n
 * takes its permits and tolerates n. Read/write locks, weighted semaphores, mixed kinds on one key and a change of n
 * during a rolling deploy follow from that sentence; nothing else decides who may hold together.
 */
export interface Share {
  readonly units: number
  readonly limit: number
}

/** Whether these holders may stand together. The specification, in the plainest form. */
export function mayStandTogether(shares: readonly Share[]): boolean {
  let units = 0
  let limit = UNLIMITED
  for (const share of shares) {
    units += share.units
    limit = Math.min(limit, share.limit)
  }
  return units <= limit
}

/** Whether two tickets can never hold at the same time, whoever else is there. */
export function excludeEachOther(one: Share, other: Share): boolean {
  return !mayStandTogether([one, other])
}

/** What a set of holders comes to: enough to decide about one more without looking at each of them. */
export class Sum {
  #units = 0
  #limit = UNLIMITED
  /** How many holders have each limit. One entry, rarely two: the smallest is found without walking the holders. */
  readonly #limits = new Map<number, number>()

  admits(share: Share): boolean {
    return this.#units + share.units <= Math.min(this.#limit, share.limit)
  }

  add(share: Share): void {
    this.#units += share.units
    this.#limits.set(share.limit, (this.#limits.get(share.limit) ?? 0) + 1)
    this.#limit = Math.min(this.#limit, share.limit)
  }

  subtract(share: Share): void {
    this.#units -= share.units
    const left = (this.#limits.get(share.limit) ?? 0) - 1
    if (left > 0) {
      this.#limits.set(share.limit, left)
      return
    }
    this.#limits.delete(share.limit)
    this.#limit = UNLIMITED
    for (const limit of this.#limits.keys()) this.#limit = Math.min(this.#limit, limit)
  }
}
