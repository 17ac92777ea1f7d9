import {
  type EvictRequest,
  type InspectRequest,
  type RoomPage,
  type RoomView,
  TOMBSTONE_MS,
} from '../../contract/store.ts'
import type { Cluster } from './grpc/cluster.ts'
import { MOST_TRIES, tooBusy } from './grpc/conditions.ts'
import { isLeaseGone } from './grpc/failures.ts'
import { type Compare, type KeyValue, LEASE_TIME_TO_LIVE, type Operation, TXN } from './grpc/messages.ts'
import { Room } from './rooms/room.ts'
import type { RoomNames } from './rooms/room-names.ts'
import { closingValue, type Entry, entryOf, type KeptTicket, tombstoneValue } from './rooms/ticket-value.ts'
import type { FenceBase } from './session/fence-base.ts'
import type { Leases } from './session/leases.ts'
import type { OwnTicket } from './session/own-ticket.ts'
import type { Wardens } from './session/ticket-timers.ts'

export interface Surroundings {
  readonly cluster: Cluster
  readonly names: RoomNames
  readonly own: ReadonlyMap<string, OwnTicket>
  readonly base: FenceBase
  readonly leases: Leases
  readonly wardens: Wardens
  /** Its key is a tombstone now. */
  evicted(entry: Entry): void
}

/** A page of rooms as etcd has them, with what this process knows better of its own tickets. */
export async function inspect(
  { prefix, cursor, count }: InspectRequest,
  surroundings: Surroundings,
): Promise<RoomPage> {
  const { names, base } = surroundings
  await base.value()
  const begin = names.from(prefix)
  const rooms: RoomView[] = []
  /** What is left of the leases of other processes, in milliseconds. */
  const left = new Map<number, number>()
  let from = cursor ?? begin
  for (;;) {
    // As it is before the request: what ends meanwhile is still in the reply.
    const own = new Map(surroundings.own)
    const { pairs, more } = await read(surroundings.cluster, from, names.tickets.end)
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
      const all = isCut
        ? (await read(surroundings.cluster, range.key, range.end, 0)).pairs
        : (groups.get(key) ?? [])
      const view = await viewOf(key, all, { ...surroundings, own, leases: left })
      from = range.end
      if (view !== undefined) rooms.push(view)
      if (rooms.length === count) return { rooms, next: from }
    }
    if (isLast) return { rooms, next: undefined }
  }
}

/** Removes tickets by force, all that are there at one moment. */
export async function evict(request: EvictRequest, surroundings: Surroundings): Promise<readonly string[]> {
  const evicted = new Set<string>()
  for (let tries = 0; tries < MOST_TRIES; tries += 1)
    if (await evictThose(request, surroundings, evicted)) return [...evicted]
  throw tooBusy(request.key)
}

/** False when they changed meanwhile. */
async function evictThose(
  { key, id, reason }: EvictRequest,
  surroundings: Surroundings,
  evicted: Set<string>,
): Promise<boolean> {
  const { cluster, names, leases, wardens } = surroundings
  const range = names.room(key)
  const { pairs, revision } = await read(cluster, range.key, range.end, 0)
  const room = new Room(key)
  room.fill(
    pairs.map((pair) => entryOf(pair, names)),
    revision,
  )
  const clearing = wardens.clearing(room)
  if (clearing !== undefined) {
    await clearing
    return false
  }
  const { holders } = room.divide()
  const targets = [...room.tickets.values()].filter((entry) => id === undefined || entry.id === id)
  // From the end of the queue: nobody is let in who is to be evicted, too.
  for (let end = targets.length; end > 0; end -= EVICTED_TOGETHER) {
    const some = targets.slice(Math.max(0, end - EVICTED_TOGETHER), end)
    try {
      if (!(await evictSome(some, { ...surroundings, holders, reason }))) return false
    } catch (error) {
      if (!isLeaseGone(error)) throw error
      leases.tombsLost()
      return false
    }
    for (const entry of some) {
      evicted.add(entry.id)
      surroundings.evicted(entry)
    }
  }
  return true
}

async function evictSome(
  targets: readonly (Entry & { readonly value: KeptTicket })[],
  surroundings: Surroundings & { readonly holders: readonly Entry[]; readonly reason: string },
): Promise<boolean> {
  const { cluster, names, own, leases, wardens, holders, reason } = surroundings
  const tombs = await leases.tombs(TOMBSTONE_MS)
  const value = tombstoneValue({ evicted: true, reason })
  const operations: Operation[] = []
  const closings: [name: string, ms: number][] = []
  for (const entry of targets) {
    operations.push({ tag: 'put', key: entry.name, value, lease: tombs.id })
    const { lockDelayMs, state } = entry.value
    const wasConfirmed = holders.includes(entry) && state === 'here' && own.get(entry.id)?.state !== 'offered'
    if (lockDelayMs === 0 || !wasConfirmed) continue
    const name = names.closing(entry.key, entry.id)
    const lease = await leases.once(lockDelayMs, { mayBeLonger: true })
    operations.push({ tag: 'put', key: name, value: closingValue(lockDelayMs), lease: lease.id })
    closings.push([name, lockDelayMs])
  }
  const { reply } = await cluster.ask(TXN, {
    when: targets.map(
      ({ name, modRevision }): Compare => ({
        that: 'modified',
        is: 'equal',
        key: name,
        revision: modRevision,
      }),
    ),
    apply: operations,
    otherwise: [],
  })
  if (reply.succeeded) for (const [name, ms] of closings) wardens.closing(name, ms)
  return reply.succeeded
}

async function read(
  cluster: Cluster,
  key: string,
  end: string,
  limit: number = READ_TOGETHER,
): Promise<{ pairs: readonly KeyValue[]; more: boolean; revision: number }> {
  const { reply } = await cluster.ask(TXN, {
    when: [],
    apply: [{ tag: 'range', key, end, limit }],
    otherwise: [],
  })
  const [range] = reply.ranges
  return { pairs: range?.pairs ?? [], more: range?.more ?? false, revision: reply.revision }
}

async function viewOf(
  key: string,
  pairs: readonly KeyValue[],
  {
    cluster,
    names,
    own,
    base,
    wardens,
    leases,
  }: Omit<Surroundings, 'leases'> & { leases: Map<number, number> },
): Promise<RoomView | undefined> {
  const now = performance.now()
  const wallNow = Date.now()
  const room = new Room(key)
  const mine = (entry: Entry) => {
    const known = own.get(entry.id)
    return known?.createRevision === entry.createRevision ? known : undefined
  }
  const entries = pairs.map((pair) => entryOf(pair, names))
  room.fill(
    entries.filter((entry) => !isOver(mine(entry), now)),
    0,
  )
  const { holders } = room.divide()
  for (const entry of [...holders, ...room.closings.values()]) {
    if (mine(entry) !== undefined || leases.has(entry.lease)) continue
    const { reply } = await cluster.ask(LEASE_TIME_TO_LIVE, { id: entry.lease })
    leases.set(entry.lease, Math.max(0, reply.ttl * 1000))
  }
  const views = [...room.tickets.values()].map((entry) => {
    const { units, limit, ttlMs, at, owner } = entry.value as KeptTicket
    return {
      entry,
      known: mine(entry),
      facts: { id: entry.id, units, limit, owner },
      ttlMs,
      sinceMs: wallNow - at,
    }
  })
  const closedMs = [...room.closings.values()].map((closing) =>
    Math.min(wardens.closesFor(closing), leases.get(closing.lease) ?? Number.POSITIVE_INFINITY),
  )
  if (views.length === 0 && closedMs.length === 0) return undefined
  return {
    key,
    holders: views
      .filter(({ entry }) => holders.includes(entry))
      .map(({ entry, known, facts, ttlMs, sinceMs }) => ({
        ...facts,
        fence: base.fence(entry.createRevision),
        heldMs: Math.max(0, Math.floor(known === undefined ? sinceMs : now - known.heldSince)),
        remainingMs: Math.max(
          0,
          Math.floor(remainingOf(known, now) ?? Math.min(ttlMs, leases.get(entry.lease) ?? ttlMs)),
        ),
        state: stateOf(entry, known),
      })),
    queue: views
      .filter(({ entry }) => !holders.includes(entry))
      .map(({ facts, sinceMs }) => ({ ...facts, waitedMs: Math.max(0, sinceMs) })),
    closedMs: Math.ceil(Math.max(0, ...closedMs)),
  }
}

/** Its time is over, and its key is being deleted or will be. */
function isOver(known: OwnTicket | undefined, now: number): boolean {
  if (known === undefined) return false
  return known.state === 'ended' || (known.state === 'waiting' ? known.rememberedUntil : known.until) <= now
}

/** Undefined for a ticket of another process. */
function remainingOf(known: OwnTicket | undefined, now: number): number | undefined {
  // The watch has not told yet that it is its turn.
  return known?.state === 'waiting' ? known.ticket.acceptMs : known && known.until - now
}

function stateOf(entry: Entry, known: OwnTicket | undefined): 'held' | 'offered' | 'leaving' {
  if (entry.value.state === 'leaving') return 'leaving'
  return known?.state === 'offered' || known?.state === 'waiting' ? 'offered' : 'held'
}

const READ_TOGETHER = 500
/** Two operations each at most, and etcd takes 128 in one transaction. */
const EVICTED_TOGETHER = 50
