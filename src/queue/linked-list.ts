/** A value's place in a list. */
export interface Link<Value> {
  readonly value: Value
  previous: Link<Value> | undefined
  next: Link<Value> | undefined
}

/**
 * First in, first out, and anything can leave from the middle, each in constant time. Not an array (leaving is linear)
 * and not a `Set` (finding its first entry walks over the holes that deleted ones left).
 */
export class LinkedList<Value> {
  #first: Link<Value> | undefined
  #last: Link<Value> | undefined

  get isEmpty(): boolean {
    return this.#first === undefined
  }

  append(value: Value): Link<Value> {
    const link: Link<Value> = { value, previous: this.#last, next: undefined }
    if (this.#last === undefined) this.#first = link
    else this.#last.next = link
    this.#last = link
    return link
  }

  /** The link must be in this list. */
  remove(link: Link<Value>): void {
    if (link.previous === undefined) this.#first = link.next
    else link.previous.next = link.next
    if (link.next === undefined) this.#last = link.previous
    else link.next.previous = link.previous
  }

  /** Takes the first value out. */
  shift(): Value | undefined {
    const first = this.#first
    if (first !== undefined) this.remove(first)
    return first?.value
  }
}
