/**
 * An entry of a {@link TimerWheel}. The lists of the wheel live in its entries, because every lock pays for joining and
 * leaving.
 */
export interface WheelEntry<E> {
  /** When it is due, in milliseconds. `Infinity`: never. A change counts from the next `put` on. */
  readonly dueAt: number
  /** How much earlier than `dueAt` it may be taken, to be taken together with others. */
  readonly slackMs: number
  /** For the wheel alone. `undefined`: the entry is not in a wheel. */
  bucket: Bucket<E> | undefined
  previous: E | undefined
  next: E | undefined
}

/** Entries that are due at about the same time. */
export interface Bucket<E> {
  /** When its entries are looked at: when the first of them is due, or where the bucket begins, if it is coarse. */
  startsAt: number
  /** From this moment on, each of its entries may be taken, if that saves a round of its own. `Infinity`: they have no slack. */
  mayBeTakenAt: number
  /** Whether some of its entries may be due later than the bucket. These are put into a narrower one when its time comes. */
  isCoarse: boolean
  first: E | undefined
  last: E | undefined
}

/**
 * Finds what is due without a look at what is not: a timing wheel (Varghese and Lauck, 1987).
 *
 * An entry goes into a bucket whose width is about a sixteenth of the time until it is due, or of its slack if that is
 * longer. So there are at most 32 buckets of each width, a few dozen in all, however many entries there are. If the slack
 * covers the width, all entries of the bucket are taken together. Otherwise the entry moves to a narrower bucket when the
 * first one starts, which it does at most six times.
 */
export class TimerWheel<E extends WheelEntry<E>> {
  /** Buckets by the logarithm of their width, then by the number of widths before their start. */
  readonly #fine: Map<number, Bucket<E>>[] = []
  readonly #coarse: Map<number, Bucket<E>>[] = []
  /** Buckets whose time has come, the most urgent first. */
  #due: Bucket<E>[] = []
  /** Entries to take next, whenever they are due. */
  readonly #urgent: Bucket<E> = newBucket(Number.NEGATIVE_INFINITY)
  /**
   * The entry that was added last, before it has a bucket. Most locks are released before the next one is taken, and these
   * need none.
   */
  readonly #newest: Bucket<E> = newBucket(Number.NEGATIVE_INFINITY)
  /** Entries that were taken, and those that are never due. */
  readonly #idle: Bucket<E> = newBucket(Number.POSITIVE_INFINITY)
  #size = 0

  /** How many entries it keeps, those included that were taken and not removed. */
  get size(): number {
    return this.#size
  }

  /** Whether entries wait to be taken. */
  get isBehind(): boolean {
    return this.#due.length > 0 || this.#urgent.first !== undefined
  }

  /** Adds an entry, or takes notice of its new `dueAt`. Returns when to call `advance` for it. An urgent entry stays urgent. */
  put(entry: E, now: number): number {
    const { bucket: before } = entry
    if (before === undefined) {
      this.#placeNewest(now)
      this.#size += 1
      entry.bucket = this.#newest
      this.#newest.first = entry
      return entry.dueAt
    }
    if (before === this.#urgent) return Number.POSITIVE_INFINITY
    const bucket = this.#bucketFor(entry, now)
    if (before !== bucket) {
      unlink(entry, before)
      link(entry, bucket)
    }
    return bucket.startsAt
  }

  /** Has an entry taken next. Ignored if it is not in the wheel. */
  putFirst(entry: E): void {
    const { bucket: before } = entry
    if (before === undefined || before === this.#urgent) return
    unlink(entry, before)
    link(entry, this.#urgent)
  }

  remove(entry: E): void {
    const { bucket } = entry
    if (bucket === undefined) return
    unlink(entry, bucket)
    entry.bucket = undefined
    this.#size -= 1
  }

  /** Whether it was taken and not put back since. */
  isTaken(entry: E): boolean {
    return entry.bucket === this.#idle
  }

  /** Finds the buckets whose time has come. `every`: the time of all has come, whatever they say. */
  advance(now: number, { every = false }: { readonly every?: boolean } = {}): void {
    this.#placeNewest(now)
    const due: Bucket<E>[] = []
    for (const shelf of [...this.#fine, ...this.#coarse]) {
      for (const [number, bucket] of shelf) {
        const isDue = every || bucket.startsAt <= now || bucket.mayBeTakenAt <= now
        if (bucket.first !== undefined && !isDue) continue
        shelf.delete(number)
        if (bucket.first === undefined) continue
        if (every) bucket.isCoarse = false
        due.push(bucket)
      }
    }
    this.#due = [...this.#due, ...due].sort(byUrgency)
  }

  /** When to call `advance` next. `Infinity`: nothing will be due. */
  nextAt(): number {
    let next = this.#newest.first?.dueAt ?? Number.POSITIVE_INFINITY
    for (const shelf of [...this.#fine, ...this.#coarse])
      for (const { first, startsAt } of shelf.values())
        if (first !== undefined && startsAt < next) next = startsAt
    return next
  }

  /** Urgent entries, at most so many. They stay in the wheel until they are removed, and are not due until they are put. */
  takeUrgent(most: number): E[] {
    const taken: E[] = []
    while (taken.length < most && this.#urgent.first !== undefined)
      taken.push(this.#take(this.#urgent.first, this.#urgent))
    return taken
  }

  /** The same for entries whose time has come. It looks at no more than `most`. */
  takeDue(most: number, now: number): E[] {
    const taken: E[] = []
    for (let looks = 0; looks < most && this.#due.length > 0; looks += 1) {
      const bucket = this.#due[0] as Bucket<E>
      const entry = bucket.first
      if (entry === undefined) {
        this.#due.shift()
        continue
      }
      this.#take(entry, bucket)
      if (bucket.isCoarse && entry.dueAt - entry.slackMs > now) this.put(entry, now)
      else taken.push(entry)
    }
    return taken
  }

  /** All entries, in no order. The wheel must not be changed meanwhile. */
  *[Symbol.iterator](): Generator<E, void, void> {
    const shelves = [...this.#fine, ...this.#coarse].flatMap((shelf) => [...shelf.values()])
    for (const { first } of [this.#urgent, ...this.#due, ...shelves, this.#idle, this.#newest])
      for (let entry = first; entry !== undefined; entry = entry.next) yield entry
  }

  #take(entry: E, bucket: Bucket<E>): E {
    unlink(entry, bucket)
    link(entry, this.#idle)
    return entry
  }

  #placeNewest(now: number): void {
    const entry = this.#newest.first
    if (entry === undefined) return
    this.#newest.first = undefined
    link(entry, this.#bucketFor(entry, now))
  }

  #bucketFor({ dueAt, slackMs }: E, now: number): Bucket<E> {
    if (dueAt === Number.POSITIVE_INFINITY) return this.#idle
    const level = levelOf(Math.max(dueAt - now, slackMs))
    const width = 1 << level
    if (slackMs >= width) {
      const number = Math.floor(dueAt / width)
      const bucket = bucketOf(this.#fine, level, number) ?? this.#open(this.#fine, level, number, dueAt)
      if (bucket.startsAt > dueAt) bucket.startsAt = dueAt
      if (bucket.mayBeTakenAt < dueAt - slackMs) bucket.mayBeTakenAt = dueAt - slackMs
      return bucket
    }
    // The narrowest bucket starts when the last of its entries is due, so that none is looked at twice.
    const number = level === 0 ? Math.ceil(dueAt) : Math.floor(dueAt / width)
    const bucket = bucketOf(this.#coarse, level, number)
    if (bucket !== undefined) return bucket
    const opened = this.#open(this.#coarse, level, number, number * width)
    opened.mayBeTakenAt = NEVER
    opened.isCoarse = level > 0
    return opened
  }

  #open(shelves: Map<number, Bucket<E>>[], level: number, number: number, startsAt: number): Bucket<E> {
    while (shelves.length <= level) shelves.push(new Map())
    const bucket = newBucket<E>(startsAt)
    shelves[level]?.set(number, bucket)
    return bucket
  }
}

/** Entries without slack go first: if the loop is behind, the others have time left. */
function byUrgency<E>(one: Bucket<E>, other: Bucket<E>): number {
  const [oneCanWait, otherCanWait] = [one, other].map(({ mayBeTakenAt }) => mayBeTakenAt < NEVER)
  if (oneCanWait !== otherCanWait) return oneCanWait ? 1 : -1
  return one.startsAt - other.startsAt
}

function newBucket<E>(startsAt: number): Bucket<E> {
  return {
    startsAt,
    mayBeTakenAt: Number.NEGATIVE_INFINITY,
    isCoarse: false,
    first: undefined,
    last: undefined,
  }
}

function bucketOf<E>(
  shelves: readonly Map<number, Bucket<E>>[],
  level: number,
  number: number,
): Bucket<E> | undefined {
  return shelves[level]?.get(number)
}

/** The logarithm of the width of the bucket for an entry that is due, or has slack, this many milliseconds from now. */
function levelOf(spanMs: number): number {
  const span = Math.min(Math.max(spanMs, 1), LONGEST_MS)
  return Math.max(0, LOG_OF_LONGEST - SHARE_LOG - Math.clz32(span))
}

function link<E extends WheelEntry<E>>(entry: E, bucket: Bucket<E>): void {
  entry.bucket = bucket
  entry.previous = bucket.last
  if (bucket.last === undefined) bucket.first = entry
  else bucket.last.next = entry
  bucket.last = entry
}

function unlink<E extends WheelEntry<E>>(entry: E, bucket: Bucket<E>): void {
  const { previous, next } = entry
  if (previous === undefined) bucket.first = next
  else previous.next = next
  if (next === undefined) bucket.last = previous
  else next.previous = previous
  entry.previous = undefined
  entry.next = undefined
}

const NEVER = Number.POSITIVE_INFINITY
/** A bucket is a sixteenth (2 to the power of 4) as wide as the time until it starts. */
const SHARE_LOG = 4
/** Beyond this time (24.8 days, the longest timer of Node.js) buckets do not get wider. */
const LONGEST_MS = 2 ** 31
const LOG_OF_LONGEST = 31
