import type { InspectedRoom, Owner } from '../index.ts'
import { lateMsOf } from '../room-watch/renewal-facts.ts'
import type { RoomWatch } from '../room-watch/room-watch.ts'
import { electionsIn, isPartOf, modeOf, withoutObservers } from '../room-watch/ticket-facts.ts'
import { type TreeLine, treeOf } from './key-tree.ts'
import { onePage, type PageNumber, ROW_TEXT } from './one-page.ts'
import { type ListOrder, ordered, type Rank } from './order.ts'
import { holderJson, ownerText, sampleJson } from './ticket-json.ts'
import type { GroupRowJson, KeyRowJson, KeysJson, RowJson } from './view-json.ts'

export interface KeysRequest {
  readonly view: 'keys'
  readonly search: string
  readonly show: 'all' | 'contended' | 'elections'
  readonly order: ListOrder
  readonly page: PageNumber
  /** The groups of the tree whose keys are listed; `undefined` for a list without groups. */
  readonly open: readonly string[] | undefined
}

/** One page of the keys, as a list or as a tree. */
export function keysView(watch: RoomWatch, { search, show, order, page, open }: KeysRequest): KeysJson {
  const { rooms } = watch.snapshot
  const elections = knownElections(rooms)
  const wanted = search.toLowerCase()
  const isOf = ownedBy(wanted)
  const found = rooms.filter((room) => {
    // The mark and the vacancy of an election are part of the election's row.
    if (isPartOf(elections, room.key)) return false
    if (show === 'contended' && room.queue.length === 0) return false
    if (show === 'elections' && !elections.has(room.key)) return false
    return wanted === '' || room.key.toLowerCase().includes(wanted) || isOf(room)
  })
  const matching = found.map((room) => withoutObservers(elections, room))
  const observers: Rank<InspectedRoom> = ({ key }) => elections.get(key) ?? 0
  const sorted = ordered(matching, { ...RANKS, observers }, order)
  const keyRow = (room: InspectedRoom, depth: number): KeyRowJson => ({
    tag: 'key',
    depth,
    ...rowJson(watch, room),
    isElection: elections.has(room.key),
    observers: elections.get(room.key) ?? 0,
  })
  if (open === undefined) return onePage(sorted, page, (room) => keyRow(room, 0))
  const rowOf = (line: TreeLine): KeyRowJson | GroupRowJson =>
    line.tag === 'key' ? keyRow(line.room, line.depth) : groupRow(watch, line)
  return { ...onePage(treeOf(sorted, new Set(open)), page, rowOf), matching: matching.length }
}

function groupRow(
  watch: RoomWatch,
  { path, depth, isOpen, rooms }: Extract<TreeLine, { tag: 'group' }>,
): GroupRowJson {
  const isLate = ({ holders }: InspectedRoom): boolean =>
    holders.some((holder) => lateMsOf(holder, watch.renewalsOf(holder.id)) !== undefined)
  return {
    tag: 'group',
    key: path,
    depth,
    isOpen,
    keys: rooms.length,
    late: rooms.filter(isLate).length,
    waiting: rooms.reduce((sum, { queue }) => sum + queue.length, 0),
    longestWaitMs: rooms.reduce((longest, room) => Math.max(longest, longestWaitMs(room)), 0),
  }
}

export function rowJson(watch: RoomWatch, room: InspectedRoom): RowJson {
  return {
    key: room.key,
    holding: room.holders.length,
    waiting: room.queue.length,
    closedMs: room.closedMs,
    longestWaitMs: longestWaitMs(room),
    lastFence: room.holders.at(-1)?.fence.toString(),
    holders: room.holders
      .slice(0, ROW_HOLDERS)
      .map((holder) => holderJson(holder, { longest: ROW_TEXT, renewals: watch.renewalsOf(holder.id) })),
    trend: watch.historyOf(room.key)?.samples.slice(-TREND_SAMPLES).map(sampleJson) ?? [],
  }
}

const RANKS: Readonly<Record<string, Rank<InspectedRoom>>> = {
  key: ({ key }) => key,
  holder: ({ holders: [first] }) => first && ownerText(first.owner),
  mode: ({ holders: [first] }) => first && modeOf(first),
  held: ({ holders: [first] }) => first?.heldMs,
  // The least time first.
  left: ({ holders: [first] }) => first && -first.remainingMs,
  fence: ({ holders: [first] }) => first?.fence,
  waiting: ({ queue }) => queue.length,
  longest: ({ queue: [first] }) => first?.waitedMs,
}

/** The queue is in order of arrival, so its first waiter waits longest. */
function longestWaitMs({ queue }: InspectedRoom): number {
  return queue[0]?.waitedMs ?? 0
}

/** Found once for each snapshot, as all viewers share it. */
export function knownElections(rooms: readonly InspectedRoom[]): ReadonlyMap<string, number> {
  const known = electionsOf.get(rooms) ?? electionsIn(rooms)
  electionsOf.set(rooms, known)
  return known
}

const electionsOf = new WeakMap<readonly InspectedRoom[], ReadonlyMap<string, number>>()

/** Whether an owner in the room contains the text. Most rooms have the same few owners, so each owner is parsed once. */
function ownedBy(wanted: string): (room: InspectedRoom) => boolean {
  const known = new Map<Owner, boolean>()
  const isWanted = ({ owner }: { readonly owner: Owner }): boolean => {
    const answer = known.get(owner) ?? ownerText(owner).toLowerCase().includes(wanted)
    known.set(owner, answer)
    return answer
  }
  return ({ holders, queue }) => holders.some(isWanted) || queue.some(isWanted)
}

const ROW_HOLDERS = 3
const TREND_SAMPLES = 60
