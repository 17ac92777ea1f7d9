import { type Link, LinkedList } from './linked-list.ts'

/** Where an item stands: in the queue of a group, until it is its turn. */
export interface Place<Item> {
  readonly group: Group<Item>
  readonly link: Link<Item>
}

/** Exists while it is in turn or takes its turn; afterwards nothing of it is left. */
interface Group<Item> {
  /** `undefined`: the group of one single item that belongs to no group. */
  readonly name: string | undefined
  readonly waiting: LinkedList<Item>
  /** Its place among the groups in turn; `undefined` while one of its items takes the turn. */
  inTurn: Link<Group<Item>> | undefined
}

/**
 * Decides which item is next. A group has one turn at a time and its items take it in order of arrival. Groups that
 * have something to do stand in a round: after its turn a group goes to the back, so a group of a million items delays
 * another one by a single turn. Every step is constant time, however many groups and items there are.
 */
export class GroupTurns<Item> {
  readonly #groups = new Map<string, Group<Item>>()
  readonly #round = new LinkedList<Group<Item>>()
  #size = 0

  /** How many items wait. */
  get size(): number {
    return this.#size
  }

  /** No item of this group waits or takes a turn. */
  isFree(name: string | undefined): boolean {
    return name === undefined || !this.#groups.has(name)
  }

  join(item: Item, name: string | undefined): Place<Item> {
    const group = (name === undefined ? undefined : this.#groups.get(name)) ?? this.#open(name)
    this.#size += 1
    return { group, link: group.waiting.append(item) }
  }

  /** Begins the turn of the next item; its group has no other turn until {@link end}. */
  begin(): Item | undefined {
    const group = this.#round.shift()
    if (group === undefined) return undefined
    group.inTurn = undefined
    this.#size -= 1
    return group.waiting.shift()
  }

  /** Ends a turn that was begun. */
  end({ group }: Place<Item>): void {
    if (group.waiting.isEmpty) this.#forget(group)
    else group.inTurn = this.#round.append(group)
  }

  /** Gives up waiting for a turn that was not begun. */
  leave({ group, link }: Place<Item>): void {
    group.waiting.remove(link)
    this.#size -= 1
    if (group.inTurn === undefined || !group.waiting.isEmpty) return
    this.#round.remove(group.inTurn)
    this.#forget(group)
  }

  #open(name: string | undefined): Group<Item> {
    const group: Group<Item> = { name, waiting: new LinkedList(), inTurn: undefined }
    group.inTurn = this.#round.append(group)
    if (name !== undefined) this.#groups.set(name, group)
    return group
  }

  #forget({ name }: Group<Item>): void {
    if (name !== undefined) this.#groups.delete(name)
  }
}
