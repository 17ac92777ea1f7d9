import { comesAfter } from '../../base/text.ts'
import type { HolderView, InspectRequest, RoomPage, RoomView } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import { type KeyValue, LEASE_TIME_TO_LIVE, TXN } from './grpc/messages.ts'
import { EtcdRoom } from './rooms/room.ts'
import type { RoomEntry, TicketEntry } from './rooms/room-entry.ts'
import type { TicketState } from './session/own-ticket.ts'
import type { Session } from './session/session.ts'

/** A page of rooms as etcd has them, with what this process knows better of its own tickets. */
export async function inspect(
  session: Session,
  { prefix, exact, cursor, count }: InspectRequest,
): Promise<RoomPage> {
  const { names, fences } = session
  await fences.look()
  if (exact === true) return roomOf(session, prefix)
  const begin = names.from(prefix)
  const rooms: RoomView[] = []
  /** What is left of the leases of other processes, in milliseconds. */
  const leftMs = new Map<number, number>()
  let from = cursor ?? begin
  for (let reads = 0; reads < MOST_READS; reads += 1) {
    const begun = from
    // As it is before the request: what ends meanwhile is still in the reply.
    const own = knownOf(session)
    const { pairs, more } = await read(session, { key: from, end: names.tickets.end, limit: READ_TOGETHER })
    const groups = new Map<string, KeyValue[]>()
    // In order of their names: the first that does not begin so is behind all that do.
    const isLast = !more || !(pairs.at(-1)?.key.startsWith(begin) ?? false)
    for (const pair of pairs) {
      if (!pair.key.startsWith(begin)) break
      const { key } = names.parse(pair.key)
      const group = groups.get(key) ?? []
      groups.set(key, group)
      group.push(pair)
    }
    const keys = [...groups.keys()]
    for (const [index, key] of keys.entries()) {
      const range = names.room(key)
      // What was read may end in the middle of the last one.
      const isCut = !isLast && index === keys.length - 1
      const seen = (groups.get(key) ?? []).filter((pair) => pair.key.startsWith(range.key))
      const all = isCut ? (await read(session, range)).pairs : seen
      const view = await viewOf(session, key, readable(session, all), { own, leftMs })
      if (comesAfter(range.end, from)) from = range.end
      if (view !== undefined) rooms.push(view)
      if (rooms.length === count) break
    }
    if (isLast && rooms.length < count) return { rooms, next: undefined }
    if (from === begun) throw new StoreError('store-refused', OUT_OF_ORDER)
    if (rooms.length === count) return { rooms, next: from }
  }
  return { rooms, next: from }
}

async function roomOf(session: Session, key: string): Promise<RoomPage> {
  const own = knownOf(session)
  const { pairs } = await read(session, session.names.room(key))
  const view = await viewOf(session, key, session.entries(pairs), { own, leftMs: new Map() })
  return { rooms: view === undefined ? [] : [view], next: undefined }
}

/** A listing goes on beside a key that another program has written to. */
function readable(session: Session, pairs: readonly KeyValue[]): readonly RoomEntry[] {
  try {
    return session.entries(pairs)
  } catch {
    return []
  }
}

async function read(
  { cluster }: Session,
  range: { readonly key: string; readonly end: string; readonly limit?: number },
): Promise<{ readonly pairs: readonly KeyValue[]; readonly more: boolean }> {
  const { reply } = await cluster.ask(TXN, { when: [], apply: [{ tag: 'range', ...range }], otherwise: [] })
  return { pairs: reply.ranges[0]?.pairs ?? [], more: reply.ranges[0]?.more ?? false }
}

/** What this process knows of one of its tickets. */
interface Known {
  readonly createRevision: number
  readonly acceptMs: number
  readonly state: TicketState
}

function knownOf({ tickets }: Session): ReadonlyMap<string, Known> {
  const known = new Map<string, Known>()
  for (const [id, { createRevision, ticket, state }] of tickets)
    known.set(id, { createRevision, acceptMs: ticket.acceptMs, state })
  return known
}

async function viewOf(
  session: Session,
  key: string,
  written: readonly RoomEntry[],
  { own, leftMs }: { readonly own: ReadonlyMap<string, Known>; readonly leftMs: Map<number, number> },
): Promise<RoomView | undefined> {
  const now = performance.now()
  const wallNow = Date.now()
  const room = new EtcdRoom(key)
  const knownOf = (entry: RoomEntry): Known | undefined => {
    const known = own.get(entry.id)
    return known?.createRevision === entry.createRevision ? known : undefined
  }
  const entries = written.filter((entry) => !isOver(knownOf(entry), now))
  room.fill(entries, 0)
  const { holders } = room.divide()
  for (const entry of [...holders, ...room.lockDelays.values()]) {
    if (knownOf(entry) !== undefined || leftMs.has(entry.lease)) continue
    const { reply } = await session.cluster.ask(LEASE_TIME_TO_LIVE, { id: entry.lease })
    leftMs.set(entry.lease, Math.max(0, reply.ttl * 1000))
  }
  const closedMs = [...room.lockDelays.values()].map((delay) =>
    // The key of one that is over is being deleted.
    Math.max(1, Math.min(session.delays.leftMs(delay), leftMs.get(delay.lease) ?? Number.POSITIVE_INFINITY)),
  )
  const tickets = [...room.tickets.values()]
  if (tickets.length === 0 && closedMs.length === 0) return undefined
  const facts = ({ id, value: { units, limit, owner } }: TicketEntry) => ({ id, units, limit, owner })
  const sinceMs = ({ value: { at } }: TicketEntry) => Math.max(0, wallNow - at)
  return {
    key,
    holders: tickets
      .filter((entry) => holders.includes(entry))
      .map((entry) => {
        const { ttlMs, state } = entry.value
        const known = knownOf(entry)
        const times =
          known === undefined
            ? { heldMs: sinceMs(entry), remainingMs: Math.min(ttlMs, leftMs.get(entry.lease) ?? ttlMs) }
            : timesOf(known, now)
        return {
          ...facts(entry),
          fence: session.fences.fence(entry.createRevision),
          heldMs: Math.max(0, Math.floor(times.heldMs)),
          remainingMs: Math.max(0, Math.floor(times.remainingMs)),
          state: state === 'leaving' ? state : stateOf(known),
        }
      }),
    queue: tickets
      .filter((entry) => !holders.includes(entry))
      .map((entry) => ({ ...facts(entry), waitedMs: sinceMs(entry) })),
    closedMs: Math.ceil(Math.max(0, ...closedMs)),
  }
}

/** Whether the time of a ticket is over. Then its key is being deleted, or will be. */
function isOver(known: Known | undefined, now: number): boolean {
  if (known === undefined) return false
  const { state } = known
  switch (state.tag) {
    case 'waiting':
      return state.rememberedUntil <= now
    case 'offered':
    case 'held':
    case 'leaving':
      return state.until <= now
    case 'ending':
    case 'forgotten':
      return true
    default:
      return state satisfies never
  }
}

/** The times of a ticket that stands at the front. It may be a waiter whose turn the watch has not told yet. */
function timesOf({ state, acceptMs }: Known, now: number): Pick<HolderView, 'heldMs' | 'remainingMs'> {
  if ('since' in state) return { heldMs: now - state.since, remainingMs: state.until - now }
  return { heldMs: 0, remainingMs: acceptMs }
}

function stateOf(known: Known | undefined): 'held' | 'offered' {
  return known?.state.tag === 'offered' || known?.state.tag === 'waiting' ? 'offered' : 'held'
}

const READ_TOGETHER = 500
/** How many reads are made for one page, which may find few rooms or none. */
const MOST_READS = 20

const OUT_OF_ORDER =
  'The keys of the etcd server cannot be listed, because it does not return them in order. Check that it is an etcd server, and that only Holdfast writes under its prefix.'
