import type { ProcessTicket, ProcessView } from '../room-watch/processes.ts'
import { lateMsOf } from '../room-watch/renewal-facts.ts'
import type { RoomWatch } from '../room-watch/room-watch.ts'
import { electionsIn, isPartOf, withoutObservers } from '../room-watch/ticket-facts.ts'
import { onePage, type PageNumber, ROW_TEXT } from './one-page.ts'
import { type ListOrder, ordered, type Rank } from './order.ts'
import { ownerJson, ownerText } from './ticket-json.ts'
import type { ProcessesJson, ProcessJson, ProcessKeyJson } from './view-json.ts'

export interface ProcessesRequest {
  readonly view: 'processes'
  readonly search: string
  readonly order: ListOrder
  readonly page: PageNumber
}

/** Who lives, what each process holds and waits for, and when it was heard of last. */
export function processesView(watch: RoomWatch, { search, order, page }: ProcessesRequest): ProcessesJson {
  const elections = electionsIn(watch.snapshot.rooms)
  const rooms = watch.snapshot.rooms
    .filter(({ key }) => !isPartOf(elections, key))
    .map((room) => withoutObservers(elections, room))
  const late = new Set<string>()
  for (const { holders } of rooms) {
    for (const holder of holders)
      if (lateMsOf(holder, watch.renewalsOf(holder.id)) !== undefined) late.add(holder.id)
  }
  const wanted = search.toLowerCase()
  const matching = watch.processes
    .view(rooms)
    .filter(({ owner }) => wanted === '' || ownerText(owner).toLowerCase().includes(wanted))
    .map((process) => ({ process, state: stateOf(process, late), name: nameOf(process) }))
    .sort(
      (one, other) =>
        Number(one.state === 'idle') - Number(other.state === 'idle') ||
        (one.state === 'idle' ? other.process.lastSeenAt - one.process.lastSeenAt : 0) ||
        (one.name < other.name ? -1 : 1),
    )
  return onePage(ordered(matching, RANKS, order), page, ({ process, state }) => processJson(process, state))
}

const RANKS: Readonly<
  Record<string, Rank<{ process: ProcessView; state: ProcessJson['state']; name: string }>>
> = {
  process: ({ name }) => name,
  state: ({ state }) => state,
  heard: ({ process }) => process.heardAt,
  holds: ({ process }) => process.holds.length,
  waits: ({ process }) => process.waits.length,
}

function stateOf({ holds, waits }: ProcessView, late: ReadonlySet<string>): ProcessJson['state'] {
  if (holds.length + waits.length === 0) return 'idle'
  return holds.some(({ id }) => late.has(id)) ? 'late' : 'present'
}

/** People look for the label first. */
function nameOf({ owner: { host, pid, label, text } }: ProcessView): string {
  return text ?? `${label ?? ''} ${host ?? ''} ${String(pid).padStart(8, '0')}`
}

function processJson(
  { owner, holds, waits, heardAt, seenAt, lastSeenAt }: ProcessView,
  state: ProcessJson['state'],
): ProcessJson {
  return {
    owner: ownerJson(owner, ROW_TEXT),
    state,
    holding: holds.length,
    waiting: waits.length,
    holds: longest(holds),
    waits: longest(waits),
    heardAt,
    seenAt,
    lastSeenAt,
  }
}

function longest(tickets: readonly ProcessTicket[]): readonly ProcessKeyJson[] {
  return tickets
    .toSorted((one, other) => other.durationMs - one.durationMs)
    .slice(0, SHOWN)
    .map(({ key, durationMs }) => ({ key, durationMs }))
}

const SHOWN = 5
