import { paused, systemClock } from '../../base/clock.ts'
import { type AcquireAnswer, GONE, type RenewAnswer, type Ticket } from '../../contract/store.ts'
import { isAt, MOST_TRIES, tooBusy } from './grpc/conditions.ts'
import type { KeyValue, Operation } from './grpc/messages.ts'
import { ahead, askAgainMs } from './hints.ts'
import { EtcdRoom } from './rooms/room.ts'
import { entryOf, ticketText, ticketValue } from './rooms/room-entry.ts'
import { fenceFrom } from './session/fence-base.ts'
import { type OwnTicket, termMs } from './session/own-ticket.ts'
import type { Session, Written } from './session/session.ts'

/**
 * Answers acquire and renew: finds out whether a ticket holds, and if so makes sure that it goes on holding. There are
 * three ways in:
 *
 * - `own`: the ticket is one of this process. A holder's key is compared with etcd, a waiter's room is read.
 * - `written`: its key was just written, and the reply tells who else is in the room.
 * - `found`: this process does not know the ticket, but its key. The ticket becomes one of this process.
 *
 * Each way is one try, and all of them end in `tryByState`. If a try ends in `read-again`, {@link answerUnknown} reads the key
 * and tries once more. `undefined`: the key is gone or has changed meanwhile, and was not removed on purpose.
 */
export function answerOwn(
  session: Session,
  own: OwnTicket,
  ticket: Ticket,
  giveUpAt: number,
): Promise<RenewAnswer | undefined> {
  return own.during(async () => {
    const tried = await tryOwn(session, own, ticket, giveUpAt)
    return tried === 'read-again' ? answerUnknown(session, ticket, giveUpAt) : tried
  })
}

/** A ticket of this process whose key was just compared with etcd. */
export async function answerVerified(
  session: Session,
  own: OwnTicket,
  ticket: Ticket,
  giveUpAt: number,
): Promise<RenewAnswer | undefined> {
  const tried = await tryByState(session, own, ticket, giveUpAt)
  return tried === 'read-again' ? answerUnknown(session, ticket, giveUpAt) : tried
}

export async function answerWritten(
  session: Session,
  ticket: Ticket,
  written: Written,
  surroundings: Surroundings,
): Promise<AcquireAnswer | undefined> {
  const giveUpAt = patienceWithDeletions([ticket])
  const tried = await tryWritten(session, ticket, written, { ...surroundings, giveUpAt })
  if (tried !== 'read-again') return tried
  return withAhead(session, ticket, await answerUnknown(session, ticket, giveUpAt))
}

/** `isInDoubt`: a request that writes the key got no answer, and may still be carried out. */
export async function answerFound(
  session: Session,
  pair: KeyValue,
  ticket: Ticket,
  doubt: { readonly isInDoubt: boolean },
): Promise<AcquireAnswer | undefined> {
  const giveUpAt = patienceWithDeletions([ticket])
  const tried = await tryFound(session, pair, ticket, { ...doubt, giveUpAt })
  if (tried !== 'read-again') return tried
  return withAhead(session, ticket, await answerUnknown(session, ticket, giveUpAt))
}

/** Reads the key of the ticket until a try has an answer. */
export async function answerUnknown(
  session: Session,
  ticket: Ticket,
  giveUpAt: number,
): Promise<RenewAnswer | undefined> {
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const { pairs } = await session.read({ key: session.names.ticket(ticket.key, ticket.id) })
    if (pairs[0] === undefined) return undefined
    const tried = await tryFound(session, pairs[0], ticket, { isInDoubt: false, giveUpAt })
    if (tried !== undefined && tried !== 'read-again' && tried.tag !== 'busy') return tried
  }
  throw tooBusy(ticket.key)
}

/** What one try ends in. `read-again`: only the key in etcd tells what became of the ticket. */
type Tried<A> = A | 'read-again' | undefined

async function tryOwn(
  session: Session,
  own: OwnTicket,
  ticket: Ticket,
  giveUpAt: number,
): Promise<Tried<RenewAnswer>> {
  const now = performance.now()
  if (own.state.tag === 'held') {
    own.renewed(ticket.ttlMs, now)
    await verify(session, [own])
  } else if (own.state.tag === 'waiting') {
    own.heard(ticket, now)
    await lookAround(session, own, giveUpAt)
  }
  return tryByState(session, own, ticket, giveUpAt)
}

/** How the room was in the transaction that wrote or found a key. */
interface Surroundings {
  readonly revision: number
  /** The transaction has shown that the ticket may hold. */
  readonly isFirst: boolean
  /** The other keys of the room; undefined if a watch tells them. */
  readonly others: readonly KeyValue[] | undefined
}

async function tryWritten(
  session: Session,
  ticket: Ticket,
  written: Written,
  { revision, isFirst, others, giveUpAt }: Surroundings & Patience,
): Promise<Tried<AcquireAnswer>> {
  const own = session.track(ticket, written)
  if (isFirst) own.offered(performance.now(), ticket.ttlMs)
  return own.during(async () => {
    if (others !== undefined) offerIfFirst(session, own, others, revision)
    const tried = await tryOwn(session, own, ticket, giveUpAt)
    return tried === 'read-again' ? tried : withAhead(session, ticket, tried)
  })
}

/** The key of the ticket was found. Binds it to a lease of this process, if it is not. Undefined if it changed meanwhile. */
async function tryFound(
  session: Session,
  pair: KeyValue,
  ticket: Ticket,
  { isInDoubt, giveUpAt }: { readonly isInDoubt: boolean } & Patience,
): Promise<Tried<AcquireAnswer>> {
  const { leases, names } = session
  const { name, createRevision, modRevision, value } = entryOf(pair, names)
  if (value.state === 'gone')
    return value.evicted ? { tag: 'gone', evicted: true, reason: value.reason } : GONE
  if (value.state !== 'here') return GONE
  const base = await session.fences.value()
  const holdLease = await leases.shared(termMs(ticket))
  const bound = leases.keptAlive(pair.lease)
  // A ticket of another process may hold: its key must never be bound to the lease of waiters.
  const lease = bound ?? holdLease
  const isOurs = bound !== undefined
  const { at } = value
  const text = ticketText(ticketValue(ticket, { at }))
  const put: Operation = { tag: 'put', key: name, value: text, lease: lease.id }
  const range: Operation = { tag: 'range', ...names.room(ticket.key) }
  const told = await session
    .transact({
      when: [{ that: 'value', is: 'equal', key: base.name, value: base.text }, isAt(name, modRevision)],
      apply: isOurs ? [range] : [put, range],
      otherwise: [{ tag: 'range', key: base.name }],
    })
    .catch((error: unknown) => session.leaseGone(error, lease))
  if (told === undefined) return undefined
  if (!told.reply.succeeded)
    return session.fences.changed(told.reply.ranges[0]?.pairs[0]) ? 'read-again' : undefined
  const { revision, ranges } = told.reply
  const written = {
    ...{ name, at, createRevision, fence: fenceFrom(base, createRevision), lease, holdLease },
    revision: isOurs ? modRevision : revision,
    isInDoubt: isInDoubt || told.isInDoubt,
  }
  const others = ranges.at(-1)?.pairs.filter(({ key }) => key !== name) ?? []
  return tryWritten(session, ticket, written, { revision, isFirst: false, others, giveUpAt })
}

/** Adds to the answer of a waiter how many others are ahead. */
export function withAhead(
  session: Session,
  ticket: Ticket,
  answer: RenewAnswer | undefined,
): AcquireAnswer | undefined {
  return answer?.tag === 'queued' ? { ...answer, ahead: ahead(session, ticket) } : answer
}

/**
 * Decides whether it is the turn of a ticket, by the others in its room, and offers it the key. If it is not, the room is watched
 * from now on.
 */
function offerIfFirst(session: Session, own: OwnTicket, others: readonly KeyValue[], revision: number): void {
  const { name, at, createRevision, binding, ticket } = own
  const { key, id } = ticket
  const isWatched = session.rooms.get(key) !== undefined
  const isAlone = others.length === 0 && !isWatched
  const mine = {
    ...{ name, key, id, createRevision, value: ticketValue(ticket, { at }) },
    ...{ modRevision: binding.revision, lease: binding.lease.id },
  }
  const entries = [...session.entries(others), mine]
  const room = new EtcdRoom(key)
  room.fill(entries, revision)
  const isIn =
    isAlone || (room.lockDelays.size === 0 && room.divide().holders.some((other) => other.id === id))
  if (isIn && own.state.tag === 'waiting') own.offered(performance.now(), ticket.ttlMs)
  if (!isIn || isWatched) session.rooms.open(key, entries, revision)
}

/** Answers by the state that the ticket has now. A ticket that was offered its key or holds is confirmed. */
async function tryByState(
  session: Session,
  own: OwnTicket,
  ticket: Ticket,
  giveUpAt: number,
): Promise<Tried<RenewAnswer>> {
  if (own.state.tag === 'waiting') {
    const { lease } = own.binding
    await session.leases.ensure(lease, Math.min(termMs(ticket), lease.ttlMs / 2))
    if (own.binding.lease.isLost) return undefined
  }
  switch (own.state.tag) {
    case 'waiting':
      own.waits(ticket)
      return { tag: 'queued', askAgainMs: askAgainMs(session, own) }
    case 'offered':
    case 'held':
      if (await session.keys.hold(own, ticket)) {
        session.look(own)
        return { tag: 'held', fence: own.fence }
      }
      // The ticket was evicted meanwhile, for example.
      return afterDeletion(own, giveUpAt)
    case 'leaving':
      return GONE
    // Taken over or ended meanwhile.
    case 'ending':
    case 'forgotten':
      return afterDeletion(own, giveUpAt)
    default:
      return own.state satisfies never
  }
}

/** If the key of the ticket is being deleted, waits for that. If that takes long, the ticket is answered like one that is gone. */
async function afterDeletion({ state }: OwnTicket, giveUpAt: number): Promise<'read-again' | undefined> {
  return state.tag !== 'ending' || (await isDoneBy(giveUpAt, state.done)) ? 'read-again' : undefined
}

interface Patience {
  /** Until when the answer may wait for deletions, by the monotonic clock. */
  readonly giveUpAt: number
}

/**
 * Until when the answers to these tickets may wait for deletions. That is not for long: all tickets of one call are answered
 * together, and some of them hold.
 */
export function patienceWithDeletions(tickets: readonly Ticket[]): number {
  const shortestMs = Math.min(...tickets.map(({ ttlMs }) => ttlMs))
  return performance.now() + Math.min(LONGEST_DELETIONS_MS, shortestMs / 6)
}

async function isDoneBy(giveUpAt: number, deletion: Promise<void>): Promise<boolean> {
  const waiting = new AbortController()
  const done = deletion.then(() => true)
  const leftMs = Math.max(0, giveUpAt - performance.now())
  const late = paused(systemClock, leftMs, waiting.signal).then(() => false)
  return Promise.race([done, late]).finally(() => waiting.abort())
}

/** Asks whether the keys of holders are as this process left them. A ticket whose key is not is no longer one of this process. */
export async function verify(session: Session, held: readonly OwnTicket[]): Promise<void> {
  const batches: OwnTicket[][] = []
  for (let start = 0; start < held.length; start += MOST_COMPARES)
    batches.push(held.slice(start, start + MOST_COMPARES))
  await Promise.all(
    batches.map(async (batch) => {
      const { reply } = await session.transact({
        when: batch.map(({ name, binding }) => isAt(name, binding.revision)),
        apply: [],
        // If no branch had a read, etcd would let one member answer alone, which may be behind the others.
        otherwise: batch.map(({ name }) => ({ tag: 'range', key: name })),
      })
      if (reply.succeeded) return
      for (const [index, own] of batch.entries()) {
        const pair = reply.ranges[index]?.pairs[0]
        if (pair === undefined) session.forget(own)
        else session.seen(own, entryOf(pair, session.names))
      }
    }),
  )
}

/**
 * Finds out whether it is a waiter's turn. The room as this process knows it is enough to say yes. To say no, the room has to be
 * as new as this request: a release may have been answered before the watch tells of it.
 */
async function lookAround(session: Session, own: OwnTicket, giveUpAt: number): Promise<void> {
  const { rooms, timers } = session
  const { key, id } = own.ticket
  let room = rooms.get(key)
  if (room !== undefined) {
    if (!(await rooms.reached(room, own.createRevision))) room = undefined
    else session.admit(room)
    if (own.state.tag !== 'waiting') return
  }
  const isFirst = own.isFirstRead()
  if (room === undefined) room = await rooms.read(key)
  else if (!isFirst) await rooms.refresh(room)
  if (rooms.get(key) === room && !room.tickets.has(id)) session.forget(own)
  session.admit(room)
  // Tickets in front of it whose time is over are deleted first.
  for (let ending = timers.expireFront(room); ending !== undefined; ending = timers.expireFront(room)) {
    // A deletion that ends later lets the waiter in by itself, and wakes it.
    if (!(await isDoneBy(giveUpAt, ending))) return
    session.admit(room)
  }
}

/** etcd takes 128 comparisons in a transaction, unless it is configured to take more. */
const MOST_COMPARES = 100
/** A deletion takes one request. It takes longer only if etcd does not answer. */
const LONGEST_DELETIONS_MS = 500
