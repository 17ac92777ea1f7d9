import type { Ticket } from '../contract/store.ts'

/**
 * Waiters for one key that the server or the file remembers by one entry; see redis/lua/renew.lua and sqlite/sql/schema.sql. Here “the
 * server” is that of Redis or the lock file.
 */
export interface WaitGroup {
  readonly name: string
  readonly key: string
  /** One of its waiters. All are on the same terms. */
  readonly one: Ticket
  /** How many waiters the server has said it has added. */
  size: number
  /** How many waiters the server was asked to add, where it does not add all of them at once. */
  asked: number
  /** A round is over when every waiter of the group was to be renewed once more. */
  round: number
  seenInRound: number
  /** When the last round was over, by `performance.now()`. */
  roundEndedAt: number
  /** Nobody may rely on it: a waiter has left it, or the server may have added a waiter without an answer, or does not know it. */
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
  /** Undefined until a ticket waits: most processes renew leases and never wait, and a look takes longer than to read a lease. */
  #waiters: WeakMap<Ticket, Membership> | undefined
  readonly #prefix: string
  /** The smallest number of waiters that becomes a group. */
  readonly least: number
  #named = 0

  /** `prefix`: how the names of the groups begin. No other process may use it. */
  constructor(prefix: string, least: number) {
    this.#prefix = prefix
    this.least = least
  }

  /** A group without waiters, for those on the terms of this one; see {@link join}. */
  newGroup(one: Ticket): WaitGroup {
    this.#named += 1
    const name = `${this.#prefix}/${this.#named}`
    const counts = { size: 0, asked: 0, round: 0, seenInRound: 0, roundEndedAt: 0, open: 0 }
    return { name, key: one.key, one, ...counts, isOver: false }
  }

  /** The server has just said that the ticket waits, in no group. */
  waits(ticket: Ticket): void {
    this.#waiters ??= new WeakMap()
    this.#waiters.set(ticket, ALONE)
  }

  /** The server has just said that the ticket does not wait. */
  ended(ticket: Ticket): void {
    this.#waiters?.delete(ticket)
  }

  /** The server has just said that the ticket waits, and has added it to the group. */
  join(ticket: Ticket, group: WaitGroup): void {
    group.size += 1
    group.roundEndedAt = performance.now()
    this.#waiters ??= new WeakMap()
    this.#waiters.set(ticket, { group, round: -1 })
  }

  /** Undefined if all tickets are asked about one by one. */
  plan(tickets: readonly Ticket[]): RenewalPlan | undefined {
    const waiters = this.#waiters
    if (waiters === undefined) return undefined
    const now = performance.now()
    const groups = new Map<WaitGroup, number[]>()
    const crowds = new Map<string, number[]>()
    const single: number[] = []
    for (const [at, ticket] of tickets.entries()) {
      const waiter = waiters.get(ticket)
      if (waiter === undefined) single.push(at)
      else if (waiter.group !== undefined && this.#isAlive(waiter.group, ticket, now)) {
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

  /**
   * A group whose question is still open stays a group: the server is behind, and to ask it about each waiter would put it behind
   * for good.
   */
  #isAlive({ size, roundEndedAt, isOver, open }: WaitGroup, { patienceMs }: Ticket, now: number): boolean {
    return !isOver && size >= this.least && (open > 0 || now - roundEndedAt < patienceMs)
  }
}

const ALONE: Membership = { group: undefined, round: 0 }

/** Whether the store may remember and answer both waiters alike. */
export function sameTerms(one: Ticket, other: Ticket): boolean {
  return (
    one.ttlMs === other.ttlMs &&
    one.units === other.units &&
    one.limit === other.limit &&
    one.patienceMs === other.patienceMs &&
    one.acceptMs === other.acceptMs &&
    one.minHoldMs === other.minHoldMs &&
    one.lockDelayMs === other.lockDelayMs &&
    one.owner === other.owner
  )
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

/** When a waiter leaves its group, the server is asked about each of the others. */
export const MOST_IN_GROUP = 500
/** A group of more waiters is worth a question of its own. */
const SMALL = 60
/** So many small groups for one key stay as they are. */
const MOST_SMALL = 4

function addTo<K, V>(lists: Map<K, V[]>, key: K, value: V): void {
  const list = lists.get(key)
  if (list === undefined) lists.set(key, [value])
  else list.push(value)
}
