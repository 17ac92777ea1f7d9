import { type EvictRequest, TOMBSTONE_MS } from '../../contract/store.ts'
import { isAt, MOST_TRIES, tooBusy } from './grpc/conditions.ts'
import type { Operation } from './grpc/messages.ts'
import { EtcdRoom } from './rooms/room.ts'
import { type RoomEntry, type TicketEntry, tombstoneText } from './rooms/room-entry.ts'
import type { LockDelayKey } from './session/lock-delays.ts'
import type { Session } from './session/session.ts'

/** Removes tickets by force: all that the room has at one moment. */
export async function evict(session: Session, request: EvictRequest): Promise<readonly string[]> {
  const progress: EvictionProgress = { evicted: new Set(), inDoubt: new Map() }
  for (let tries = 0; tries < MOST_TRIES; tries += 1)
    if (await tryToEvict(session, request, progress)) return [...progress.evicted]
  throw tooBusy(request.key)
}

interface EvictionProgress {
  readonly evicted: Set<string>
  /** Tickets that this call has tried to evict, by the names of their entries. An answer may have been lost. */
  readonly inDoubt: Map<string, TicketEntry>
}

/** False when the room changed meanwhile. */
async function tryToEvict(
  session: Session,
  { key, id, reason, onlyIfWaiting = false }: EvictRequest,
  { evicted, inDoubt }: EvictionProgress,
): Promise<boolean> {
  const { pairs, revision } = await session.read(session.names.room(key))
  const room = new EtcdRoom(key)
  const entries = session.entries(pairs)
  room.fill(entries, revision)
  for (const { name, value } of entries) {
    const entry = inDoubt.get(name)
    if (entry === undefined || value.state !== 'gone' || !value.evicted || value.reason !== reason) continue
    evicted.add(entry.id)
    session.evicted(entry)
    inDoubt.delete(name)
  }
  const clearing = session.timers.expireFront(room)
  if (clearing !== undefined) {
    await clearing
    return false
  }
  const { holders } = room.divide()
  // A waiter begins to hold when a holder goes, which changes nothing of the waiter's own entry.
  const stay = onlyIfWaiting ? holders : []
  if (onlyIfWaiting && holders.length === 0) return true
  const targets = [...room.tickets.values()].filter(
    (entry) => (id === undefined || entry.id === id) && !stay.includes(entry),
  )
  // From the end of the queue, so that no ticket is let in that is evicted a moment later.
  for (let end = targets.length; end > 0; end -= TOGETHER) {
    const some = targets.slice(Math.max(0, end - TOGETHER), end)
    for (const entry of some) inDoubt.set(entry.name, entry)
    const isDone = await evictSome(session, some, { holders, stay, reason }).catch((error: unknown) =>
      session.tombstonesGone(error),
    )
    if (isDone !== true) return false
    for (const entry of some) {
      inDoubt.delete(entry.name)
      evicted.add(entry.id)
      session.evicted(entry)
    }
  }
  return true
}

async function evictSome(
  session: Session,
  targets: readonly TicketEntry[],
  { holders, stay, reason }: EvictionParts,
): Promise<boolean> {
  const { tickets, leases, delays } = session
  const lease = await leases.tombstones(TOMBSTONE_MS)
  const value = tombstoneText({ evicted: true, reason })
  const operations: Operation[] = []
  const lockDelays: [LockDelayKey, ms: number][] = []
  for (const entry of targets) {
    operations.push({ tag: 'put', key: entry.name, value, lease: lease.id })
    const { lockDelayMs, state } = entry.value
    const isOffered = tickets.get(entry.id)?.state.tag === 'offered'
    const wasConfirmed = holders.includes(entry) && state === 'here' && !isOffered
    if (lockDelayMs === 0 || !wasConfirmed) continue
    lockDelays.push([await delays.operation(entry.key, entry.id, lockDelayMs), lockDelayMs])
  }
  // First, because the answer may be lost.
  for (const [operation, ms] of lockDelays) delays.begin(operation, ms)
  const { reply } = await session.transact({
    when: [...targets, ...stay].map(({ name, modRevision }) => isAt(name, modRevision)),
    apply: [...operations, ...lockDelays.map(([operation]) => operation)],
    otherwise: [],
  })
  return reply.succeeded
}

interface EvictionParts {
  readonly holders: readonly RoomEntry[]
  /** These must still be there. */
  readonly stay: readonly RoomEntry[]
  readonly reason: string
}

/** Each ticket needs two operations at most. etcd takes 128 in a transaction by default. */
const TOGETHER = 50
