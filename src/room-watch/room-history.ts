import type { InspectedHolder, InspectedRoom, Owner } from '../index.ts'

/** One ticket's hold of a key, as far as periodic looks at the store can tell. */
export interface HoldRecord {
  readonly id: string
  readonly fence: bigint
  readonly owner: Owner
  readonly units: number
  readonly limit: number
  /** When the hold began, by this process's clock in milliseconds since 1970: the time of the look less `heldMs`. */
  readonly fromAt: number
  /** When the hold was first seen to be over; `undefined` while it lasts. */
  readonly untilAt?: number
  readonly end?: HoldEnd
  /** The reason of the eviction, where it was given to {@link RoomHistory.noteEviction}. */
  readonly reason?: string
}

/**
 * `released`: the lease had time left, so it was given back or evicted elsewhere. `expired`: the lease was not renewed and
 * its time was over. `unclear`: one of these two. `evicted`: evicted through this watch.
 */
export type HoldEnd = 'released' | 'expired' | 'unclear' | 'evicted'

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
}

/** The sums over all keys of one look. */
export interface Totals {
  readonly at: number
  readonly keys: number
  readonly holding: number
  readonly waiting: number
  /** How many holds have begun, and how many have expired, since the look before. */
  readonly begun: number
  readonly expired: number
}

export interface HistoryLimits {
  /** How many keys have a history: those that changed last. */
  readonly keys: number
  /** How many holds and samples are kept of a key. */
  readonly entries: number
  /** How many holds and samples are kept of all keys together. */
  readonly total: number
  /** How many looks `totals` goes back. */
  readonly looks: number
}

/**
 * Records what differs between two looks in a row. Only keys that change are recorded, so that keys that do not change push
 * nothing out, however many they are. Never larger than its limits.
 */
export class RoomHistory {
  readonly #limits: HistoryLimits
  /** In the order of the keys' last change. */
  readonly #byKey: Map<string, Recorded> = new Map()
  readonly #totals: Totals[] = []
  #size = 0
  #rooms: ReadonlyMap<string, InspectedRoom> | undefined
  /** By id, the most time left that was ever seen of each present holder: about its ttl. */
  #longestMs: ReadonlyMap<string, number> = new Map()
  /** Keys without a record have not changed since then. */
  #calmSinceAt = 0
  #lookedAt = 0
  /** When the last look began, by the monotonic clock. */
  #begunMs = 0
  /** The longest time since a room of the last look may have been read. */
  #elapsedMs = 0

  constructor(limits: HistoryLimits) {
    this.#limits = limits
  }

  get totals(): readonly Totals[] {
    return this.#totals
  }

  /** The keys that were seen to change and are not forgotten. */
  get changed(): Iterable<string> {
    return this.#byKey.keys()
  }

  /** `undefined` where the key is free and no earlier holder is remembered. */
  of(key: string): KeyHistory | undefined {
    const room = this.#rooms?.get(key)
    return this.#byKey.get(key) ?? (room && this.#begun(room))
  }

  /** Records the rooms of a complete look. `begunMs`: its beginning by the monotonic clock. `at`: its end, which is now. */
  look(rooms: ReadonlyMap<string, InspectedRoom>, { at, begunMs }: { at: number; begunMs: number }): void {
    const before = this.#rooms
    // The monotonic clock may stand still while the machine sleeps, and the wall clock may be set: take the larger.
    this.#elapsedMs = Math.max(at - this.#lookedAt, performance.now() - this.#begunMs)
    this.#begunMs = begunMs
    const longestMs = new Map<string, number>()
    let [holding, waiting, begun, expired] = [0, 0, 0, 0]
    for (const [key, room] of rooms) {
      for (const { id, remainingMs } of room.holders) {
        longestMs.set(id, Math.max(remainingMs, this.#longestMs.get(id) ?? 0))
      }
      holding += room.holders.length
      waiting += room.queue.length
      // At the first look, no hold has begun just now.
      if (before === undefined) continue
      const changes = this.#compare(key, before.get(key), room, at)
      begun += changes.begun
      expired += changes.expired
    }
    for (const [key, room] of before ?? []) {
      if (!rooms.has(key)) expired += this.#compare(key, room, undefined, at).expired
    }
    this.#totals.push({ at, keys: rooms.size, holding, waiting, begun, expired })
    if (this.#totals.length > this.#limits.looks) this.#totals.shift()
    if (before === undefined) this.#calmSinceAt = at
    this.#rooms = rooms
    this.#longestMs = longestMs
    this.#lookedAt = at
    this.#forget()
  }

  /** The store does not say why a ticket is gone. An eviction from here is noted, before or after a look misses the ticket. */
  noteEviction(key: string, ids: readonly string[], { reason, at }: { reason: string; at: number }): void {
    if (this.of(key) === undefined) return
    for (const hold of this.#record(key, this.#rooms?.get(key)).holds) {
      if (!ids.includes(hold.id)) continue
      const { untilAt = at } = hold
      Object.assign(hold, { untilAt, end: 'evicted', reason } satisfies Partial<HoldRecord>)
    }
    this.#forget()
  }

  #compare(
    key: string,
    before: InspectedRoom | undefined,
    room: InspectedRoom | undefined,
    at: number,
  ): Changes {
    const holders = room?.holders ?? []
    const known = before?.holders ?? []
    const waiting = room?.queue.length ?? 0
    const isSame =
      waiting === (before?.queue.length ?? 0) &&
      holders.length === known.length &&
      holders.every(({ id }, index) => id === known[index]?.id)
    // In most rooms nothing has changed but the time left.
    if (isSame) return NO_CHANGES
    const begun = without(holders, known)
    const recorded = this.#record(key, before)
    const sizeBefore = recorded.size
    const untilAt = begun.reduce((earliest, { heldMs }) => Math.min(earliest, at - heldMs), at)
    const ends = without(known, holders).map((holder) =>
      recorded.end(holder.id, { untilAt: Math.max(this.#lookedAt, untilAt), end: this.#endOf(holder) }),
    )
    for (const holder of begun) recorded.begin(holder, at)
    recorded.sample({ at, holding: holders.length, waiting })
    this.#size += recorded.size - sizeBefore
    return { begun: begun.length, expired: ends.filter((end) => end === 'expired').length }
  }

  #endOf({ id, state, remainingMs }: InspectedHolder): HoldEnd {
    if (state === 'leaving' || remainingMs > this.#elapsedMs) return 'released'
    // A living holder renews long before half of its ttl is over.
    return remainingMs < (this.#longestMs.get(id) ?? 0) / 2 ? 'expired' : 'unclear'
  }

  /** The record of a key that changes now, moved to the end of the order. `before`: the room before the change. */
  #record(key: string, before: InspectedRoom | undefined): Recorded {
    const known = this.#byKey.get(key)
    const recorded = known ?? (before && this.#begun(before)) ?? new Recorded(this.#limits.entries)
    this.#byKey.delete(key)
    this.#byKey.set(key, recorded)
    if (known === undefined) this.#size += recorded.size
    return recorded
  }

  /** A new record of a room that has not changed for as long as looks can tell. */
  #begun({ holders, queue }: InspectedRoom): Recorded {
    const recorded = new Recorded(this.#limits.entries)
    for (const holder of holders) recorded.begin(holder, this.#lookedAt)
    recorded.sample({ at: this.#calmSinceAt, holding: holders.length, waiting: queue.length })
    return recorded
  }

  #forget(): void {
    for (const [key, { size }] of this.#byKey) {
      if (this.#byKey.size <= this.#limits.keys && this.#size <= this.#limits.total) return
      this.#byKey.delete(key)
      this.#size -= size
      // From now on, a key without a record may have changed before this look.
      this.#calmSinceAt = this.#lookedAt
    }
  }
}

interface Changes {
  readonly begun: number
  readonly expired: number
}

const NO_CHANGES: Changes = { begun: 0, expired: 0 }

function without(
  some: readonly InspectedHolder[],
  others: readonly InspectedHolder[],
): readonly InspectedHolder[] {
  const ids = new Set(others.map(({ id }) => id))
  return some.filter(({ id }) => !ids.has(id))
}

/** The history of one key. */
class Recorded implements KeyHistory {
  readonly holds: HoldRecord[] = []
  readonly samples: KeySample[] = []
  readonly #most: number

  constructor(most: number) {
    this.#most = most
  }

  get size(): number {
    return this.holds.length + this.samples.length
  }

  begin({ id, fence, owner, units, limit, heldMs }: InspectedHolder, at: number): void {
    // The hold is known: an earlier look missed it, and it is still there.
    if (this.holds.some((hold) => hold.id === id)) return
    this.holds.push({ id, fence, owner, units, limit, fromAt: at - heldMs })
    if (this.holds.length > this.#most) this.holds.shift()
  }

  end(id: string, { untilAt, end }: { untilAt: number; end: HoldEnd }): HoldEnd {
    const hold = this.holds.find((each) => each.id === id)
    if (hold === undefined) return end
    if (hold.end === undefined) Object.assign(hold, { untilAt, end } satisfies Partial<HoldRecord>)
    return hold.end ?? end
  }

  sample(sample: KeySample): void {
    this.samples.push(sample)
    if (this.samples.length > this.#most) this.samples.shift()
  }
}
