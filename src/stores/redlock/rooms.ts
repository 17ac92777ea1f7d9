import type { HolderView, InspectRequest, RoomView, WaiterView } from '../../contract/store.ts'
import type { RoomRequests } from '../redis/server/room-requests.ts'
import { NO_FENCE } from './quorum.ts'

/** Reads all rooms of one server whose key starts with `prefix`, or only the one whose key is the prefix itself. */
export async function roomsOf(
  requests: RoomRequests,
  { prefix, exact = false }: Pick<InspectRequest, 'prefix' | 'exact'>,
): Promise<readonly RoomView[]> {
  // SCAN may find a key twice. Counted twice, a holder on one server would have two votes.
  const rooms = new Map<string, RoomView>()
  let cursor: string | undefined
  do {
    const page = await requests.inspect({ prefix, exact, cursor, count: PAGE })
    for (const room of page.rooms) rooms.set(room.key, room)
    cursor = page.next
  } while (cursor !== undefined)
  return [...rooms.values()]
}

/**
 * Merges the views of the servers, in order of the keys. A ticket that holds on a quorum is a holder. A ticket that holds on
 * fewer servers is a waiter.
 */
export function mergeRooms(
  lists: readonly (readonly RoomView[])[],
  { majority, fences }: { readonly majority: number; readonly fences: boolean },
): readonly RoomView[] {
  const byKey = new Map<string, RoomView[]>()
  for (const room of lists.flat()) byKey.set(room.key, [...(byKey.get(room.key) ?? []), room])
  return Array.from(byKey, ([key, rooms]) => mergeRoom(key, rooms, { majority, fences }))
    .filter(({ holders, queue, closedMs }) => holders.length + queue.length > 0 || closedMs > 0)
    .sort((one, other) => (one.key < other.key ? -1 : 1))
}

function mergeRoom(
  key: string,
  rooms: readonly RoomView[],
  { majority, fences }: { readonly majority: number; readonly fences: boolean },
): RoomView {
  const holds = groupById(rooms.flatMap(({ holders }) => holders))
  const waits = groupById(rooms.flatMap(({ queue }) => queue.map((waiter, place) => ({ ...waiter, place }))))
  const holders: HolderView[] = []
  const queue: (WaiterView & { readonly place: number })[] = []
  for (const views of holds.values()) {
    const holder = views.length >= majority ? mergeHolder(views, { majority, fences }) : undefined
    if (holder !== undefined) holders.push(fences ? holder : { ...holder, fence: NO_FENCE })
  }
  for (const [id, views] of waits) {
    if (!holders.some((holder) => holder.id === id)) queue.push(mergeWaiter(views))
  }
  // A ticket with some votes that waits nowhere: its process asks at this moment, or has died while asking.
  for (const [id, [view]] of holds) {
    if (view === undefined || view.state === 'leaving') continue
    if (holders.some((holder) => holder.id === id) || waits.has(id)) continue
    const { units, limit, owner, heldMs } = view
    queue.push({ id, units, limit, owner, waitedMs: heldMs, place: 0 })
  }
  holders.sort((one, other) => (one.fence < other.fence ? -1 : 1))
  queue.sort((one, other) => one.place - other.place || other.waitedMs - one.waitedMs)
  const closings = rooms.map(({ closedMs }) => closedMs).sort((one, other) => other - one)
  return {
    key,
    holders,
    queue: queue.map(({ place, ...waiter }) => waiter),
    closedMs: closings[majority - 1] ?? 0,
  }
}

/** A ticket holds until it has lost its quorum: for as long as the vote that lasts as the quorum-th longest. */
function mergeHolder(
  views: readonly HolderView[],
  { majority, fences }: { readonly majority: number; readonly fences: boolean },
): HolderView {
  const longest = [...views].sort((one, other) => other.remainingMs - one.remainingMs)
  const counted = (state: HolderView['state']): number => views.filter((view) => view.state === state).length
  const given = views.map(({ fence }) => fence).sort((one, other) => (one < other ? -1 : 1))
  const agreed = given.find((fence) => given.filter((other) => other === fence).length >= majority)
  // The ticket has no lease before a quorum knows its fence. The fence of a single server may never become that.
  const isHeld = counted('held') >= majority && (agreed !== undefined || !fences)
  const state = isHeld ? 'held' : counted('leaving') > 0 ? 'leaving' : 'offered'
  const view = longest[majority - 1] as HolderView
  const heldMs = Math.min(...views.map((one) => one.heldMs))
  return { ...view, state, heldMs, fence: agreed ?? (given.at(-1) as bigint) }
}

function mergeWaiter(views: readonly (WaiterView & { place: number })[]): WaiterView & { place: number } {
  const places = views.map(({ place }) => place).sort((one, other) => one - other)
  const waitedMs = Math.max(...views.map((view) => view.waitedMs))
  return { ...(views[0] as WaiterView), waitedMs, place: places[places.length >> 1] ?? 0 }
}

function groupById<T extends { readonly id: string }>(views: readonly T[]): Map<string, T[]> {
  const groups = new Map<string, T[]>()
  for (const view of views) groups.set(view.id, [...(groups.get(view.id) ?? []), view])
  return groups
}

const PAGE = 1000
