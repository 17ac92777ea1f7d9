import { shortened } from '../base/text.ts'
import { UNLIMITED } from '../contract/index.ts'
import type { HolderView, RoomView, WaiterView } from '../index.ts'

/** A holder or a waiter as `inspect` shows it. */
export type TicketView = HolderView | WaiterView

export interface OwnerFacts {
  readonly host: string
  readonly pid: number
  readonly label?: string
}

/** `mutex`, `shared`, or how many permits of how many. */
export function modeOf({ units, limit }: Pick<TicketView, 'units' | 'limit'>): string {
  if (limit === 1) return 'mutex'
  return limit === UNLIMITED ? 'shared' : `${units} of ${limit}`
}

/** `undefined` where another program wrote the text. */
export function ownerFactsOf(owner: string): OwnerFacts | undefined {
  const { host, pid, label } = parsed(owner)
  if (typeof host !== 'string' || typeof pid !== 'number') return undefined
  return { host, pid, ...(typeof label === 'string' ? { label } : {}) }
}

/** The `value` that a leader publishes. */
export function leaderValueOf(owner: string): string | undefined {
  const { value } = parsed(owner)
  return typeof value === 'string' ? value : undefined
}

function parsed(owner: string): Partial<Record<string, unknown>> {
  if (owner.length > LONGEST_OWNER) return {}
  try {
    const facts: unknown = JSON.parse(owner)
    return typeof facts === 'object' && facts !== null ? (facts as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}

/** The room with all texts cut to the longest that Holdfast writes: a row of another program may hold megabytes. */
export function boundedRoom(room: RoomView): RoomView {
  const { key, holders, queue } = room
  // Hardly any room of a look has to be copied.
  if (isBounded({ id: key, owner: '' }) && holders.every(isBounded) && queue.every(isBounded)) return room
  const own = <T extends TicketView>(ticket: T): T => ({
    ...ticket,
    id: bounded(ticket.id, LONGEST_NAME),
    owner: bounded(ticket.owner, LONGEST_OWNER),
  })
  return { ...room, key: bounded(key, LONGEST_NAME), holders: holders.map(own), queue: queue.map(own) }
}

function isBounded({ id, owner }: Pick<TicketView, 'id' | 'owner'>): boolean {
  return id.length <= LONGEST_NAME && owner.length <= LONGEST_OWNER
}

function bounded(text: string, most: number): string {
  if (text.length <= most) return text
  // A copy, as V8 keeps the whole text in memory for a slice of it.
  return Buffer.from(shortened(text, SHOWN_OF_LONGER)).toString()
}

/** As long as a key may be; ids are shorter. */
const LONGEST_NAME = 1024
/** Longer than an owner that Holdfast writes: a host, a label and a value, where JSON may make six characters of one. */
const LONGEST_OWNER = 16_384
const SHOWN_OF_LONGER = 1000

/**
 * The keys that are elections, each with its number of watchers. Besides the key itself, a leader holds a mark named after it
 * (`LEADER_MARK`). Watchers of the election wait on the mark as readers.
 */
export function electionsIn(rooms: readonly RoomView[]): ReadonlyMap<string, number> {
  const watchers = new Map<string, number>()
  for (const { key, holders, queue } of rooms) {
    if (!key.endsWith(LEADER_MARK)) continue
    const isLed = [...holders, ...queue].some(({ limit }) => limit === 1)
    if (isLed) watchers.set(key.slice(0, -LEADER_MARK.length), queue.length)
  }
  return watchers
}

export const LEADER_MARK = '#leader'
