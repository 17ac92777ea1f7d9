import { type ReleaseAnswer, type ReleaseRequest, TOMBSTONE_MS } from '../../contract/store.ts'
import { isHoldfastError } from '../../errors.ts'
import { isAt, isNew, MOST_TRIES, tooBusy } from './grpc/conditions.ts'
import { isLeaseGone } from './grpc/failures.ts'
import type { Operation, TxnReply } from './grpc/messages.ts'
import { EtcdRoom } from './rooms/room.ts'
import { type RoomEntry, ticketText, ticketValue, tombstoneText } from './rooms/room-entry.ts'
import { type OwnTicket, termMs } from './session/own-ticket.ts'
import type { Session } from './session/session.ts'

/** Deletes the key of a ticket, or leaves a tombstone in its place. */
export async function release(session: Session, request: ReleaseRequest): Promise<ReleaseAnswer> {
  if (request.cancel) session.serial.giveUp(request.id)
  const known = await releaseIfOwn(session, request)
  if (known !== undefined) return known
  const answer = await releaseFound(session, request)
  if (request.cancel) session.orphans.drop(request.id)
  return answer
}

/** Undefined if the ticket is not one of this process, or no longer. */
async function releaseIfOwn(session: Session, request: ReleaseRequest): Promise<ReleaseAnswer | undefined> {
  const own = session.tickets.get(request.id)
  if (own?.ticket.key !== request.key) return undefined
  if (own.state.tag === 'ending') await own.state.done
  if (own.state.tag === 'forgotten') return undefined
  return releaseOwn(session, own, request).catch((error: unknown) => session.tombstonesGone(error))
}

async function releaseOwn(
  session: Session,
  own: OwnTicket,
  request: ReleaseRequest,
): Promise<ReleaseAnswer | undefined> {
  const { state } = own
  if (state.tag === 'leaving') return { was: 'unknown' }
  const was = state.tag === 'waiting' ? 'queued' : 'held'
  const isEarly = state.tag === 'held' && state.minHoldUntil > performance.now()
  if (isEarly) return (await leave(session, own)) ? { was } : undefined
  // This process deletes the key itself, so nobody is woken for that.
  return own.during(async () => {
    const reply = await removeOwn(session, own, request)
    session.forget(own)
    if (reply === undefined) return undefined
    session.removed(own)
    return { was }
  })
}

async function removeOwn(
  session: Session,
  own: OwnTicket,
  { id, cancel }: ReleaseRequest,
): Promise<TxnReply | undefined> {
  const deletion: Operation = { tag: 'delete', key: own.name }
  if (!cancel && !own.isInDoubt) return remove(session, own, deletion, nextOf(session, own))
  try {
    const tombstone = await removalOf(session, own.name, { needsTombstone: true })
    const reply = await remove(session, own, tombstone, nextOf(session, own))
    if (reply !== undefined) session.orphans.drop(id)
    return reply
  } catch (error) {
    if (!isHoldfastError(error, 'store-refused')) throw error
    // A full etcd takes no tombstone. If a late request writes the key again, this process deletes it as an orphan.
    const reply = await remove(session, own, deletion, [])
    session.orphans.add(own.ticket)
    return reply
  }
}

/** A release before the minimum hold is over: the key stays until then. False if the ticket is no longer one of this process. */
async function leave(session: Session, own: OwnTicket): Promise<boolean> {
  const reply = await session.keys.change(own, () => {
    const { lease, isForMinHold } = own.binding
    const value = ticketText(ticketValue(own.ticket, { at: own.at, state: 'leaving', isForMinHold }))
    return { apply: [{ tag: 'put', key: own.name, value, lease: lease.id }] }
  })
  if (reply !== undefined) session.left(own, reply.revision)
  return reply !== undefined
}

/**
 * The tickets of this process that a release admits. This process is alive, so the same transaction binds their keys to the
 * lease under which they will hold. A waiter of another process binds its key itself. Until then nothing proves that its
 * process lives.
 */
function nextOf({ rooms, tickets }: Session, own: OwnTicket): readonly OwnTicket[] {
  const room = rooms.get(own.ticket.key)
  if (room === undefined || room.lockDelays.size > 0) return []
  const next: OwnTicket[] = []
  for (const { id, createRevision } of room.divide({ without: own.ticket.id }).holders) {
    const other = tickets.get(id)
    const isWaiting = other?.state.tag === 'waiting' && other.createRevision === createRevision
    if (!isWaiting || other.ticket.minHoldMs > 0) continue
    const { holdLease, ticket, binding } = other
    if (binding.lease !== holdLease && holdLease.lastsFor(termMs(ticket))) next.push(other)
  }
  return next.slice(0, MOST_NEXT)
}

/** Deletes the key of a ticket and binds the keys of the next ones. Undefined if the ticket is no longer one of this process. */
async function remove(
  session: Session,
  own: OwnTicket,
  removal: Operation,
  next: readonly OwnTicket[],
): Promise<TxnReply | undefined> {
  const { keys } = session
  const puts = next.map(({ name, ticket, at, holdLease }): Operation => {
    return { tag: 'put', key: name, value: ticketText(ticketValue(ticket, { at })), lease: holdLease.id }
  })
  let isTogether = false
  try {
    const reply = await keys.change(own, (tries) => {
      isTogether = tries === 0
      if (!isTogether) return { apply: [removal] }
      return {
        when: next.map(({ name, binding }) => isAt(name, binding.revision)),
        apply: [removal, ...puts],
      }
    })
    for (const other of isTogether ? next : []) {
      if (reply === undefined) other.putInDoubt()
      else keys.bound(other, { ...other.binding, revision: reply.revision, lease: other.holdLease })
    }
    return reply
  } catch (error) {
    if (next.length === 0) throw error
    // The lease of a next ticket is gone, for example. That ticket finds out by itself.
    if (isLeaseGone(error)) return remove(session, own, removal, [])
    // The transaction may have been carried out. Then the keys of the next tickets outlast the lease of waiters.
    if (session.cluster.leavesDoubt(error)) for (const other of next) other.putInDoubt()
    // A full etcd takes no transaction that writes a key, and takes one that only deletes.
    if (isHoldfastError(error, 'store-refused')) return remove(session, own, removal, [])
    throw error
  }
}

/** Releases a ticket of another process, or one that is not there. */
async function releaseFound(session: Session, request: ReleaseRequest): Promise<ReleaseAnswer> {
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const answer = await tryToRelease(session, request).catch((error: unknown) =>
      session.tombstonesGone(error),
    )
    if (answer !== undefined) return answer
  }
  throw tooBusy(request.key)
}

/** Undefined if the key changed meanwhile. */
async function tryToRelease(
  session: Session,
  { key, id, cancel }: ReleaseRequest,
): Promise<ReleaseAnswer | undefined> {
  const name = session.names.ticket(key, id)
  // As a rule the ticket is not there, so the others of its room are not asked for.
  const present = session.entries((await session.read({ key: name })).pairs)[0]
  if (present?.value.state !== 'here') {
    // The tombstone of an eviction may end soon, but late requests must have no effect for a minute from now.
    const needsTombstone = cancel && present?.value.state !== 'leaving'
    return needsTombstone && !(await leaveTombstone(session, name, present)) ? undefined : { was: 'unknown' }
  }
  const { pairs, revision } = await session.read(session.names.room(key))
  const room = new EtcdRoom(key)
  room.fill(session.entries(pairs), revision)
  const isIn = room.divide().holders.some((entry) => entry.id === id)
  const { value, lease, modRevision } = present
  const operation: Operation = value.isForMinHold
    ? { tag: 'put', key: name, value: ticketText({ ...value, state: 'leaving' }), lease }
    : await removalOf(session, name, { needsTombstone: cancel })
  const { reply } = await session.transact({
    when: [isAt(name, modRevision)],
    apply: [operation],
    otherwise: [],
  })
  return reply.succeeded ? { was: isIn ? 'held' : 'queued' } : undefined
}

/** Leaves a tombstone in place of a ticket that is not there. False if the key changed meanwhile. */
async function leaveTombstone(
  session: Session,
  name: string,
  present: RoomEntry | undefined,
): Promise<boolean> {
  const { reply } = await session.transact({
    when: [present === undefined ? isNew(name) : isAt(name, present.modRevision)],
    apply: [await removalOf(session, name, { needsTombstone: true })],
    otherwise: [],
  })
  return reply.succeeded
}

async function removalOf(
  session: Session,
  name: string,
  { needsTombstone }: { readonly needsTombstone: boolean },
): Promise<Operation> {
  if (!needsTombstone) return { tag: 'delete', key: name }
  const { id } = await session.leases.tombstones(TOMBSTONE_MS)
  return { tag: 'put', key: name, value: tombstoneText({ evicted: false }), lease: id }
}

/** Each ticket needs a comparison and an operation. etcd takes 128 of each in a transaction by default. */
const MOST_NEXT = 50
