/**
 * Values by id, in the order they came: what a room needs of a Map, for rooms that hold one ticket or thousands.
 *
 * A Map would do, but is slow and large here: an empty one takes 200 bytes, of which a room would need three, and to find
 * its first entry it steps over all that were removed before it (with 1,000 waiters half of the cost of a hand-over).
 */
export class Roster<T> {
  #first: Entry<T> | undefined
  #last: Entry<T> | undefined
  #size = 0
  /** Only for many: up to a few are found sooner by looking at each. */
  #index: Map<string, Entry<T>> | undefined

  get size(): number {
    return this.#size
  }

  /** Where to begin to go through the entries by their `next`: several times as fast as the iterators. */
  get first(): Entry<T> | undefined {
    return this.#first
  }

  get(id: string): T | undefined {
    return this.#find(id)?.value
  }

  has(id: string): boolean {
    return this.#find(id) !== undefined
  }

  /** An id that is there already keeps its place. */
  set(id: string, value: T): void {
    const present = this.#find(id)
    if (present === undefined) this.#append(id, value)
    else present.value = value
  }

  delete(id: string): boolean {
    const entry = this.#find(id)
    if (entry === undefined) return false
    const { previous, next } = entry
    if (previous === undefined) this.#first = next
    else previous.next = next
    if (next === undefined) this.#last = previous
    else next.previous = previous
    this.#size -= 1
    if (this.#size === 0) this.#index = undefined
    else this.#index?.delete(id)
    return true
  }

  /**
   * While it goes on, the entry that was given last may be deleted, and others may be added – but not after that one was
   * deleted, had it been the last of all: these are not given.
   */
  *[Symbol.iterator](): Generator<[string, T], void, void> {
    for (let entry = this.#first; entry !== undefined; entry = entry.next) yield [entry.id, entry.value]
  }

  *keys(): Generator<string, void, void> {
    for (let entry = this.#first; entry !== undefined; entry = entry.next) yield entry.id
  }

  *values(): Generator<T, void, void> {
    for (let entry = this.#first; entry !== undefined; entry = entry.next) yield entry.value
  }

  #find(id: string): Entry<T> | undefined {
    if (this.#index !== undefined) return this.#index.get(id)
    for (let entry = this.#first; entry !== undefined; entry = entry.next) if (entry.id === id) return entry
    return undefined
  }

  #append(id: string, value: T): void {
    const entry: Entry<T> = { id, value, previous: this.#last, next: undefined }
    if (this.#last === undefined) this.#first = entry
    else this.#last.next = entry
    this.#last = entry
    this.#size += 1
    if (this.#index !== undefined) this.#index.set(id, entry)
    else if (this.#size > FEW) this.#index = this.#indexed()
  }

  #indexed(): Map<string, Entry<T>> {
    const index = new Map<string, Entry<T>>()
    for (let entry = this.#first; entry !== undefined; entry = entry.next) index.set(entry.id, entry)
    return index
  }
}

/** Keeps its `next` when it is deleted, so that who goes through may delete the entry at hand. */
export interface Entry<T> {
  readonly id: string
  value: T
  previous: Entry<T> | undefined
  next: Entry<T> | undefined
}

const FEW = 8
