import { shortened } from '../base/text.ts'
import type { InspectedHolder, InspectedRoom, InspectedWaiter, Owner } from '../index.ts'
import { contentionIn } from '../room-watch/contention.ts'
import type { HoldRecord, KeyHistory, KeySample } from '../room-watch/room-history.ts'
import type { RoomWatch } from '../room-watch/room-watch.ts'
import { electionsIn, LEADER_MARK, modeOf } from '../room-watch/ticket-facts.ts'

import type {
  ContentionJson,
  HolderJson,
  HoldJson,
  KeyJson,
  KeysJson,
  OwnerJson,
  RowJson,
  SampleJson,
  ViewJson,
  WaiterJson,
} from './view-json.ts'

/**
 * What the page shows, as JSON: at most one page of keys, foreign texts cut, fences as strings. Durations are as of the
 * look, not of the request.
 */
export type ViewRequest =
  | {
      readonly view: 'keys'
      readonly search: string
      readonly show: 'all' | 'contended' | 'elections'
      readonly sort: SortName
      readonly page: number
    }
  | { readonly view: 'key'; readonly key: string }
  | { readonly view: 'contention' }

export type SortName = 'key' | 'waiting' | 'wait' | 'holding' | 'held' | 'left'

export function isSortName(name: string): name is SortName {
  return Object.hasOwn(SORTS, name)
}

export function viewOf(
  watch: RoomWatch,
  request: ViewRequest,
): SharedJson & (KeysJson | KeyJson | ContentionJson) {
  switch (request.view) {
    case 'keys':
      return { ...sharedView(watch), ...keysView(watch, request) }
    case 'key':
      return { ...sharedView(watch), ...keyView(watch, request.key) }
    case 'contention':
      return { ...sharedView(watch), rows: contentionRows(watch) }
    default:
      return request satisfies never
  }
}

type SharedJson = Omit<ViewJson, 'site'>

/** What every page shows above its own content. */
export function sharedView({ snapshot, totals }: RoomWatch): SharedJson {
  const { at, store, isCut } = snapshot
  return {
    at,
    now: Date.now(),
    store,
    isCut,
    totals: totals.slice(-TREND_LOOKS),
  }
}

function keysView(
  watch: RoomWatch,
  { search, show, sort, page }: Extract<ViewRequest, { view: 'keys' }>,
): KeysJson {
  const { rooms } = watch.snapshot
  const elections = knownElections(rooms)
  const wanted = search.toLowerCase()
  const isOf = ownedBy(wanted)
  const matching = rooms.filter((room) => {
    // The mark of an election is part of the election's row.
    if (isMarkOf(elections, room.key)) return false
    if (show === 'contended' && room.queue.length === 0) return false
    if (show === 'elections' && !elections.has(room.key)) return false
    return wanted === '' || room.key.toLowerCase().includes(wanted) || isOf(room)
  })
  const byRank = SORTS[sort]
  if (byRank !== undefined) matching.sort((one, other) => byRank(other) - byRank(one))
  const pages = Math.max(1, Math.ceil(matching.length / PAGE_ROWS))
  const shown = Math.min(page, pages - 1)
  return {
    matching: matching.length,
    page: shown,
    pages,
    rows: matching.slice(shown * PAGE_ROWS, (shown + 1) * PAGE_ROWS).map((room) => ({
      ...rowJson(watch, room),
      isElection: elections.has(room.key),
      watchers: elections.get(room.key) ?? 0,
    })),
  }
}

function rowJson(watch: RoomWatch, room: InspectedRoom): RowJson {
  return {
    key: room.key,
    holding: room.holders.length,
    waiting: room.queue.length,
    closedMs: room.closedMs,
    longestWaitMs: longestWaitMs(room),
    holders: room.holders.slice(0, ROW_HOLDERS).map((holder) => holderJson(holder, ROW_TEXT)),
    trend: watch.historyOf(room.key)?.samples.slice(-TREND_SAMPLES).map(sampleJson) ?? [],
  }
}

function contentionRows(watch: RoomWatch): ContentionJson['rows'] {
  const rooms = new Map(watch.snapshot.rooms.map((room) => [room.key, room]))
  const historyOf = (key: string): KeyHistory | undefined => watch.historyOf(key)
  const { snapshot, changed } = watch
  return contentionIn({ snapshot, changed, historyOf }, CONTENTION_ROWS).map((contention) => {
    const room = rooms.get(contention.key) ?? { key: contention.key, ...FREE }
    return { ...contention, ...rowJson(watch, room) }
  })
}

function keyView(watch: RoomWatch, key: string): KeyJson {
  const { rooms } = watch.snapshot
  const { holders, queue, closedMs } = rooms.find((room) => room.key === key) ?? FREE
  const elections = knownElections(rooms)
  const { holds = [], samples = [] } = watch.historyOf(key) ?? {}
  return {
    key,
    isElection: elections.has(key),
    watchers: elections.get(key) ?? 0,
    closedMs,
    holding: holders.length,
    waiting: queue.length,
    holders: holders.slice(0, KEY_TICKETS).map((holder) => holderJson(holder, KEY_TEXT)),
    queue: queue.slice(0, KEY_TICKETS).map((waiter) => waiterJson(waiter, KEY_TEXT)),
    holds: holds.map(holdJson),
    samples: samples.map(sampleJson),
  }
}

const FREE: Omit<InspectedRoom, 'key'> = { holders: [], queue: [], closedMs: 0 }

/** Largest first. `key`: the snapshot is sorted by key already. */
const SORTS: Readonly<Record<SortName, ((room: InspectedRoom) => number) | undefined>> = {
  key: undefined,
  waiting: ({ queue }) => queue.length,
  wait: longestWaitMs,
  holding: ({ holders }) => holders.length,
  held: ({ holders: [first] }) => first?.heldMs ?? 0,
  left: ({ holders: [first] }) => -(first?.remainingMs ?? Number.MAX_VALUE),
}

/** The queue is in order of arrival, so its first waiter waits longest. */
function longestWaitMs({ queue }: InspectedRoom): number {
  return queue[0]?.waitedMs ?? 0
}

/** Found once for each snapshot, as all viewers share it. */
function knownElections(rooms: readonly InspectedRoom[]): ReadonlyMap<string, number> {
  const known = electionsOf.get(rooms) ?? electionsIn(rooms)
  electionsOf.set(rooms, known)
  return known
}

const electionsOf = new WeakMap<readonly InspectedRoom[], ReadonlyMap<string, number>>()

function isMarkOf(elections: ReadonlyMap<string, number>, key: string): boolean {
  return key.endsWith(LEADER_MARK) && elections.has(key.slice(0, -LEADER_MARK.length))
}

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

function ownerText({ host, pid, label, text }: Owner): string {
  return text ?? `${host ?? '?'}:${pid ?? '?'} ${label ?? ''}`
}

function holderJson(holder: InspectedHolder, longest: number): HolderJson {
  const { id, fence, state, heldMs, remainingMs, owner } = holder
  return {
    id,
    fence: String(fence),
    mode: modeOf(holder),
    state,
    heldMs,
    remainingMs,
    value: cut(owner.value, longest),
    owner: ownerJson(owner, longest),
  }
}

function waiterJson(waiter: InspectedWaiter, longest: number): WaiterJson {
  const { id, waitedMs, owner } = waiter
  return { id, mode: modeOf(waiter), waitedMs, owner: ownerJson(owner, longest) }
}

function holdJson(hold: HoldRecord): HoldJson {
  const { id, fence, fromAt, untilAt, end, reason } = hold
  return {
    id,
    fence: String(fence),
    mode: modeOf(hold),
    fromAt,
    untilAt,
    end,
    reason,
    owner: ownerJson(hold.owner, ROW_TEXT),
  }
}

function sampleJson({ at, holding, waiting }: KeySample): SampleJson {
  return [at, holding, waiting]
}

function ownerJson(owner: Owner, longest: number): OwnerJson {
  const { host, pid, label, text } = owner
  if (text !== undefined || host === undefined || pid === undefined)
    return { text: cut(ownerText(owner), longest) }
  return { host: cut(host, longest), pid, label: cut(label, longest) }
}

function cut(text: string | undefined, longest: number): string | undefined {
  return text === undefined ? undefined : shortened(text, longest)
}

const PAGE_ROWS = 100
const CONTENTION_ROWS = 20
const ROW_HOLDERS = 3
const ROW_TEXT = 200
const KEY_TICKETS = 200
const KEY_TEXT = 2000
const TREND_LOOKS = 120
const TREND_SAMPLES = 60
