import type { AcquireAnswer, Gone, RenewAnswer, Ticket } from '../../contract/store.ts'
import { isHoldfastError } from '../../errors.ts'
import { isAt, MOST_TRIES, tooBusy } from './grpc/conditions.ts'
import type { KeyValue, Operation } from './grpc/messages.ts'
import { ahead, askAgainMs } from './hints.ts'
import { EtcdRoom } from './rooms/room.ts'
import { entryOf, ticketText, ticketValue } from './rooms/room-entry.ts'
import { type OwnTicket, termMs } from './session/own-ticket.ts'
import type { Session } from './session/session.ts'

/**
 * The hand-over within this process: all tickets were offered their keys, which are bound to leases that surely last. There is
 * nothing to ask, and no need to wait for as much as a tick, in which the one before would begin to ask for the key again.
 */
export function takeOffers(session: Session, tickets: readonly Ticket[]): readonly RenewAnswer[] | undefined {
  const now = performance.now()
  const offered: OwnTicket[] = []
  for (const ticket of tickets) {
    const own = session.tickets.get(ticket.id)
    const isOpen = own?.state.tag === 'offered' && own.state.until > now && ticket.minHoldMs === 0
    if (!isOpen) return undefined
    const { lease } = own.binding
    // A key that is still bound to the lease of waiters may be gone.
    if (lease.termMs < termMs(ticket) || !lease.lastsFor(termMs(ticket))) return undefined
    offered.push(own)
  }
  return offered.map((own, index): RenewAnswer => {
    own.confirmed(tickets[index] ?? own.ticket, now)
    session.look(own)
    return { tag: 'held', fence: own.fence }
  })
}

/** Confirms and prolongs tickets, with one request for all that hold. */
export async function renew(session: Session, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
  try {
    return await renewAll(session, tickets)
  } catch (error) {
    // A ticket that comes from another process may be bound to a lease of this one by now.
    const strange = tickets.filter(({ id }) => !session.tickets.has(id))
    if (isHoldfastError(error, 'store-unavailable')) for (const ticket of strange) session.orphans.add(ticket)
    throw error
  }
}

async function renewAll(session: Session, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
  const now = performance.now()
  const held: OwnTicket[] = []
  for (const ticket of tickets) {
    const own = session.tickets.get(ticket.id)
    if (own?.state.tag !== 'held') continue
    own.renewed(ticket.ttlMs, now)
    held.push(own)
  }
  await verify(session, held)
  const verified = new Set(held)
  const answers = tickets.map((ticket) => {
    const own = session.tickets.get(ticket.id)
    if (own === undefined) return find(session, ticket)
    return verified.has(own) ? answerAs(session, own, ticket) : answer(session, own, ticket)
  })
  return (await Promise.all(answers)).map((answer) => answer ?? GONE)
}

/** What there is to say about a ticket of this process. Undefined when its key is gone, and was not removed on purpose. */
export function answer(session: Session, own: OwnTicket, ticket: Ticket): Promise<RenewAnswer | undefined> {
  return own.during(async () => {
    const now = performance.now()
    if (own.state.tag === 'held') {
      own.renewed(ticket.ttlMs, now)
      await verify(session, [own])
    } else if (own.state.tag === 'waiting') {
      own.heard(ticket, now)
      await lookAround(session, own)
    }
    return answerAs(session, own, ticket)
  })
}

/**
 * The same for a ticket that was just written or found. `others` are those that were in its room at that revision; undefined where a
 * watch tells it.
 */
export function answerNew(
  session: Session,
  own: OwnTicket,
  { others, revision }: { readonly others: readonly KeyValue[] | undefined; readonly revision: number },
): Promise<AcquireAnswer | undefined> {
  const { ticket } = own
  return own.during(async () => {
    if (others !== undefined) place(session, own, others, revision)
    return withAhead(session, ticket, await answer(session, own, ticket))
  })
}

/** An acquire is told how many are ahead, too. */
export function withAhead(
  session: Session,
  ticket: Ticket,
  answer: RenewAnswer | undefined,
): AcquireAnswer | undefined {
  return answer?.tag === 'queued' ? { ...answer, ahead: ahead(session, ticket) } : answer
}

/** Whether it is the turn of a ticket, by who else was in its room. */
function place(session: Session, own: OwnTicket, others: readonly KeyValue[], revision: number): void {
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

/** By what the ticket is now. */
async function answerAs(session: Session, own: OwnTicket, ticket: Ticket): Promise<RenewAnswer | undefined> {
  if (own.state.tag === 'ending') await own.state.done
  switch (own.state.tag) {
    case 'waiting':
      return keepWaiting(session, own, ticket)
    case 'offered':
    case 'held':
      return confirm(session, own, ticket)
    case 'leaving':
      return GONE
    // Taken away meanwhile, or ended: what became of it stands in etcd.
    case 'ending':
    case 'forgotten':
      return find(session, ticket)
    default:
      return own.state satisfies never
  }
}

async function keepWaiting(
  session: Session,
  own: OwnTicket,
  ticket: Ticket,
): Promise<RenewAnswer | undefined> {
  const { lease } = own.binding
  await session.leases.ensure(lease, Math.min(termMs(ticket), lease.ttlMs / 2))
  if (own.binding.lease.isLost) return undefined
  if (own.state.tag !== 'waiting') return answerAs(session, own, ticket)
  own.waits(ticket)
  return { tag: 'queued', askAgainMs: askAgainMs(session, own) }
}

/** Promises the ticket its ttl, once the lease surely lasts as long. */
async function confirm(session: Session, own: OwnTicket, ticket: Ticket): Promise<RenewAnswer | undefined> {
  own.confirmed(ticket, performance.now())
  const isBound = await session.keys.bind(own)
  if (isBound) await session.leases.ensure(own.binding.lease, termMs(ticket))
  // Evicted meanwhile, say.
  if (!isBound || own.binding.lease.isLost || own.state.tag !== 'held') {
    if (own.state.tag === 'ending') await own.state.done
    return find(session, ticket)
  }
  own.renewed(ticket.ttlMs, performance.now())
  session.look(own)
  return { tag: 'held', fence: own.fence }
}

/** Asks whether the keys of holders are as this process left them. A ticket whose key is not, is no longer ours. */
async function verify(session: Session, held: readonly OwnTicket[]): Promise<void> {
  const batches: OwnTicket[][] = []
  for (let start = 0; start < held.length; start += MOST_COMPARES)
    batches.push(held.slice(start, start + MOST_COMPARES))
  await Promise.all(
    batches.map(async (batch) => {
      const { reply } = await session.transact({
        when: batch.map(({ name, binding }) => isAt(name, binding.revision)),
        apply: [],
        // Reads as well where there is nothing to do, so that etcd asks its other members what is true.
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
 * Finds out whether it is a waiter's turn. What its room shows is enough to say that it is; to say that it is not, the room has to
 * be as new as the question, since a release may have been answered before the watch tells of it.
 */
async function lookAround(session: Session, own: OwnTicket): Promise<void> {
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
  // Those in front of it that were forgotten are removed first.
  for (let clearing = timers.expireFront(room); clearing !== undefined; clearing = timers.expireFront(room)) {
    await clearing
    session.admit(room)
  }
}

/** What etcd knows of a ticket that is not ours: it becomes ours, if it is there. */
async function find(session: Session, ticket: Ticket): Promise<RenewAnswer | undefined> {
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const { pairs } = await session.read({ key: session.names.ticket(ticket.key, ticket.id) })
    if (pairs[0] === undefined) return undefined
    const answer = await answerFound(session, pairs[0], ticket, { isInDoubt: false })
    if (answer !== undefined && answer.tag !== 'busy') return answer
  }
  throw tooBusy(ticket.key)
}

/** The key of the ticket is there. Undefined when it changed meanwhile. */
export async function answerFound(
  session: Session,
  pair: KeyValue,
  ticket: Ticket,
  { isInDoubt }: { readonly isInDoubt: boolean },
): Promise<AcquireAnswer | undefined> {
  const { leases, names } = session
  const { name, createRevision, modRevision, value } = entryOf(pair, names)
  if (value.state === 'gone')
    return value.evicted ? { tag: 'gone', evicted: true, reason: value.reason } : GONE
  if (value.state !== 'here') return GONE
  await session.fences.value()
  const holdLease = await leases.shared(termMs(ticket))
  const bound = leases.keptAlive(pair.lease)
  // One that comes from another process may hold: its key must never be bound to the lease of waiters.
  const lease = bound ?? holdLease
  const isOurs = bound !== undefined
  const { at } = value
  const put: Operation = {
    tag: 'put',
    key: name,
    value: ticketText(ticketValue(ticket, { at })),
    lease: lease.id,
  }
  const range: Operation = { tag: 'range', ...names.room(ticket.key) }
  const told = await session
    .transact({
      when: [isAt(name, modRevision)],
      apply: isOurs ? [range] : [put, range],
      otherwise: [],
    })
    .catch((error: unknown) => session.leaseGone(error, lease))
  if (told === undefined || !told.reply.succeeded) return undefined
  const { reply } = told
  const own = session.track(ticket, {
    ...{ name, at, createRevision, lease, holdLease },
    revision: isOurs ? modRevision : reply.revision,
    isInDoubt: isInDoubt || told.isInDoubt,
  })
  const pairs = reply.ranges.at(-1)?.pairs ?? []
  const others = pairs.filter(({ key }) => key !== name)
  return answerNew(session, own, { others, revision: reply.revision })
}

const GONE: Gone = { tag: 'gone', evicted: false }
/** etcd takes 128 per transaction, unless it is told to take more. */
const MOST_COMPARES = 100
