import { LONGEST_OWNER, type Owner, parseOwner } from '../base/owner.ts'
import type { HolderView, RoomView, WaiterView } from '../contract/store.ts'
import type { Engine } from '../engine/engine.ts'
import { StoreError } from '../errors.ts'
import { ADMINISTRATION_MS } from './options.ts'

/** A holder, as `locks.peek` and `locks.inspect` show it. */
export interface InspectedHolder extends Omit<HolderView, 'owner'> {
  /** The process that holds. */
  readonly owner: Owner
}

/** A waiter, as `locks.peek` and `locks.inspect` show it. */
export interface InspectedWaiter extends Omit<WaiterView, 'owner'> {
  /** The process that waits. */
  readonly owner: Owner
}

/** The holders and waiters of one key, as `locks.peek` and `locks.inspect` show them. */
export interface InspectedRoom extends Omit<RoomView, 'holders' | 'queue'> {
  /** All who hold the key now: one of a mutex, several of a semaphore or a read lock. */
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

export interface ListedRooms {
  readonly prefix: string
  readonly count: number
  /** Called with each page. A page may be empty, and another one may follow it. */
  readonly onPage: () => void
}

/** All rooms whose key begins with the prefix, in pages of `count`. */
export async function* roomsUnder(
  engine: Engine,
  { prefix, count, onPage }: ListedRooms,
): AsyncGenerator<InspectedRoom, void, void> {
  const inspected = inspector()
  let cursor: string | undefined
  let emptyPages = 0
  do {
    const request = { prefix, cursor, count }
    const page = await engine.ask('inspect', () => engine.store.inspect(request), {
      limitMs: ADMINISTRATION_MS,
    })
    onPage()
    if (page.rooms.length === 0) emptyPages += 1
    if (emptyPages > MOST_EMPTY_PAGES) throw new StoreError('store-refused', ENDLESS)
    for (const room of page.rooms) yield inspected(room)
    cursor = page.next
  } while (cursor !== undefined)
}

/** What the store has of one key. `undefined`: nobody holds it or waits for it, and no lock-delay keeps it closed. */
export async function roomOf(
  engine: Engine,
  key: string,
  { limitMs = ADMINISTRATION_MS, signal }: { readonly limitMs?: number; readonly signal?: AbortSignal } = {},
): Promise<RoomView | undefined> {
  const request = { prefix: key, exact: true, cursor: undefined, count: 1 }
  const { rooms } = await engine.ask('inspect', () => engine.store.inspect(request), { limitMs, key, signal })
  return rooms.find((room) => room.key === key)
}

const MOST_KNOWN = 1000
/** Enough for a thousand million keys of other programs in one Redis. */
const MOST_EMPTY_PAGES = 100_000
const ENDLESS =
  'The keys cannot be listed, because the listing of the store comes to no end. Check what answers there.'
