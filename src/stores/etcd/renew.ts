import type { AcquireAnswer, Gone, RenewAnswer, Ticket } from '../../contract/store.ts'
import { isAt, MOST_TRIES, tooBusy } from './grpc/conditions.ts'
import type { KeyValue, Operation } from './grpc/messages.ts'
import { Room } from './rooms/room.ts'
import { entryOf, kept, ticketValue } from './rooms/ticket-value.ts'
import { type OwnTicket, termMs } from './session/own-ticket.ts'
import type { Register } from './session/session.ts'
import { ATTEND_MS } from './session/ticket-timers.ts'

/** What there is to say about tickets that are there: whether they hold, and that they go on to. */
export class Presence {
  readonly #register: Register

  constructor(register: Register) {
    this.#register = register
  }

  /**
   * The hand-over within this process: all of them were offered their keys, which are bound to leases that surely last. There
   * is nothing to ask, and no need to wait for as much as a tick, in which the one before would begin to ask for the key again.
   */
  takeOffers(tickets: readonly Ticket[]): readonly RenewAnswer[] | undefined {
    const now = performance.now()
    const offered: OwnTicket[] = []
    for (const ticket of tickets) {
      const own = this.#register.own.get(ticket.id)
      const isOpen = own?.state === 'offered' && own.until > now && ticket.minHoldMs === 0
      // One that is still bound to the lease of waiters has to find out first whether it is still there.
      if (!isOpen || own.lease.termMs < termMs(ticket) || !own.lease.backs(termMs(ticket))) return undefined
      offered.push(own)
    }
    return offered.map((own, index): RenewAnswer => {
      this.#hold(own, tickets[index] ?? own.ticket)
      this.#register.wardens.look(own)
      return { tag: 'held', fence: own.fence }
    })
  }

  /** Its key is there. Who was there at that moment decides whether it holds; `others` is not known where a watch tells it. */
  async entered(
    own: OwnTicket,
    others: readonly KeyValue[] | undefined,
    revision: number,
  ): Promise<AcquireAnswer | undefined> {
    const { ticket } = own
    own.questions += 1
    const watched = this.#register.rooms.get(ticket.key)
    if (watched === undefined && others?.length === 0) own.state = 'offered'
    else if (others !== undefined) {
      const mine = this.#register.entryOf(ticket, {
        ...own,
        lease: own.lease.id,
        revision: own.createRevision,
      })
      const entries = [...this.#register.entries(others), { ...mine, modRevision: own.modRevision }]
      const room = new Room(ticket.key)
      room.fill(entries, revision)
      const isIn = room.closings.size === 0 && room.divide().holders.some(({ id }) => id === ticket.id)
      if (isIn && own.state === 'waiting') own.state = 'offered'
      if (!isIn || watched !== undefined) this.#register.rooms.open(ticket.key, entries, revision)
    }
    own.questions -= 1
    const answer = await this.ask(own, ticket)
    return answer?.tag === 'queued' ? { ...answer, ahead: this.#register.ahead(ticket) } : answer
  }

  /** What there is to say about a ticket of ours; undefined when its key is gone, and was not removed on purpose. */
  async ask(own: OwnTicket, ticket: Ticket): Promise<RenewAnswer | undefined> {
    if (own.state === 'leaving') return GONE
    own.questions += 1
    try {
      const now = performance.now()
      own.heardAt = now
      own.rememberedUntil = now + ticket.patienceMs
      if (own.state === 'held') {
        own.until = Math.max(own.until, now + ticket.ttlMs)
        await this.verify([own])
      } else if (own.state === 'waiting') await this.#lookAround(own)
      await own.ending
      // Taken away from us meanwhile, or ended: what became of it stands in etcd.
      if (this.#register.own.get(ticket.id) !== own) return await this.#find(ticket)
      if (own.state === 'waiting') {
        await this.#register.leases.back(own.lease, Math.min(termMs(ticket), own.lease.ttlMs / 2))
        if (own.lease.isLost) return undefined
        own.ticket = ticket
        return { tag: 'queued', askAgainMs: this.#register.askAgain(own) }
      }
      return await this.#confirm(own, ticket)
    } finally {
      own.questions -= 1
    }
  }

  #hold(own: OwnTicket, ticket: Ticket): void {
    const now = performance.now()
    own.ticket = ticket
    own.until = Math.max(own.until, now + ticket.ttlMs)
    if (own.state === 'held') return
    own.state = 'held'
    own.heldSince = now
    own.attendAt = now + ATTEND_MS
    if (ticket.minHoldMs > 0) own.holdUntil = now + ticket.minHoldMs
  }

  async renewOne(ticket: Ticket): Promise<RenewAnswer> {
    const own = this.#register.own.get(ticket.id)
    if (own === undefined) return (await this.#find(ticket)) ?? GONE
    if (own.state === 'leaving') return GONE
    // Verified with all the others just now.
    if (own.state === 'held') return (await this.#confirm(own, ticket)) ?? GONE
    return (await this.ask(own, ticket)) ?? GONE
  }

  /** Asks whether the keys of holders are as we left them; who is not is no longer ours. */
  async verify(held: readonly OwnTicket[]): Promise<void> {
    const { keys, names } = this.#register
    const batches: OwnTicket[][] = []
    for (let start = 0; start < held.length; start += MOST_COMPARES)
      batches.push(held.slice(start, start + MOST_COMPARES))
    await Promise.all(
      batches.map(async (batch) => {
        const { reply } = await this.#register.transact({
          when: batch.map(({ name, modRevision }) => isAt(name, modRevision)),
          apply: [],
          // Reads as well where there is nothing to do, so that etcd asks its other members what is true.
          otherwise: batch.map(({ name }) => ({ tag: 'range', key: name })),
        })
        if (reply.succeeded) return
        for (const [index, own] of batch.entries()) {
          const pair = reply.ranges[index]?.pairs[0]
          const isOurs = pair !== undefined && keys.adopt(own, entryOf(pair, names))
          if (!isOurs) this.#register.forget(own)
        }
      }),
    )
  }

  /**
   * Finds out whether it is a waiter's turn. What its room shows is enough to say that it is; to say that it is not, the
   * room has to be as new as the question, since a release may have been answered before the watch tells of it.
   */
  async #lookAround(own: OwnTicket): Promise<void> {
    const { key, id } = own.ticket
    let room = this.#register.rooms.get(key)
    if (room !== undefined) {
      if (!(await this.#register.rooms.reached(room, own.createRevision))) room = undefined
      else this.#register.settle(room)
      if (own.state !== 'waiting') return
    }
    const isNew = own.askedRevision !== own.modRevision
    own.askedRevision = own.modRevision
    if (room === undefined) room = await this.#register.rooms.read(key)
    else if (!isNew) await this.#register.rooms.refresh(room)
    if (this.#register.rooms.get(key) === room && !room.tickets.has(id)) this.#register.forget(own)
    this.#register.settle(room)
    // Those in front of it that were forgotten are removed first.
    for (
      let ending = this.#register.wardens.clearing(room);
      ending !== undefined;
      ending = this.#register.wardens.clearing(room)
    ) {
      await ending
      this.#register.settle(room)
    }
  }

  /** Promises the ticket its ttl, once the lease surely lasts as long. */
  async #confirm(own: OwnTicket, ticket: Ticket): Promise<RenewAnswer | undefined> {
    this.#hold(own, ticket)
    const isBound = await this.#register.keys.bind(own)
    if (isBound) await this.#register.leases.back(own.lease, termMs(ticket))
    // Evicted meanwhile, say.
    if (
      !isBound ||
      own.lease.isLost ||
      own.ending !== undefined ||
      this.#register.own.get(ticket.id) !== own
    ) {
      await own.ending
      return this.#find(ticket)
    }
    own.until = Math.max(own.until, performance.now() + ticket.ttlMs, own.holdUntil)
    this.#register.wardens.look(own)
    return { tag: 'held', fence: own.fence }
  }

  /** What etcd knows of a ticket that is not ours: it becomes ours, if it is there. */
  async #find(ticket: Ticket): Promise<RenewAnswer | undefined> {
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const name = this.#register.names.ticket(ticket.key, ticket.id)
      const { reply } = await this.#register.transact({
        when: [],
        apply: [{ tag: 'range', key: name }],
        otherwise: [],
      })
      const pair = reply.ranges[0]?.pairs[0]
      if (pair === undefined) return undefined
      const answer = await this.found(pair, ticket, { isDoubtful: false })
      if (answer !== undefined && answer.tag !== 'busy') return answer
    }
    throw tooBusy(ticket.key)
  }

  async found(
    pair: KeyValue,
    ticket: Ticket,
    { isDoubtful }: { readonly isDoubtful: boolean },
  ): Promise<AcquireAnswer | undefined> {
    const entry = entryOf(pair, this.#register.names)
    const { value } = entry
    if (value.state === 'gone')
      return value.evicted ? { tag: 'gone', evicted: true, reason: value.reason } : GONE
    if (value.state !== 'here') return GONE
    await this.#register.base.value()
    const holdLease = await this.#register.leases.shared(termMs(ticket))
    const bound = this.#register.leases.kept(pair.lease)
    // One that comes from another process may hold: its key must never be bound to the lease of waiters.
    const lease = bound ?? holdLease
    const isOurs = bound !== undefined
    const put: Operation = {
      tag: 'put',
      key: pair.key,
      value: ticketValue(kept(ticket, { at: value.at })),
      lease: lease.id,
    }
    const range: Operation = { tag: 'range', ...this.#register.names.room(ticket.key) }
    const told = await this.#register
      .transact({
        when: [isAt(pair.key, pair.modRevision)],
        apply: isOurs ? [range] : [put, range],
        otherwise: [],
      })
      .catch((error: unknown) => this.#register.leaseGone(error, lease))
    if (told === undefined || !told.reply.succeeded) return undefined
    const { reply } = told
    const modRevision = isOurs ? pair.modRevision : reply.revision
    const own = this.#register.track({ ...entry, modRevision }, ticket, {
      lease,
      holdLease,
      isDoubtful: isDoubtful || told.isDoubtful,
    })
    const pairs = reply.ranges.at(-1)?.pairs ?? []
    return this.entered(
      own,
      pairs.filter(({ key }) => key !== pair.key),
      reply.revision,
    )
  }
}

const GONE: Gone = { tag: 'gone', evicted: false }
/** etcd takes 128 per transaction, unless it is told to take more. */
const MOST_COMPARES = 100
