import type { HolderView, RoomView } from '../index.ts'

/** One ticket that holds or has held a key, as far as looks from time to time can tell. */
export interface Term {
  readonly id: string
  readonly fence: bigint
  readonly owner: string
  readonly units: number
  readonly limit: number
  /** By this process's clock, in milliseconds since 1970, from how long the store says it has been held. */
  readonly fromAt: number
  /** When it was first seen to be over; `undefined` while it lasts. */
  readonly untilAt?: number
  readonly end?: TermEnd
  /** What whoever evicted it said, where {@link RoomHistory.noteEviction} was told. */
  readonly reason?: string
}

/**
 * `released`: it had time left, so it was given back, or evicted by somebody else. `expired`: it was not renewed any
 * more, and its time was over. `unclear`: one of the two. `evicted`: through this watch.
 */
export type TermEnd = 'released' | 'expired' | 'unclear' | 'evicted'

/** From this moment until the next sample. */
export interface KeySample {
  readonly at: number
  readonly holding: number
  readonly waiting: number
}

export interface KeyHistory {
  /** Oldest first. Terms that begin and end between two looks are not among them. */
  readonly terms: readonly Term[]
  /** Only where something changed. */
  readonly samples: readonly KeySample[]
}

/** The sums of one look. */
export interface Totals {
  readonly at: number
  readonly keys: number
  readonly holding: number
  readonly waiting: number
  /** How many terms have begun, and how many have expired, since the look before. */
  readonly begun: number
  readonly expired: number
}

export interface HistoryLimits {
  /** Of how many keys it is kept: those that changed last. */
  readonly keys: number
  /** How many terms and samples are kept of a key. */
  readonly entries: number
  /** How many looks `totals` goes back. */
  readonly looks: number
}

/** What two looks in a row differ in is what happened in between. Never larger than its limits. */
export class RoomHistory {
  readonly #limits: HistoryLimits
  /** In the order of their last change. */
  readonly #byKey: Map<string, Recorded> = new Map()
  readonly #totals: Totals[] = []
  #rooms: ReadonlyMap<string, RoomView> | undefined
  #lookedAt = 0
  /** By the monotonic clock, when the last look was begun. */
  #begunMs = 0
  /** How long ago a room of the last look may have been read, at most. */
  #elapsedMs = 0

  constructor(limits: HistoryLimits) {
    this.#limits = limits
  }

  get totals(): readonly Totals[] {
    return this.#totals
  }

  of(key: string): KeyHistory | undefined {
    return this.#byKey.get(key)
  }

  /** Takes in what a whole look has found, that was begun at a time of the monotonic clock and is over now, at `at`. */
  look(rooms: ReadonlyMap<string, RoomView>, { at, begunMs }: { at: number; begunMs: number }): void {
    const before = this.#rooms
    // The monotonic clock may stand still while the machine sleeps, and the other one may be set.
    this.#elapsedMs = Math.max(at - this.#lookedAt, performance.now() - this.#begunMs)
    this.#begunMs = begunMs
    let [holding, waiting, begun, expired] = [0, 0, 0, 0]
    for (const [key, room] of rooms) {
      const changes = this.#compare(key, before?.get(key), room, at)
      holding += room.holders.length
      waiting += room.queue.length
      begun += changes.begun
      expired += changes.expired
    }
    for (const [key, room] of before ?? []) {
      if (!rooms.has(key)) expired += this.#compare(key, room, undefined, at).expired
    }
    // Who holds when we begin to look has not begun just now.
    if (before === undefined) begun = 0
    this.#totals.push({ at, keys: rooms.size, holding, waiting, begun, expired })
    if (this.#totals.length > this.#limits.looks) this.#totals.shift()
    this.#rooms = rooms
    this.#lookedAt = at
  }

  /** The store does not tell why a ticket is gone; whoever evicts it here does, before or after it is seen to be. */
  noteEviction(key: string, ids: readonly string[], { reason, at }: { reason: string; at: number }): void {
    for (const term of this.#byKey.get(key)?.terms ?? []) {
      if (!ids.includes(term.id)) continue
      const { untilAt = at } = term
      Object.assign(term, { untilAt, end: 'evicted', reason } satisfies Partial<Term>)
    }
  }

  #compare(key: string, before: RoomView | undefined, room: RoomView | undefined, at: number): Changes {
    const holders = room?.holders ?? []
    const known = before?.holders ?? []
    const waiting = room?.queue.length ?? 0
    const isSame =
      waiting === (before?.queue.length ?? 0) &&
      holders.length === known.length &&
      holders.every(({ id }, index) => id === known[index]?.id)
    // Of most keys nothing has changed but the time left.
    if (isSame && this.#byKey.has(key)) {
      this.#byKey.get(key)?.see(holders)
      return NO_CHANGES
    }
    const begun = without(holders, known)
    const recorded = this.#record(key)
    const untilAt = begun.reduce((earliest, { heldMs }) => Math.min(earliest, at - heldMs), at)
    const ends = without(known, holders).map((holder) =>
      recorded.end(holder, { untilAt: Math.max(this.#lookedAt, untilAt), elapsedMs: this.#elapsedMs }),
    )
    recorded.see(holders)
    for (const holder of begun) recorded.begin(holder, at)
    recorded.sample({ at, holding: holders.length, waiting })
    return { begun: begun.length, expired: ends.filter((end) => end === 'expired').length }
  }

  #record(key: string): Recorded {
    const recorded = this.#byKey.get(key) ?? new Recorded(this.#limits.entries)
    this.#byKey.delete(key)
    this.#byKey.set(key, recorded)
    if (this.#byKey.size > this.#limits.keys) {
      const [oldest] = this.#byKey.keys()
      if (oldest !== undefined) this.#byKey.delete(oldest)
    }
    return recorded
  }
}

interface Changes {
  readonly begun: number
  readonly expired: number
}

const NO_CHANGES: Changes = { begun: 0, expired: 0 }

function without(some: readonly HolderView[], others: readonly HolderView[]): readonly HolderView[] {
  const ids = new Set(others.map(({ id }) => id))
  return some.filter(({ id }) => !ids.has(id))
}

/** The history of one key. */
class Recorded implements KeyHistory {
  readonly terms: Term[] = []
  readonly samples: KeySample[] = []
  readonly #most: number
  /** The most time left that was ever seen of those that hold now, by id: about their ttl. */
  readonly #longestMs: Map<string, number> = new Map()

  constructor(most: number) {
    this.#most = most
  }

  see(holders: readonly HolderView[]): void {
    for (const { id, remainingMs } of holders) {
      if (remainingMs > (this.#longestMs.get(id) ?? -1)) this.#longestMs.set(id, remainingMs)
    }
  }

  begin({ id, fence, owner, units, limit, heldMs }: HolderView, at: number): void {
    // Forgotten in between for want of room, or still there after a look that missed it.
    if (this.terms.some((term) => term.id === id)) return
    this.terms.push({ id, fence, owner, units, limit, fromAt: at - heldMs })
    if (this.terms.length > this.#most) this.terms.shift()
  }

  end(holder: HolderView, { untilAt, elapsedMs }: { untilAt: number; elapsedMs: number }): TermEnd {
    const end = this.#endOf(holder, elapsedMs)
    this.#longestMs.delete(holder.id)
    const term = this.terms.find(({ id }) => id === holder.id)
    if (term === undefined) return end
    if (term.end === undefined) Object.assign(term, { untilAt, end } satisfies Partial<Term>)
    return term.end ?? end
  }

  sample(sample: KeySample): void {
    this.samples.push(sample)
    if (this.samples.length > this.#most) this.samples.shift()
  }

  #endOf({ id, state, remainingMs }: HolderView, elapsedMs: number): TermEnd {
    if (state === 'leaving' || remainingMs > elapsedMs) return 'released'
    // Who renews does so long before half of the time is over.
    return remainingMs < (this.#longestMs.get(id) ?? 0) / 2 ? 'expired' : 'unclear'
  }
}
