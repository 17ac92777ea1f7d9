import type { Ticket } from '../../../contract/store.ts'

/** Waiters for one key that the server remembers by one entry; see renew.lua. */
export interface WaitGroup {
  readonly name: string
  readonly key: string
  readonly size: number
  /** A round is over when every waiter of the group was to be renewed once more. */
  round: number
  seenInRound: number
  /** When the last round was over, by `performance.now()`. */
  roundEndedAt: number
  /** The server does not know the group, or a waiter has left it. */
  isOver: boolean
  /** How many questions about the group the server has not answered yet. */
  open: number
}

/** How a list of tickets is to be renewed, by the places of the tickets in that list. */
export interface RenewalPlan {
  /** Groups that take one question each. */
  readonly groups: ReadonlyMap<WaitGroup, readonly number[]>
  /** For each key, the waiters that become a group. */
  readonly crowds: ReadonlyMap<string, readonly number[]>
  /** All others, which are asked about one by one. */
  readonly single: readonly number[]
}

interface Membership {
  readonly group: WaitGroup | undefined
  /** The round in which the waiter was last to be renewed. */
  round: number
}

/**
 * Remembers which tickets wait, and in which group. A thousand waiters of a process for one key then cost a few
 * requests every two seconds, and not a thousand entries to rewrite.
 *
 * The server says when a waiter has left its group. There is one exception: a waiter that gave up, and whose release
 * was lost. Then a round of the group does not end in time. So the others make a new group, and the server forgets that
 * waiter.
 */
export class WaitGroups {
  readonly #waiters = new WeakMap<Ticket, Membership>()
  readonly #inbox: string
  /** The smallest number of waiters that becomes a group. */
  readonly least: number
  #named = 0

  constructor(inbox: string, least: number) {
    this.#inbox = inbox
    this.least = least
  }

  newName(): string {
    this.#named += 1
    return `${this.#inbox}/${this.#named}`
  }

  /** The server has just said that the ticket waits, in no group. */
  waits(ticket: Ticket): void {
    this.#waiters.set(ticket, ALONE)
  }

  /** The server has just said that the ticket does not wait. */
  ended(ticket: Ticket): void {
    this.#waiters.delete(ticket)
  }

  /** The server has just said that these tickets for one key wait, as a group. */
  wait(tickets: readonly Ticket[], { name, key }: Pick<WaitGroup, 'name' | 'key'>): void {
    const group = {
      name,
      key,
      size: tickets.length,
      round: 0,
      seenInRound: 0,
      roundEndedAt: performance.now(),
      isOver: tickets.length < this.least,
      open: 0,
    }
    for (const ticket of tickets) this.#waiters.set(ticket, { group, round: -1 })
  }

  /** Undefined if all tickets are asked about one by one. */
  plan(tickets: readonly Ticket[]): RenewalPlan | undefined {
    const now = performance.now()
    const groups = new Map<WaitGroup, number[]>()
    const crowds = new Map<string, number[]>()
    const single: number[] = []
    for (const [at, ticket] of tickets.entries()) {
      const waiter = this.#waiters.get(ticket)
      if (waiter === undefined) single.push(at)
      else if (waiter.group !== undefined && isInTime(waiter.group, ticket, now)) {
        see(waiter, waiter.group, now)
        addTo(groups, waiter.group, at)
      } else addTo(crowds, ticket.key, at)
    }
    mergeSmallGroups(groups, crowds)
    for (const [key, places] of crowds) {
      if (places.length >= this.least) continue
      crowds.delete(key)
      single.push(...places)
    }
    return groups.size === 0 && crowds.size === 0 ? undefined : { groups, crowds, single }
  }
}

const ALONE: Membership = { group: undefined, round: 0 }

/**
 * A group whose question is still open stays a group: the server is behind, and to ask it about each waiter would put it behind
 * for good.
 */
function isInTime({ roundEndedAt, isOver, open }: WaitGroup, { patienceMs }: Ticket, now: number): boolean {
  return !isOver && (open > 0 || now - roundEndedAt < patienceMs / 2)
}

function see(waiter: Membership, group: WaitGroup, now: number): void {
  if (waiter.round === group.round) return
  waiter.round = group.round
  group.seenInRound += 1
  if (group.seenInRound < group.size) return
  group.round += 1
  group.seenInRound = 0
  group.roundEndedAt = now
}

/** Waiters that came one after the other are in many groups for one key. Such groups become one. */
function mergeSmallGroups(groups: Map<WaitGroup, number[]>, crowds: Map<string, number[]>): void {
  if (groups.size <= MOST_SMALL) return
  const small = new Map<string, WaitGroup[]>()
  for (const [group, places] of groups) {
    // The rest of a group that is due in parts would be left over.
    if (group.size <= SMALL && places.length === group.size) addTo(small, group.key, group)
  }
  for (const [key, ofKey] of small) {
    if (ofKey.length <= MOST_SMALL) continue
    for (const group of ofKey) {
      for (const at of groups.get(group) ?? []) addTo(crowds, key, at)
      groups.delete(group)
      group.isOver = true
    }
  }
}

/** A group of more waiters is worth a request of its own. */
const SMALL = 60
/** So many small groups for one key stay as they are. */
const MOST_SMALL = 4

function addTo<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key)
  if (list === undefined) lists.set(key, [value])
  else list.push(value)
}
