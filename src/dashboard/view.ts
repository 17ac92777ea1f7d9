import type { InspectedHolder, InspectedRoom } from '../index.ts'
import { contentionIn } from '../room-watch/contention.ts'
import type { HoldRecord, KeyHistory, KeyHold } from '../room-watch/hold-record.ts'
import type { RoomWatch } from '../room-watch/room-watch.ts'
import { withoutObservers } from '../room-watch/ticket-facts.ts'
import { type KeysRequest, keysView, knownElections, rowJson } from './keys-view.ts'
import { onePage, type PageNumber, ROW_TEXT } from './one-page.ts'
import { type ListOrder, ordered, type Rank } from './order.ts'
import { type PartitionsRequest, partitionsView } from './partitions-view.ts'
import { type ProcessesRequest, processesView } from './processes-view.ts'
import { holderJson, holdJson, ownerText, sampleJson, waiterJson } from './ticket-json.ts'
import type {
  ContentionJson,
  KeyHistoryJson,
  KeyJson,
  KeysJson,
  LossesJson,
  PartitionsJson,
  ProcessesJson,
  ViewJson,
} from './view-json.ts'

/**
 * What the page shows, as JSON: at most one page of keys, foreign texts cut, fences as strings. Durations are as of the
 * look, not of the request.
 */
export type ViewRequest =
  | KeysRequest
  | { readonly view: 'key'; readonly key: string }
  | { readonly view: 'contention'; readonly order: ListOrder }
  | {
      readonly view: 'losses'
      readonly search: string
      readonly show: 'all' | 'expired' | 'evicted'
      readonly order: ListOrder
      readonly page: PageNumber
    }
  | PartitionsRequest
  | ProcessesRequest

export function viewOf(
  watch: RoomWatch,
  request: ViewRequest,
): SharedJson & (KeysJson | KeyJson | ContentionJson | LossesJson | PartitionsJson | ProcessesJson) {
  switch (request.view) {
    case 'keys':
      return { ...sharedView(watch), ...keysView(watch, request) }
    case 'key':
      return { ...sharedView(watch), ...keyView(watch, request.key) }
    case 'contention':
      return { ...sharedView(watch), rows: contentionView(watch, request.order) }
    case 'losses':
      return { ...sharedView(watch), ...lossesView(watch, request) }
    case 'partitions':
      return { ...sharedView(watch), ...partitionsView(watch, request) }
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

export function lossesView(
  { losses, processes }: RoomWatch,
  { search, show, order, page }: Extract<ViewRequest, { view: 'losses' }>,
): LossesJson {
  const wanted = search.toLowerCase()
  const matching = losses.filter(
    ({ key, hold }) =>
      (show === 'all' || hold.end === show) &&
      (wanted === '' ||
        key.toLowerCase().includes(wanted) ||
        ownerText(hold.owner).toLowerCase().includes(wanted)),
  )
  return onePage(ordered(matching.toReversed(), LOSS_RANKS, order), page, ({ key, hold }) => {
    const { untilAt = hold.fromAt } = hold
    return { key, ...holdJson(hold, ROW_TEXT), untilAt, heardAt: processes.heardAt(hold.owner) }
  })
}

const LOSS_RANKS: Readonly<Record<string, Rank<KeyHold>>> = {
  lost: ({ hold }) => hold.untilAt,
  key: ({ key }) => key,
  holder: ({ hold }) => ownerText(hold.owner),
  end: ({ hold }) => hold.end,
  held: ({ hold: { fromAt, untilAt = fromAt } }) => untilAt - fromAt,
  fence: ({ hold }) => hold.fence,
}

export function contentionView(watch: RoomWatch, order: ListOrder): ContentionJson['rows'] {
  const rooms = new Map(watch.snapshot.rooms.map((room) => [room.key, room]))
  const historyOf = (key: string): KeyHistory | undefined => watch.historyOf(key)
  const { snapshot, changed } = watch
  const rows = contentionIn({ snapshot, changed, historyOf }, CONTENTION_ROWS).map((contention) => {
    const room = rooms.get(contention.key) ?? { key: contention.key, ...FREE }
    return { ...contention, ...rowJson(watch, room) }
  })
  return ordered(rows, CONTENTION_RANKS, order)
}

const CONTENTION_RANKS: Readonly<Record<string, Rank<ContentionJson['rows'][number]>>> = {
  key: ({ key }) => key,
  average: ({ averageWaiting }) => averageWaiting,
  most: ({ mostWaiting }) => mostWaiting,
  waiting: ({ waiting }) => waiting,
  longest: ({ longestWaitMs }) => longestWaitMs,
  handOvers: ({ handOvers }) => handOvers,
  holder: ({ holders: [first] }) => first?.owner.label ?? first?.owner.text ?? first?.owner.host,
}

function keyView(watch: RoomWatch, key: string): KeyJson {
  const { rooms } = watch.snapshot
  const elections = knownElections(rooms)
  const room = rooms.find((each) => each.key === key) ?? { key, ...FREE }
  const { holders, queue, closedMs } = withoutObservers(elections, room)
  const history = watch.historyOf(key) ?? { holds: [], samples: [] }
  return {
    key,
    isElection: elections.has(key),
    observers: elections.get(key) ?? 0,
    closedMs,
    holding: holders.length,
    waiting: queue.length,
    holders: holders
      .slice(0, KEY_TICKETS)
      .map((holder) => holderJson(holder, { longest: KEY_TEXT, renewals: watch.renewalsOf(holder.id) })),
    queue: queue.slice(0, KEY_TICKETS).map((waiter) => waiterJson(waiter, KEY_TEXT)),
    ...historyJson(history, { holders, now: watch.snapshot.at }),
    watched: watch.watched.slice(-KEY_HOLDS).map(({ fromAt, untilAt }) => [fromAt, untilAt]),
  }
}

/** The newest holds and samples, and the older holds that still last. `holders`: the present ones. */
function historyJson(
  { holds, samples, holdsFromAt, samplesFromAt }: KeyHistory,
  { holders, now }: { readonly holders: readonly InspectedHolder[]; readonly now: number },
): KeyHistoryJson {
  const older = holds.slice(0, -KEY_HOLDS)
  const lasting = older.filter(({ end }) => end === undefined).slice(-KEY_TICKETS)
  const shown = [...lasting, ...holds.slice(-KEY_HOLDS)]
  const ids = new Set(shown.map(({ id }) => id))
  const shownSamples = samples.slice(-KEY_HOLDS)
  return {
    holds: shown.map((hold) => holdJson(hold, ROW_TEXT)),
    samples: shownSamples.map(sampleJson),
    // A present holder that is left out belongs to all of the time until now.
    holdsFromAt: holders.some(({ id }) => !ids.has(id)) ? now : older.reduce(laterEnd, holdsFromAt),
    samplesFromAt: shownSamples.length < samples.length ? shownSamples[0]?.at : samplesFromAt,
  }
}

function laterEnd(latestAt: number | undefined, { untilAt }: HoldRecord): number | undefined {
  return untilAt === undefined ? latestAt : Math.max(untilAt, latestAt ?? untilAt)
}

const FREE: Omit<InspectedRoom, 'key'> = { holders: [], queue: [], closedMs: 0 }

const CONTENTION_ROWS = 20
const KEY_TICKETS = 200
const KEY_TEXT = 2000
const KEY_HOLDS = 200
const TREND_LOOKS = 120
