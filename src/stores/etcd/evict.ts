import { type EvictRequest, TOMBSTONE_MS } from '../../contract/store.ts'
import { isAt, MOST_TRIES, tooBusy } from './grpc/conditions.ts'
import type { Operation } from './grpc/messages.ts'
import { EtcdRoom } from './rooms/room.ts'
import { type RoomEntry, type TicketEntry, tombstoneText } from './rooms/room-entry.ts'
import type { Session } from './session/session.ts'

/** Removes tickets by force: all that the room has at one moment. */
export async function evict(session: Session, request: EvictRequest): Promise<readonly string[]> {
  const evicted = new Set<string>()
  for (let tries = 0; tries < MOST_TRIES; tries += 1)
    if (await tryToEvict(session, request, evicted)) return [...evicted]
  throw tooBusy(request.key)
}

/** False when the room changed meanwhile. */
async function tryToEvict(
  session: Session,
  { key, id, reason, onlyIfWaiting = false }: EvictRequest,
  evicted: Set<string>,
): Promise<boolean> {
  const { pairs, revision } = await session.read(session.names.room(key))
  const room = new EtcdRoom(key)
  room.fill(session.entries(pairs), revision)
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
    const isDone = await evictSome(session, some, { holders, stay, reason }).catch((error: unknown) =>
      session.tombstonesGone(error),
    )
    if (isDone !== true) return false
    for (const entry of some) {
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
  const { names, tickets, leases, delays } = session
  const lease = await leases.tombstones(TOMBSTONE_MS)
  const value = tombstoneText({ evicted: true, reason })
  const operations: Operation[] = []
  const lockDelays: [name: string, ms: number][] = []
  for (const entry of targets) {
    operations.push({ tag: 'put', key: entry.name, value, lease: lease.id })
    const { lockDelayMs, state } = entry.value
    const isOffered = tickets.get(entry.id)?.state.tag === 'offered'
    const wasConfirmed = holders.includes(entry) && state === 'here' && !isOffered
    if (lockDelayMs === 0 || !wasConfirmed) continue
    operations.push(await delays.operation(entry.key, entry.id, lockDelayMs))
    lockDelays.push([names.lockDelay(entry.key, entry.id), lockDelayMs])
  }
  const { reply } = await session.transact({
    when: [...targets, ...stay].map(({ name, modRevision }) => isAt(name, modRevision)),
    apply: operations,
    otherwise: [],
  })
  if (reply.succeeded) for (const [name, ms] of lockDelays) delays.begin(name, ms)
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
