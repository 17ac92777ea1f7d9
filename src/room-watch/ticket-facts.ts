import { shortened } from '../base/text.ts'
import { type HolderView, type RoomView, UNLIMITED, type WaiterView } from '../index.ts'

/** A holder or a waiter, as a look at the store shows it. */
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

/** `undefined` where a process that is none of ours wrote the text. */
export function ownerFactsOf(owner: string): OwnerFacts | undefined {
  const { host, pid, label } = parsed(owner)
  if (typeof host !== 'string' || typeof pid !== 'number') return undefined
  return { host, pid, ...(typeof label === 'string' ? { label } : {}) }
}

/** What a leader publishes of itself with `value`. */
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

/** The same room with no text in it that is longer than ours are: a row that somebody else has written may hold megabytes. */
export function boundedRoom(room: RoomView): RoomView {
  const { key, holders, queue } = room
  // Of a look at thousands of rooms hardly any is copied.
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
  // A copy: a part of a text keeps the whole of it in memory.
  return Buffer.from(shortened(text, SHOWN_OF_LONGER)).toString()
}

/** As long as a key may be; ids are shorter. */
const LONGEST_NAME = 1024
/** Longer than what our processes write: a host, a label and a value, each character of which may become six. */
const LONGEST_OWNER = 16_384
const SHOWN_OF_LONGER = 1000

/**
 * The keys that are elections, with how many watch them. A leader holds, besides the key itself, a mark called like it, on which
 * those wait as readers who watch the leadership.
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
