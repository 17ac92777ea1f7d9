import type { InspectedHolder, Owner } from '../index.ts'

/** One ticket's hold of a key, as far as periodic looks at the store can tell. */
export interface HoldRecord {
  readonly id: string
  readonly fence: bigint
  readonly owner: Owner
  readonly units: number
  readonly limit: number
  /** When the hold began, by this process's clock in milliseconds since 1970: the time of the look less `heldMs`. */
  readonly fromAt: number
  /**
   * When the hold was first seen to be over. If it ended while nobody looked: when the last look before that was.
   * `undefined` while it lasts.
   */
  readonly untilAt?: number
  readonly end?: HoldEnd
  /** The reason of the eviction, where it was given to `noteEviction`. */
  readonly reason?: string
  /** The ttl, where looks could tell it. Set at the end, like the next one. */
  readonly ttlMs?: number
  /** When the ticket was renewed last, or admitted. */
  readonly renewedAt?: number
}

/**
 * `released`: the lease had time left, so it was given back or evicted elsewhere. `expired`: the lease was not renewed and
 * its time was over. `unclear`: one of these two. `evicted`: evicted through this watch.
 */
export type HoldEnd = 'released' | 'expired' | 'unclear' | 'evicted'

/** A hold together with its key. */
export interface KeyHold {
  readonly key: string
  readonly hold: HoldRecord
}

/** The counts of a key from `at` until the next sample. */
export interface KeySample {
  readonly at: number
  readonly holding: number
  readonly waiting: number
}

export interface KeyHistory {
  /** Oldest first. Holds that begin and end between two looks are not among them. */
  readonly holds: readonly HoldRecord[]
  /** One for each change. */
  readonly samples: readonly KeySample[]
  /** Since when all of them are there, except for present ones where these are too many; `undefined` if none is left out. */
  readonly holdsFromAt?: number | undefined
  readonly samplesFromAt?: number | undefined
}

/** How a hold is over, and what was known of it by then. */
export type HoldEnding = Required<Pick<HoldRecord, 'untilAt' | 'end'>> &
  Pick<HoldRecord, 'reason' | 'ttlMs' | 'renewedAt'>

/** The history of one key, with at most so many holds and so many samples. */
export class KeyRecord implements KeyHistory {
  readonly holds: HoldRecord[] = []
  readonly samples: KeySample[] = []
  holdsFromAt: number | undefined
  samplesFromAt: number | undefined
  readonly #most: number
  /** When a look last had the key, as far as this was noted. */
  #seenAt: number | undefined

  /** `fromAt`: since when the key's history can be complete, if it may have been dropped before. */
  constructor(most: number, fromAt?: number) {
    this.#most = most
    this.holdsFromAt = fromAt
    this.samplesFromAt = fromAt
  }

  get size(): number {
    return this.holds.length + this.samples.length
  }

  find(id: string): HoldRecord | undefined {
    return this.holds.find((hold) => hold.id === id)
  }

  /** The new hold; `undefined` where it is known: an earlier look missed it, and it is still there. */
  begin(holder: InspectedHolder, at: number): HoldRecord | undefined {
    return this.find(holder.id) === undefined ? this.#add(holder, at) : undefined
  }

  /** The hold. It is added again if it was dropped because there were too many. */
  findOrAdd(holder: InspectedHolder, at: number): HoldRecord {
    return this.find(holder.id) ?? this.#add(holder, at)
  }

  restore(hold: HoldRecord): HoldRecord {
    this.holds.push(hold)
    if (this.holds.length > this.#most) {
      // How a hold ends is to be noted in it, also if others of the key change hands meanwhile.
      const over = this.holds.findIndex(({ end }) => end !== undefined)
      const [dropped] = this.holds.splice(Math.max(over, 0), 1)
      // One that lasts is added again when it ends.
      if (dropped?.untilAt !== undefined) this.holdsFromAt = Math.max(dropped.untilAt, this.holdsFromAt ?? 0)
    }
    return hold
  }

  #add({ id, fence, owner, units, limit, heldMs }: InspectedHolder, at: number): HoldRecord {
    return this.restore({ id, fence, owner, units, limit, fromAt: at - heldMs })
  }

  sample(sample: KeySample): void {
    this.samples.push(sample)
    if (this.samples.length <= this.#most) return
    this.samples.shift()
    this.samplesFromAt = this.samples[0]?.at
  }

  /** Whether the counts of the last sample are the same. */
  hasLast({ holding, waiting }: KeySample): boolean {
    const last = this.samples.at(-1)
    return last?.holding === holding && last.waiting === waiting
  }

  /** Nothing is known from before `at`, apart from what is here: nobody has looked at the key. */
  limitTo(at: number): void {
    this.holdsFromAt = at
    this.samplesFromAt = at
  }

  /** The clock was set back to `at`. */
  setBack(at: number): void {
    if (this.holdsFromAt !== undefined) this.holdsFromAt = Math.min(this.holdsFromAt, at)
    if (this.samplesFromAt !== undefined) this.samplesFromAt = Math.min(this.samplesFromAt, at)
  }

  seen(at: number): void {
    this.#seenAt = at
  }

  /** When the key was looked at last. `completeAt`: when a look last had all keys. */
  seenUntil(completeAt: number | undefined): number | undefined {
    return this.#seenAt === undefined ? completeAt : Math.max(this.#seenAt, completeAt ?? this.#seenAt)
  }

  /** Drops what was over before `at`. */
  dropBefore(at: number): void {
    while ((this.holds[0]?.untilAt ?? at) < at) this.holds.shift()
    // The last sample holds until now.
    while ((this.samples[1]?.at ?? at) < at) this.samples.shift()
  }
}
