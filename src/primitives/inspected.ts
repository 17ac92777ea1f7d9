import type { HolderView, RoomView, WaiterView } from '../contract/store.ts'
import type { Engine } from '../engine/engine.ts'
import { ADMINISTRATION_MS } from './options.ts'

/** The process of a ticket, for people. No decision may depend on it: another program may write anything here. */
export interface Owner {
  readonly host?: string
  readonly pid?: number
  /** The `label` of its locks. */
  readonly label?: string
  /** The `value` that a leader gave to `campaign`. */
  readonly value?: string
  /** The text in the store, if another program wrote it and none of the fields above can be read from it. */
  readonly text?: string
}

/** A holder, as `locks.peek` and `locks.inspect` show it. */
export interface InspectedHolder extends Omit<HolderView, 'owner'> {
  readonly owner: Owner
}

/** A waiter, as `locks.peek` and `locks.inspect` show it. */
export interface InspectedWaiter extends Omit<WaiterView, 'owner'> {
  readonly owner: Owner
}

/** The holders and waiters of one key, as `locks.peek` and `locks.inspect` show them. */
export interface InspectedRoom extends Omit<RoomView, 'holders' | 'queue'> {
  readonly holders: readonly InspectedHolder[]
  /** In order of arrival. */
  readonly queue: readonly InspectedWaiter[]
}

/** Reads what a store shows. Tickets of one process have the same owner, so it is parsed once for all of them. */
export function inspector(): (room: RoomView) => InspectedRoom {
  const known = new Map<string, Owner>()
  const ownerOf = (text: string): Owner => {
    const owner = known.get(text) ?? parseOwner(text)
    if (known.size < MOST_KNOWN && text.length <= LONGEST_OWNER) known.set(text, owner)
    return owner
  }
  return ({ key, holders, queue, closedMs }) => ({
    key,
    holders: holders.map((holder) => ({ ...holder, owner: ownerOf(holder.owner) })),
    queue: queue.map((waiter) => ({ ...waiter, owner: ownerOf(waiter.owner) })),
    closedMs,
  })
}

/** What the store has of one key. `undefined`: nobody holds it or waits for it, and no lock-delay keeps it closed. */
export async function roomOf(
  engine: Engine,
  key: string,
  limitMs: number = ADMINISTRATION_MS,
): Promise<RoomView | undefined> {
  const request = { prefix: key, exact: true, cursor: undefined, count: 1 }
  const { rooms } = await engine.ask('inspect', () => engine.store.inspect(request), limitMs, key)
  return rooms.find((room) => room.key === key)
}

/** `host:pid (label)`, or the text of another program. */
export function ownerName({ host, pid, label, text }: Owner): string {
  return text ?? `${host ?? '?'}:${pid ?? '?'}${label === undefined ? '' : ` (${label})`}`
}

export function parseOwner(text: string): Owner {
  const { host, pid, label, value } = parsed(text)
  const owner: Owner = {
    ...(typeof host === 'string' ? { host } : {}),
    ...(typeof pid === 'number' ? { pid } : {}),
    ...(typeof label === 'string' ? { label } : {}),
    ...(typeof value === 'string' ? { value } : {}),
  }
  return Object.keys(owner).length === 0 ? { text } : owner
}

function parsed(text: string): Partial<Record<string, unknown>> {
  if (text.length > LONGEST_OWNER) return {}
  try {
    const facts: unknown = JSON.parse(text)
    return typeof facts === 'object' && facts !== null ? (facts as Record<string, unknown>) : {}
  } catch {
    return {}
  }
}

/** Longer than an owner that Holdfast writes: a host, a label and a value, where JSON may make six characters of one. */
const LONGEST_OWNER = 16_384
const MOST_KNOWN = 1000
