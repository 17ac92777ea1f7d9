import { LONGEST_KEY } from '../base/arguments.ts'
import { shortened } from '../base/text.ts'
import { UNLIMITED } from '../contract/index.ts'
import type { InspectedHolder, InspectedRoom, InspectedWaiter, Owner } from '../index.ts'

/** A holder or a waiter as `inspect` shows it. */
export type InspectedTicket = InspectedHolder | InspectedWaiter

/** `mutex`, `shared`, or how many permits of how many. */
export function modeOf({ units, limit }: Pick<InspectedTicket, 'units' | 'limit'>): string {
  if (limit === 1) return 'mutex'
  return limit === UNLIMITED ? 'shared' : `${units} of ${limit}`
}

/** The room with all texts cut to the longest that Holdfast writes: a row of another program may hold megabytes. */
export function boundedRoom(room: InspectedRoom): InspectedRoom {
  const { key, holders, queue } = room
  // Hardly any room of a look has to be copied.
  if (isBounded({ id: key, owner: {} }) && holders.every(isBounded) && queue.every(isBounded)) return room
  const own = <T extends InspectedTicket>(ticket: T): T => ({
    ...ticket,
    id: bounded(ticket.id, LONGEST_NAME),
    owner: boundedOwner(ticket.owner),
  })
  return { ...room, key: bounded(key, LONGEST_NAME), holders: holders.map(own), queue: queue.map(own) }
}

function isBounded({ id, owner }: Pick<InspectedTicket, 'id' | 'owner'>): boolean {
  return id.length <= LONGEST_NAME && (owner.text ?? '').length <= LONGEST_TEXT
}

function boundedOwner({ text, ...facts }: Owner): Owner {
  return text === undefined ? facts : { text: bounded(text, LONGEST_TEXT) }
}

function bounded(text: string, most: number): string {
  if (text.length <= most) return text
  // A copy, as V8 keeps the whole text in memory for a slice of it.
  return Buffer.from(shortened(text, SHOWN_OF_LONGER)).toString()
}

/** As long as a key may be; ids are shorter. */
const LONGEST_NAME: number = LONGEST_KEY
/**
 * The longest text that is read if another program has written it instead of an owner. Nothing can be read from a
 * longer one anyway.
 */
const LONGEST_TEXT = 16_384
const SHOWN_OF_LONGER = 1000

/**
 * The keys that are elections, each with its number of observers. Besides the key itself, a leader holds a mark named after it
 * (`LEADER_MARK`). Observers of the election wait on the mark as readers. A key of a user may end like a mark, too: it counts as
 * one only where the same process holds the key that it would belong to. While nobody leads, the observers hold the vacancy
 * together (`VACANCY`). An election without a leader and without candidates is known by its vacancy alone, and has that name here.
 */
export function electionsIn(rooms: readonly InspectedRoom[]): ReadonlyMap<string, number> {
  const observers = new Map<string, number>()
  const parts = rooms.filter(({ key }) => key.endsWith(LEADER_MARK) || key.endsWith(VACANCY))
  if (parts.length === 0) return observers
  const byKey = new Map(rooms.map((room) => [room.key, room]))
  for (const { key, holders, queue } of parts) {
    if (!key.endsWith(LEADER_MARK)) continue
    const bare = key.slice(0, -LEADER_MARK.length)
    const leaders = byKey.get(bare)?.holders.filter(({ limit }) => limit === 1) ?? []
    const isLed = [...holders, ...queue].some(
      ({ limit, owner }) => limit === 1 && leaders.some((leader) => isSameProcess(leader.owner, owner)),
    )
    if (isLed) observers.set(bare, queue.length)
  }
  for (const room of parts) {
    if (!isVacancy(room)) continue
    const bare = room.key.slice(0, -VACANCY.length)
    // A candidate that has just won has no mark yet.
    const name = observers.has(bare) || byKey.has(bare) ? bare : room.key
    observers.set(name, (observers.get(name) ?? 0) + room.holders.length)
  }
  return observers
}

/** Whether the key is the mark or the vacancy of an election, which is part of the election's row. */
export function isPartOf(elections: ReadonlyMap<string, number>, key: string): boolean {
  return [LEADER_MARK, VACANCY].some((end) => key.endsWith(end) && elections.has(key.slice(0, -end.length)))
}

/**
 * Whether the holders of this key are marks that are kept for a time and not renewed. `once` keeps one for work that is done. A rate limit keeps
 * one for each call that it has let through, under `:<limit>:<key>`. The end of a mark is no loss.
 */
export function isKeptForATime(key: string): boolean {
  return key.endsWith(DONE_MARK) || /^:[^:]+:/.test(key)
}

/** Whether the room is held by observers of an election that nobody leads. */
export function isVacancy({
  key,
  holders,
  queue,
}: Pick<InspectedRoom, 'key' | 'holders' | 'queue'>): boolean {
  return (
    key.endsWith(VACANCY) &&
    holders.length > 0 &&
    queue.length === 0 &&
    holders.every(({ limit }) => limit === UNLIMITED)
  )
}

/** Whether the row of the election is that of its vacancy: nobody leads it, and nobody stands for it. */
export function isVacant(elections: ReadonlyMap<string, number>, room: InspectedRoom): boolean {
  return elections.has(room.key) && isVacancy(room)
}

/** The room as it counts: the observers of an election hold its vacancy, and lead nothing. */
export function withoutObservers(elections: ReadonlyMap<string, number>, room: InspectedRoom): InspectedRoom {
  return isVacant(elections, room) ? { ...room, holders: [] } : room
}

function isSameProcess(one: Owner, other: Owner): boolean {
  return (
    one.host === other.host && one.pid === other.pid && one.label === other.label && one.text === other.text
  )
}

const LEADER_MARK = '#leader'
const VACANCY = '#vacant'
/** Of a key whose work `once` has done, as in primitives/once.ts. */
const DONE_MARK = '#done'
