import type { Ticket } from '../../../contract/store.ts'

/** Waiters for one key that the server remembers by one entry; see renew.lua. */
export interface WaitGroup {
  readonly name: string
  /** How many of its waiters the server knows. */
  readonly size: number
}

/** How a list of tickets is to be renewed. Each has the places of its tickets in that list. */
export interface RenewalPlan {
  /** Groups that are complete: one question for each. */
  readonly groups: ReadonlyMap<WaitGroup, readonly number[]>
  /** Waiters for one key that may become a group, by the key. */
  readonly crowds: readonly (readonly number[])[]
  /** All others, which are asked about one by one. */
  readonly single: readonly number[]
}

/**
 * Remembers which tickets wait, and in which group. A thousand waiters of a process for one key cost a few requests each two
 * seconds then, and not a thousand entries to rewrite.
 *
 * A group is complete as long as all its waiters are to be renewed together, and its size never grows. A waiter that gave up or was
 * admitted is missing in the list, so the others are asked about one by one, in a new group.
 */
export class WaitGroups {
  /** `undefined`: the ticket waits, in no group. */
  readonly #waiters = new WeakMap<Ticket, WaitGroup | undefined>()
  readonly #inbox: string
  readonly #least: number
  #named = 0

  /** `least`: of how many waiters a group is made at least. */
  constructor(inbox: string, least: number) {
    this.#inbox = inbox
    this.#least = least
  }

  /** The ticket waits, as the server has just said. */
  waits(ticket: Ticket, group?: WaitGroup): void {
    this.#waiters.set(ticket, group)
  }

  newName(): string {
    this.#named += 1
    return `${this.#inbox}/${this.#named}`
  }

  /** Undefined if all tickets are asked about one by one. */
  plan(tickets: readonly Ticket[]): RenewalPlan | undefined {
    const groups = new Map<WaitGroup, number[]>()
    const waiting = new Map<string, number[]>()
    for (const [at, ticket] of tickets.entries()) {
      if (!this.#waiters.has(ticket)) continue
      const group = this.#waiters.get(ticket)
      if (group === undefined) addTo(waiting, ticket.key, at)
      else addTo(groups, group, at)
    }
    if (groups.size === 0 && waiting.size === 0) return undefined
    for (const [group, places] of groups) {
      if (places.length === group.size) continue
      groups.delete(group)
      for (const at of places) addTo(waiting, (tickets[at] as Ticket).key, at)
    }
    const crowds = [...waiting.values()].filter((places) => places.length >= this.#least)
    if (groups.size === 0 && crowds.length === 0) return undefined
    const together = new Set([...groups.values(), ...crowds].flat())
    return { groups, crowds, single: [...tickets.keys()].filter((at) => !together.has(at)) }
  }
}

function addTo<K>(lists: Map<K, number[]>, key: K, at: number): void {
  const list = lists.get(key)
  if (list === undefined) lists.set(key, [at])
  else list.push(at)
}
