import { type AcquireAnswer, GONE, type Ticket } from '../../contract/store.ts'
import { answerFound, answerOwn, answerWritten, patienceWithDeletions, withAhead } from './answer.ts'
import { isEmpty, isNew, isOlder, MOST_TRIES, tooBusy } from './grpc/conditions.ts'
import type { KeyValue, Operation } from './grpc/messages.ts'
import { untilChangeMs } from './hints.ts'
import { EtcdRoom } from './rooms/room.ts'
import { ticketText, ticketValue } from './rooms/room-entry.ts'
import { fenceFrom } from './session/fence-base.ts'
import { termMs } from './session/own-ticket.ts'
import type { Session } from './session/session.ts'

/**
 * Writes the key of a ticket, unless it is there, and answers whether the ticket holds. On its way a ticket passes through:
 *
 *  1. this file: where the ticket belongs in its room, and the transaction that writes its key;
 *  2. answer.ts: the ticket becomes one of this process (session/session.ts, session/own-ticket.ts);
 *  3. for a holder session/own-keys.ts: its key is bound to a lease that lasts for its ttl;
 *     for a waiter rooms/watched-rooms.ts: its room is watched.
 */
export async function acquire(session: Session, ticket: Ticket): Promise<AcquireAnswer> {
  const own = session.tickets.get(ticket.id)
  const known =
    own && (await sent(session, [ticket], answerOwn(session, own, ticket, patienceWithDeletions([ticket]))))
  return withAhead(session, ticket, known) ?? enterOnce(session, ticket)
}

/** Requests that may have written the keys of these tickets. If their answer is lost, the keys may be written later, too. */
async function sent<T>(session: Session, tickets: readonly Ticket[], answer: Promise<T>): Promise<T> {
  try {
    return await answer
  } catch (error) {
    if (session.cluster.leavesDoubt(error)) for (const ticket of tickets) session.orphans.add(ticket)
    throw error
  }
}

/**
 * While etcd is slow, the engine asks again and again for a ticket that waits for its turn to be written. All these requests get
 * the answer of the first one.
 */
function enterOnce(session: Session, ticket: Ticket): Promise<AcquireAnswer> {
  const entering = () => enter(session, ticket)
  return ticket.patienceMs === 0 ? entering() : session.serial.join(ticket.id, entering)
}

async function enter(session: Session, ticket: Ticket): Promise<AcquireAnswer> {
  const write = async (): Promise<KeyDecided> =>
    session.serial.isGivenUp(ticket.id) ? decided(Promise.resolve(GONE)) : writeKey(session, ticket)
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    // The key that is being deleted would be found, and taken for one that the ticket still has.
    const state = session.tickets.get(ticket.id)?.state
    if (state?.tag === 'ending') await state.done
    const { coming } = await (ticket.patienceMs === 0 ? write() : session.serial.run(ticket.key, write))
    const answer = await sent(session, [ticket], coming)
    if (answer !== undefined) return answer
  }
  throw tooBusy(ticket.key)
}

async function writeKey(session: Session, ticket: Ticket): Promise<KeyDecided> {
  let room = ticket.patienceMs > 0 ? session.rooms.get(ticket.key) : undefined
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const place = placeIn(room, ticket, tries)
    const tried =
      place.tag === 'refused' ? await refuse(session, place.room) : await tryToWrite(session, ticket, place)
    if (tried.tag === 'decided') return tried
    room = tried.room
  }
  throw tooBusy(ticket.key)
}

/** One try to write the key. If the room is not as it was known, the result is the room as it is. */
async function tryToWrite(
  session: Session,
  ticket: Ticket,
  place: TicketPlace,
): Promise<KeyDecided | StaleRoom> {
  const { fences, names, leases, rooms } = session
  const base = await fences.value()
  const holdLease = await leases.shared(termMs(ticket))
  // Sent in parallel with the transaction below.
  leases.ensure(holdLease, termMs(ticket)).catch(() => {})
  const lease = place.tag === 'behind' ? await leases.waiting() : holdLease
  const name = names.ticket(ticket.key, ticket.id)
  const range = names.room(ticket.key)
  const at = Date.now()
  const put: Operation = {
    tag: 'put',
    key: name,
    value: ticketText(ticketValue(ticket, { at })),
    lease: lease.id,
  }
  const read: Operation = { tag: 'range', ...range }
  // Only a key that is there keeps a ticket from coming in behind all others, so the others are not asked for.
  const found: Operation = place.tag === 'behind' ? { tag: 'range', key: name } : read
  // If the room is watched, the watch tells a waiter who else is there.
  const isUnwatched = place.tag === 'behind' && rooms.get(ticket.key) === undefined
  const writing = session.transact({
    when: [
      { that: 'value', is: 'equal', key: base.name, value: base.text },
      place.tag === 'first' ? isEmpty(range) : isNew(name),
      ...(place.tag === 'beside' ? [isOlder(range, place.revision)] : []),
    ],
    apply: isUnwatched ? [read, put] : [put],
    otherwise: [{ tag: 'range', key: base.name }, found],
  })
  const told = await sent(session, [ticket], writing).catch((error: unknown) =>
    session.leaseGone(error, lease),
  )
  if (told === undefined) return UNKNOWN_ROOM
  const { reply, isInDoubt } = told
  const { revision } = reply
  if (reply.succeeded) {
    const fence = fenceFrom(base, revision)
    const written = { name, at, createRevision: revision, fence, revision, lease, holdLease, isInDoubt }
    const others = isUnwatched ? reply.ranges[0]?.pairs : undefined
    const isFirst = place.tag !== 'behind'
    return decided(answerWritten(session, ticket, written, { revision, isFirst, others }))
  }
  const pairs = reply.ranges[1]?.pairs ?? []
  const present = pairs.find((pair) => pair.key === name)
  // An earlier try may still write the key, after its caller has left.
  if (isInDoubt && present === undefined) session.orphans.add(ticket)
  if (fences.changed(reply.ranges[0]?.pairs[0])) return UNKNOWN_ROOM
  if (present !== undefined) return decided(answerFound(session, present, ticket, { isInDoubt }))
  // The base of the fences is another one by now. Nothing was read of the room.
  if (place.tag === 'behind') return UNKNOWN_ROOM
  return { tag: 'stale', room: roomOf(session, ticket, pairs, revision) }
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

/** Answers `busy`, unless tickets of this process whose time is over stand in front. These are deleted first. */
async function refuse(session: Session, room: EtcdRoom): Promise<KeyDecided | StaleRoom> {
  const ending = session.timers.expireFront(room)
  if (ending === undefined) {
    const retryMs = untilChangeMs(session, room)
    return decided(Promise.resolve({ tag: 'busy', retryMs }))
  }
  await ending
  return UNKNOWN_ROOM
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
  const { names, leases } = session
  const longestMs = Math.max(...tickets.map(termMs))
  const base = await session.fences.value()
  const lease = await leases.shared(longestMs)
  // Sent in parallel with the transaction below.
  leases.ensure(lease, longestMs).catch(() => {})
  const at = Date.now()
  const named = tickets.map((ticket) => ({ ticket, name: names.ticket(ticket.key, ticket.id) }))
  const writing = session.transact({
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
    // The keys of these tickets may be there already, by a request whose answer was lost.
    otherwise: named.map(({ name }) => ({ tag: 'range', key: name })),
  })
  const told = await sent(session, tickets, writing).catch((error: unknown) =>
    session.leaseGone(error, lease),
  )
  if (told === undefined) return undefined
  const { reply, isInDoubt } = told
  const { revision } = reply
  const answers = named.map(({ ticket, name }, index) => {
    if (reply.succeeded) {
      const fence = fenceFrom(base, revision)
      const own = { name, at, createRevision: revision, fence, revision }
      const written = { ...own, lease, holdLease: lease, isInDoubt }
      return answerWritten(session, ticket, written, { revision, isFirst: true, others: undefined })
    }
    const pair = reply.ranges[index]?.pairs[0]
    return pair && answerFound(session, pair, ticket, { isInDoubt })
  })
  // An earlier try may still write the keys, once the rooms are empty.
  if (isInDoubt)
    for (const [index, ticket] of tickets.entries())
      if (answers[index] === undefined) session.orphans.add(ticket)
  if (answers.every((answer) => answer === undefined)) return undefined
  return (await sent(session, tickets, Promise.all(answers))).map((answer, index) => {
    if (answer?.tag === 'held') return answer.fence
    throw tooBusy((tickets[index] as Ticket).key)
  })
}

/**
 * Where a ticket belongs in its room. A key that waits is bound to the lease of waiters, and a key that holds is not, so this has
 * to be known before the key is written.
 */
function placeIn(room: EtcdRoom | undefined, ticket: Ticket, tries: number): TicketPlace | Refused {
  const isPatient = ticket.patienceMs > 0
  if (room === undefined || room.size === 0) return { tag: 'first' }
  // If many come at once, each of them changes the room for the others. Behind them a ticket may come in whatever has changed.
  const isCrowded = isPatient && tries > MOST_BESIDE
  if (room.admits(ticket) && !isCrowded) return { tag: 'beside', revision: room.revision }
  return isPatient ? { tag: 'behind' } : { tag: 'refused', room }
}

const MOST_BESIDE = 2

/** First in an empty room, beside the holders of a room that has not changed since this revision, or behind them. */
type TicketPlace =
  | { readonly tag: 'first' }
  | { readonly tag: 'beside'; readonly revision: number }
  | { readonly tag: 'behind' }

/** The key is taken, and the ticket does not wait. */
interface Refused {
  readonly tag: 'refused'
  readonly room: EtcdRoom
}

/** The key is written, found or refused, so the next request for it may be sent. The answer may take more requests. */
interface KeyDecided {
  readonly tag: 'decided'
  readonly coming: Promise<AcquireAnswer | undefined>
}

function decided(coming: Promise<AcquireAnswer | undefined>): KeyDecided {
  return { tag: 'decided', coming }
}

/** The key is not written: the room is not as it was known. Undefined: nothing is known of it. */
interface StaleRoom {
  readonly tag: 'stale'
  readonly room: EtcdRoom | undefined
}

const UNKNOWN_ROOM: StaleRoom = { tag: 'stale', room: undefined }

/** Each ticket needs a comparison and an operation, and the fence one more comparison. etcd takes 128 of each by default. */
const MOST_AT_ONCE = 100
