/**
 * Values by id, in order of insertion: the part of a Map that a room needs, for one ticket or for thousands.
 *
 * A Map would be correct, but slow and large. An empty Map takes 200 bytes, and a room would need three of them. To find
 * its first entry, a Map steps over all removed ones: with 1,000 waiters that is half the cost of a hand-over.
 */
export class Roster<T> {
  #first: RosterEntry<T> | undefined
  #last: RosterEntry<T> | undefined
  #size = 0
  /** Present only above `FEW` entries: among fewer, a look at each is faster. */
  #index: Map<string, RosterEntry<T>> | undefined

  get size(): number {
    return this.#size
  }

  /** The head of the linked list. To follow `next` is several times as fast as the iterators. */
  get first(): RosterEntry<T> | undefined {
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
   * During the iteration the entry that was yielded last may be deleted, and entries may be added. One case is excluded: if
   * that entry was the last of the list and is deleted, entries that are added afterwards are not yielded.
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

  #find(id: string): RosterEntry<T> | undefined {
    if (this.#index !== undefined) return this.#index.get(id)
    for (let entry = this.#first; entry !== undefined; entry = entry.next) if (entry.id === id) return entry
    return undefined
  }

  #append(id: string, value: T): void {
    const entry: RosterEntry<T> = { id, value, previous: this.#last, next: undefined }
    if (this.#last === undefined) this.#first = entry
    else this.#last.next = entry
    this.#last = entry
    this.#size += 1
    if (this.#index !== undefined) this.#index.set(id, entry)
    else if (this.#size > FEW) this.#index = this.#indexed()
  }

  #indexed(): Map<string, RosterEntry<T>> {
    const index = new Map<string, RosterEntry<T>>()
    for (let entry = this.#first; entry !== undefined; entry = entry.next) index.set(entry.id, entry)
    return index
  }
}

/** A deleted entry keeps its `next`, so a loop may delete the entry that it stands on. */
export interface RosterEntry<T> {
  readonly id: string
  value: T
  previous: RosterEntry<T> | undefined
  next: RosterEntry<T> | undefined
}

const FEW = 8
