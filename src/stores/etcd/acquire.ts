import type { AcquireAnswer, Ticket } from '../../contract/store.ts'
import { isHoldfastError } from '../../errors.ts'
import { isEmpty, isNew, isOlder, MOST_TRIES, tooBusy } from './grpc/conditions.ts'
import type { KeyValue, Operation } from './grpc/messages.ts'
import { untilChangeMs } from './hints.ts'
import { answer, answerFound, answerNew, withAhead } from './renew.ts'
import { EtcdRoom } from './rooms/room.ts'
import { ticketText, ticketValue } from './rooms/room-entry.ts'
import { termMs } from './session/own-ticket.ts'
import type { Session } from './session/session.ts'

/** Writes the key of a ticket, unless it is there, and says whether the ticket holds. */
export async function acquire(session: Session, ticket: Ticket): Promise<AcquireAnswer> {
  try {
    const own = session.tickets.get(ticket.id)
    const known = own && withAhead(session, ticket, await answer(session, own, ticket))
    return known ?? (await enter(session, ticket))
  } catch (error) {
    if (isHoldfastError(error, 'store-unavailable')) session.orphans.add(ticket)
    throw error
  }
}

async function enter(session: Session, ticket: Ticket): Promise<AcquireAnswer> {
  const comeIn = () => write(session, ticket)
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const { coming } = await (ticket.patienceMs === 0 ? comeIn() : session.serial.run(ticket.key, comeIn))
    const answer = await coming
    if (answer !== undefined) return answer
  }
  throw tooBusy(ticket.key)
}

async function write(session: Session, ticket: Ticket): Promise<Coming> {
  let seen = ticket.patienceMs > 0 ? session.rooms.get(ticket.key) : undefined
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const way = wayIn(ticket, seen, tries)
    const tried = way.tag === 'none' ? await refuse(session, way.room) : await tryIn(session, ticket, way)
    if ('coming' in tried) return tried
    seen = tried.seen
  }
  throw tooBusy(ticket.key)
}

/** One try to write the key. If the room is not as it was seen, it returns how the room is. */
async function tryIn(session: Session, ticket: Ticket, way: WayIn): Promise<Coming | Seen> {
  const { fences, names, leases, rooms } = session
  const base = await fences.value()
  const holdLease = await leases.shared(termMs(ticket))
  // Sent in parallel with the transaction below.
  leases.ensure(holdLease, termMs(ticket)).catch(() => {})
  const lease = way.tag === 'behind' ? await leases.waiting() : holdLease
  const name = names.ticket(ticket.key, ticket.id)
  const range = names.room(ticket.key)
  const at = Date.now()
  const value = ticketText(ticketValue(ticket, { at }))
  const put: Operation = { tag: 'put', key: name, value, lease: lease.id }
  const read: Operation = { tag: 'range', ...range }
  // Where there is a watch, it tells a waiter who is there.
  const isUnwatched = way.tag === 'behind' && rooms.get(ticket.key) === undefined
  const told = await session
    .transact({
      when: [
        { that: 'value', is: 'equal', key: base.name, value: base.text },
        way.tag === 'first' ? isEmpty(range) : isNew(name),
        ...(way.tag === 'beside' ? [isOlder(range, way.revision)] : []),
      ],
      apply: isUnwatched ? [read, put] : [put],
      otherwise: [{ tag: 'range', key: base.name }, read],
    })
    .catch((error: unknown) => session.leaseGone(error, lease))
  if (told === undefined) return { seen: undefined }
  const { reply, isInDoubt } = told
  const { revision } = reply
  if (reply.succeeded) {
    const key = { name, at, createRevision: revision, revision, lease, holdLease, isInDoubt }
    const own = session.track(ticket, key)
    if (way.tag !== 'behind') own.offered(performance.now(), ticket.ttlMs)
    const others = isUnwatched ? reply.ranges[0]?.pairs : undefined
    return { coming: answerNew(session, own, { others, revision }) }
  }
  const pairs = reply.ranges[1]?.pairs ?? []
  const present = pairs.find((pair) => pair.key === name)
  // An earlier try of it may come in yet, after its caller has left.
  if (isInDoubt && present === undefined) session.orphans.add(ticket)
  if (fences.changed(reply.ranges[0]?.pairs[0])) return { seen: undefined }
  if (present !== undefined) return { coming: answerFound(session, present, ticket, { isInDoubt }) }
  return { seen: roomOf(session, ticket, pairs, revision) }
}

function roomOf(session: Session, ticket: Ticket, pairs: readonly KeyValue[], revision: number): EtcdRoom {
  const { rooms } = session
  const entries = session.entries(pairs)
  const isWatched = rooms.get(ticket.key) !== undefined
  if (isWatched && ticket.patienceMs > 0) return rooms.open(ticket.key, entries, revision)
  const room = new EtcdRoom(ticket.key)
  room.fill(entries, revision)
  return room
}

/** Tickets of this process whose time is over are no reason to refuse anybody. */
async function refuse(session: Session, room: EtcdRoom): Promise<Coming | Seen> {
  const clearing = session.timers.expireFront(room)
  if (clearing === undefined) {
    const retryMs = untilChangeMs(session, room)
    return { coming: Promise.resolve({ tag: 'busy', retryMs }) }
  }
  await clearing
  return { seen: undefined }
}

/**
 * Takes all keys in one transaction, if all their rooms are empty. The keys then share one revision, and so one fence.
 * `undefined`: a room is not empty, or the keys are too many for one transaction.
 */
export async function acquireAll(
  session: Session,
  tickets: readonly Ticket[],
): Promise<readonly bigint[] | undefined> {
  if (tickets.length > MOST_AT_ONCE) return undefined
  try {
    return await enterAll(session, tickets)
  } catch (error) {
    if (isHoldfastError(error, 'store-unavailable')) for (const ticket of tickets) session.orphans.add(ticket)
    throw error
  }
}

async function enterAll(
  session: Session,
  tickets: readonly Ticket[],
): Promise<readonly bigint[] | undefined> {
  const { names, leases } = session
  const longestMs = Math.max(...tickets.map(termMs))
  const base = await session.fences.value()
  const lease = await leases.shared(longestMs)
  // Sent in parallel with the transaction below.
  leases.ensure(lease, longestMs).catch(() => {})
  const at = Date.now()
  const named = tickets.map((ticket) => ({ ticket, name: names.ticket(ticket.key, ticket.id) }))
  const told = await session
    .transact({
      when: [
        { that: 'value', is: 'equal', key: base.name, value: base.text },
        ...tickets.map(({ key }) => isEmpty(names.room(key))),
      ],
      apply: named.map(({ ticket, name }) => ({
        tag: 'put',
        key: name,
        value: ticketText(ticketValue(ticket, { at })),
        lease: lease.id,
      })),
      // Ours may be there already, by a request whose answer was lost.
      otherwise: named.map(({ name }) => ({ tag: 'range', key: name })),
    })
    .catch((error: unknown) => session.leaseGone(error, lease))
  if (told === undefined) return undefined
  const { reply, isInDoubt } = told
  const { revision } = reply
  const answers = named.map(({ ticket, name }, index) => {
    if (reply.succeeded) {
      const key = { name, at, createRevision: revision, revision, lease, holdLease: lease, isInDoubt }
      const own = session.track(ticket, key)
      own.offered(performance.now(), ticket.ttlMs)
      return answerNew(session, own, { others: undefined, revision })
    }
    const pair = reply.ranges[index]?.pairs[0]
    return pair && answerFound(session, pair, ticket, { isInDoubt })
  })
  if (answers.every((answer) => answer === undefined)) {
    // An earlier try may come in yet, once nobody is there.
    if (isInDoubt) for (const ticket of tickets) session.orphans.add(ticket)
    return undefined
  }
  return (await Promise.all(answers)).map((answer, index) => {
    if (answer?.tag === 'held') return answer.fence
    throw tooBusy((tickets[index] as Ticket).key)
  })
}

/**
 * What a ticket is put into a room for: to hold as the first one, to hold beside others, or to wait behind them. A key that
 * waits is bound to the lease of waiters, and a key that holds is not, so this is known before the key is written.
 */
function wayIn(ticket: Ticket, seen: EtcdRoom | undefined, tries: number): WayIn | NoWay {
  const isPatient = ticket.patienceMs > 0
  if (seen === undefined || seen.size === 0) return { tag: 'first' }
  // Where many come at once, each of them changes the room for the others. Behind them nothing has to be as it was.
  const isCrowded = isPatient && tries > MOST_BESIDE
  if (seen.admits(ticket) && !isCrowded) return { tag: 'beside', revision: seen.revision }
  return isPatient ? { tag: 'behind' } : { tag: 'none', room: seen }
}

const MOST_BESIDE = 2

type WayIn =
  | { readonly tag: 'first' }
  | { readonly tag: 'beside'; readonly revision: number }
  | { readonly tag: 'behind' }

interface NoWay {
  readonly tag: 'none'
  readonly room: EtcdRoom
}

/** The key is written, and the next request for it may be sent. The answer may take more requests. */
interface Coming {
  readonly coming: Promise<AcquireAnswer | undefined>
}

/** The key is not written. The room, or undefined where nothing is known of it. */
interface Seen {
  readonly seen: EtcdRoom | undefined
}

/** A comparison and an operation for each, of 128 that etcd takes in all unless it is told to take more; and one for the fence. */
const MOST_AT_ONCE = 100
