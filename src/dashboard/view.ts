import type { InspectedRoom, Owner } from '../index.ts'
import { contentionIn } from '../room-watch/contention.ts'
import type { KeyHistory, KeySample } from '../room-watch/hold-record.ts'
import type { RoomWatch } from '../room-watch/room-watch.ts'
import { electionsIn, isMarkOf } from '../room-watch/ticket-facts.ts'
import { onePage, ROW_TEXT } from './one-page.ts'
import { processesView } from './processes-view.ts'
import { holderJson, holdJson, ownerText, waiterJson } from './ticket-json.ts'
import type {
  ContentionJson,
  KeyJson,
  KeysJson,
  LossesJson,
  ProcessesJson,
  RowJson,
  SampleJson,
  ViewJson,
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
  | {
      readonly view: 'losses'
      readonly search: string
      readonly show: 'all' | 'expired' | 'evicted'
      readonly page: number
    }
  | { readonly view: 'processes'; readonly search: string; readonly page: number }

export type SortName = 'key' | 'waiting' | 'wait' | 'holding' | 'held' | 'left'

export function isSortName(name: string): name is SortName {
  return Object.hasOwn(SORTS, name)
}

export function viewOf(
  watch: RoomWatch,
  request: ViewRequest,
): SharedJson & (KeysJson | KeyJson | ContentionJson | LossesJson | ProcessesJson) {
  switch (request.view) {
    case 'keys':
      return { ...sharedView(watch), ...keysView(watch, request) }
    case 'key':
      return { ...sharedView(watch), ...keyView(watch, request.key) }
    case 'contention':
      return { ...sharedView(watch), rows: contentionRows(watch) }
    case 'losses':
      return { ...sharedView(watch), ...lossesView(watch, request) }
    case 'processes':
      return { ...sharedView(watch), ...processesView(watch, request) }
    default:
      return request satisfies never
  }
}

type SharedJson = Omit<ViewJson, 'site'>

/** What every page shows above its own content. */
export function sharedView({ snapshot, totals, losses, watched }: RoomWatch): SharedJson {
  const expired = losses.filter(({ hold }) => hold.end === 'expired').length
  const { at, store, isCut, caveats } = snapshot
  return {
    at,
    now: Date.now(),
    store,
    isCut,
    caveats,
    totals: totals.slice(-TREND_LOOKS),
    history: { fromAt: watched[0]?.fromAt, expired, evicted: losses.length - expired },
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
  return onePage(matching, page, (room) => ({
    ...rowJson(watch, room),
    isElection: elections.has(room.key),
    watchers: elections.get(room.key) ?? 0,
  }))
}

function lossesView(
  { losses, processes }: RoomWatch,
  { search, show, page }: Extract<ViewRequest, { view: 'losses' }>,
): LossesJson {
  const wanted = search.toLowerCase()
  const matching = losses.filter(
    ({ key, hold }) =>
      (show === 'all' || hold.end === show) &&
      (wanted === '' ||
        key.toLowerCase().includes(wanted) ||
        ownerText(hold.owner).toLowerCase().includes(wanted)),
  )
  return onePage(matching.reverse(), page, ({ key, hold }) => {
    const { untilAt = hold.fromAt } = hold
    return { key, ...holdJson(hold, ROW_TEXT), untilAt, heardAt: processes.heardAt(hold.owner) }
  })
}

function rowJson(watch: RoomWatch, room: InspectedRoom): RowJson {
  return {
    key: room.key,
    holding: room.holders.length,
    waiting: room.queue.length,
    closedMs: room.closedMs,
    longestWaitMs: longestWaitMs(room),
    holders: room.holders
      .slice(0, ROW_HOLDERS)
      .map((holder) => holderJson(holder, { longest: ROW_TEXT, renewals: watch.renewalsOf(holder.id) })),
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
    holders: holders
      .slice(0, KEY_TICKETS)
      .map((holder) => holderJson(holder, { longest: KEY_TEXT, renewals: watch.renewalsOf(holder.id) })),
    queue: queue.slice(0, KEY_TICKETS).map((waiter) => waiterJson(waiter, KEY_TEXT)),
    holds: holds.slice(-KEY_HOLDS).map((hold) => holdJson(hold, ROW_TEXT)),
    samples: samples.slice(-KEY_HOLDS).map(sampleJson),
    watched: watch.watched.slice(-KEY_HOLDS).map(({ fromAt, untilAt }) => [fromAt, untilAt]),
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

function sampleJson({ at, holding, waiting }: KeySample): SampleJson {
  return [at, holding, waiting]
}

const CONTENTION_ROWS = 20
const ROW_HOLDERS = 3
const KEY_TICKETS = 200
const KEY_TEXT = 2000
const KEY_HOLDS = 200
const TREND_LOOKS = 120
const TREND_SAMPLES = 60
