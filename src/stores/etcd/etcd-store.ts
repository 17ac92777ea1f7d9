import type {
  AcquireAnswer,
  EvictRequest,
  Gone,
  InspectRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomPage,
  Store,
  Ticket,
  Wake,
} from '../../contract/store.ts'
import { TOMBSTONE_MS } from '../../contract/store.ts'
import { StoreError } from '../../errors.ts'
import type { Cluster } from './cluster.ts'
import { isLeaseGone } from './failures.ts'
import { FenceBase } from './fence-base.ts'
import { type Lease, Leases } from './leases.ts'
import {
  type Compare,
  type KeyValue,
  type Operation,
  TXN,
  type TxnReply,
  type TxnRequest,
} from './messages.ts'
import { type OwnTicket, termMs } from './own-ticket.ts'
import { Room } from './room.ts'
import { RoomNames } from './room-names.ts'
import { Rooms } from './rooms.ts'
import { evict, inspect, type Surroundings } from './survey.ts'
import { type Entry, entryOf, kept, ticketValue, tombstoneValue } from './ticket-value.ts'
import { ATTEND_MS, Wardens } from './wardens.ts'

/**
 * Keys in etcd, one per ticket; see `room.ts` for who holds, `leases.ts` for what a crash costs, and `wardens.ts` for what
 * ends a single ticket. Every request is a transaction that names the revision it is about, so it may be repeated, and come
 * late, without any effect but the one that was meant.
 */
export class EtcdStore implements Store {
  readonly name = 'etcd'
  readonly #cluster: Cluster
  readonly #names: RoomNames
  readonly #leases: Leases
  readonly #rooms: Rooms
  readonly #wardens: Wardens
  readonly #base: FenceBase
  readonly #own = new Map<string, OwnTicket>()
  /** By key: the request of the one who came last, while it is under way. */
  readonly #entering = new Map<string, Promise<void>>()
  readonly #surroundings: Surroundings
  readonly #listeners = new Set<{ readonly onWake: (wake: Wake) => void }>()

  constructor(cluster: Cluster, prefix: string) {
    this.#cluster = cluster
    this.#names = new RoomNames(prefix)
    this.#base = new FenceBase(cluster, this.#names, () => this.#reset())
    this.#leases = new Leases(cluster, (lease) => this.#loseAll(lease))
    this.#rooms = new Rooms({
      cluster,
      names: this.#names,
      onChange: (room, { entries, gone }) => this.#changed(room, entries, gone),
    })
    this.#wardens = new Wardens({
      cluster,
      names: this.#names,
      leases: this.#leases,
      rooms: this.#rooms,
      own: this.#own,
      isHeard: () => this.#listeners.size > 0,
      onSettle: (room) => this.#settle(room),
      onSeen: (own, room) => {
        const isGone = !room.tickets.has(own.ticket.id) && this.#own.get(own.ticket.id) === own
        if (isGone && own.createRevision <= room.revision) this.#lose(own)
      },
      onEnded: (own, { isDeleted }) => {
        this.#forget(own)
        if (isDeleted) this.#removed(own)
      },
    })
    this.#surroundings = {
      cluster,
      names: this.#names,
      own: this.#own,
      base: this.#base,
      leases: this.#leases,
      wardens: this.#wardens,
    }
  }

  async acquire(ticket: Ticket): Promise<AcquireAnswer> {
    const own = this.#own.get(ticket.id)
    if (own !== undefined) {
      const answer = await this.#ask(own, ticket)
      if (answer !== undefined)
        return answer.tag === 'queued' ? { ...answer, ahead: this.#ahead(ticket) } : answer
    }
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const answer = await this.#enter(ticket)
      if (answer !== undefined) return answer
    }
    throw tooBusy(ticket.key)
  }

  async renew(tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
    const held: OwnTicket[] = []
    for (const ticket of tickets) {
      const own = this.#own.get(ticket.id)
      if (own?.state !== 'held') continue
      own.until = Math.max(own.until, performance.now() + ticket.ttlMs)
      held.push(own)
    }
    await this.#verify(held)
    return Promise.all(tickets.map((ticket) => this.#renewOne(ticket)))
  }

  async release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    const own = this.#own.get(request.id)
    if (own?.ticket.key === request.key) {
      await own.ending
      const answer =
        own.state === 'ended'
          ? undefined
          : await this.#releaseOwn(own, request).catch((error: unknown) => this.#tombsGone(error))
      if (answer !== undefined) return answer
    }
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const answer = await this.#releaseAny(request).catch((error: unknown) => this.#tombsGone(error))
      if (answer !== undefined) return answer
    }
    throw tooBusy(request.key)
  }

  /** Wakes come from the watches, which are there before anybody has to wait for one. */
  listen(onWake: (wake: Wake) => void): () => void {
    const listener = { onWake }
    this.#listeners.add(listener)
    this.#wardens.look()
    return () => {
      this.#listeners.delete(listener)
    }
  }

  inspect(request: InspectRequest): Promise<RoomPage> {
    return inspect(request, this.#surroundings)
  }

  async evict(request: EvictRequest): Promise<readonly string[]> {
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const evicted = await evict(request, this.#surroundings).catch((error: unknown) =>
        this.#tombsGone(error),
      )
      if (evicted !== undefined) return evicted
    }
    throw tooBusy(request.key)
  }

  async close(): Promise<void> {
    this.#wardens.close()
    this.#leases.close()
    this.#rooms.close()
    this.#cluster.close()
  }

  /** One try to come in. Undefined when something changed meanwhile, so that it has to be tried again. */
  async #enter(ticket: Ticket): Promise<AcquireAnswer | undefined> {
    const base = await this.#base.value()
    const lease = await this.#leases.shared(termMs(ticket))
    // Side by side with the request that needs it.
    const backed = this.#leases.back(lease, termMs(ticket))
    backed.catch(() => {})
    const name = this.#names.ticket(ticket.key, ticket.id)
    const at = Date.now()
    const put: Operation = {
      tag: 'put',
      key: name,
      value: ticketValue(kept(ticket, { at })),
      lease: lease.id,
    }
    const range: Operation = { tag: 'range', ...this.#names.room(ticket.key) }
    const otherwise: Operation[] = [{ tag: 'range', key: base.name }, range]
    const known: Compare = { that: 'value', is: 'equal', key: base.name, value: base.text }
    const room = this.#rooms.get(ticket.key)
    const isPatient = ticket.patienceMs > 0
    const told = await this.#inTurn(ticket, {
      // Who does not wait comes in only where nobody is. Or else it reads who is there.
      when: [known, isPatient ? isNew(name) : isEmpty(this.#names.room(ticket.key))],
      apply: isPatient && room === undefined ? [range, put] : [put],
      otherwise,
    }).catch((error: unknown) => this.#leaseGone(error, lease))
    if (told === undefined) return undefined
    const { reply, isDoubtful } = told
    if (reply.succeeded) {
      const entry = this.#entryOf(ticket, { name, at, lease: lease.id, revision: reply.revision })
      const own = this.#track(entry, ticket, { lease, isDoubtful })
      // Where nobody waits for its turn, it came in because nobody was there.
      const others = isPatient && room !== undefined ? undefined : reply.ranges[0]?.pairs
      return this.#entered(own, others, reply.revision)
    }
    if (this.#base.changed(reply.ranges[0]?.pairs[0])) return undefined
    const pairs = reply.ranges[1]?.pairs ?? []
    const present = pairs.find((pair) => pair.key === name)
    if (present !== undefined) return this.#found(present, ticket, { isDoubtful })
    if (isPatient) return undefined
    return this.#squeezeIn(ticket, { pairs, revision: reply.revision, put, known, lease, at })
  }

  /** For one that does not wait, where others are: it comes in if it may stand beside them and nobody comes before it. */
  async #squeezeIn(ticket: Ticket, seen: Seen): Promise<AcquireAnswer | undefined> {
    const room = new Room(ticket.key)
    room.fill(this.#entries(seen.pairs), seen.revision)
    const { head } = room.divide()
    const name = this.#names.ticket(ticket.key, ticket.id)
    room.put(this.#entryOf(ticket, { name, at: seen.at, lease: 0, revision: seen.revision + 1 }))
    const isAdmitted = head === undefined && room.closings.size === 0 && room.divide().head === undefined
    if (!isAdmitted) {
      room.delete(ticket.id)
      // Tickets of ours whose time is over are no reason to be refused.
      const clearing = this.#wardens.clearing(room)
      if (clearing === undefined) return { tag: 'busy', retryMs: this.#untilChange(room) }
      await clearing
      return undefined
    }
    const { reply, isDoubtful } = await this.#transact({
      when: [seen.known, isOlder(this.#names.room(ticket.key), seen.revision)],
      apply: [seen.put],
      otherwise: [],
    })
    if (!reply.succeeded) return undefined
    const entry = this.#entryOf(ticket, { name, at: seen.at, lease: seen.lease.id, revision: reply.revision })
    const own = this.#track(entry, ticket, { lease: seen.lease, isDoubtful })
    own.state = 'offered'
    return this.#ask(own, ticket) as Promise<AcquireAnswer | undefined>
  }

  /** Its key is there. Who was there at that moment decides whether it holds; `others` is not known where a watch tells it. */
  async #entered(
    own: OwnTicket,
    others: readonly KeyValue[] | undefined,
    revision: number,
  ): Promise<AcquireAnswer | undefined> {
    const { ticket } = own
    own.questions += 1
    const watched = this.#rooms.get(ticket.key)
    if (watched === undefined && others?.length === 0) own.state = 'offered'
    else if (others !== undefined) {
      const mine = this.#entryOf(ticket, { ...own, lease: own.lease.id, revision: own.createRevision })
      const entries = [...this.#entries(others), { ...mine, modRevision: own.modRevision }]
      const room = new Room(ticket.key)
      room.fill(entries, revision)
      const isIn = room.closings.size === 0 && room.divide().holders.some(({ id }) => id === ticket.id)
      if (isIn && own.state === 'waiting') own.state = 'offered'
      if (!isIn || watched !== undefined) this.#rooms.open(ticket.key, entries, revision)
    }
    own.questions -= 1
    const answer = await this.#ask(own, ticket)
    return answer?.tag === 'queued' ? { ...answer, ahead: this.#ahead(ticket) } : answer
  }

  /** What there is to say about a ticket of ours; undefined when its key is gone, and was not removed on purpose. */
  async #ask(own: OwnTicket, ticket: Ticket): Promise<RenewAnswer | undefined> {
    if (own.state === 'leaving') return GONE
    own.questions += 1
    try {
      const now = performance.now()
      own.rememberedUntil = now + ticket.patienceMs
      if (own.state === 'held') {
        own.until = Math.max(own.until, now + ticket.ttlMs)
        await this.#verify([own])
      } else if (own.state === 'waiting') await this.#lookAround(own)
      await own.ending
      // Taken away from us meanwhile, or ended: what became of it stands in etcd.
      if (this.#own.get(ticket.id) !== own) return await this.#find(ticket)
      if (own.state === 'waiting') {
        await this.#leases.back(own.lease, Math.min(termMs(ticket), own.lease.ttlMs / 2))
        if (own.lease.isLost) return undefined
        own.ticket = ticket
        return { tag: 'queued', askAgainMs: this.#askAgain(own) }
      }
      return await this.#confirm(own, ticket)
    } finally {
      own.questions -= 1
    }
  }

  /**
   * Finds out whether it is a waiter's turn. What its room shows is enough to say that it is; to say that it is not, the
   * room has to be as new as the question, since a release may have been answered before the watch tells of it.
   */
  async #lookAround(own: OwnTicket): Promise<void> {
    const { key, id } = own.ticket
    let room = this.#rooms.get(key)
    if (room !== undefined) {
      if (!(await this.#rooms.reached(room, own.createRevision))) room = undefined
      else this.#settle(room)
      if (own.state !== 'waiting') return
    }
    const isNew = own.askedRevision !== own.modRevision
    own.askedRevision = own.modRevision
    if (room === undefined) room = await this.#rooms.read(key)
    else if (!isNew) await this.#rooms.refresh(room)
    if (this.#rooms.get(key) === room && !room.tickets.has(id)) this.#forget(own)
    this.#settle(room)
    // Those in front of it that were forgotten are removed first.
    for (
      let ending = this.#wardens.clearing(room);
      ending !== undefined;
      ending = this.#wardens.clearing(room)
    ) {
      await ending
      this.#settle(room)
    }
  }

  /** Promises the ticket its ttl, once the lease surely lasts as long. */
  async #confirm(own: OwnTicket, ticket: Ticket): Promise<RenewAnswer | undefined> {
    const isNew = own.state !== 'held'
    own.ticket = ticket
    own.until = Math.max(own.until, performance.now() + ticket.ttlMs)
    if (isNew) {
      own.state = 'held'
      own.heldSince = performance.now()
      own.attendAt = own.heldSince + ATTEND_MS
      if (ticket.minHoldMs > 0) own.holdUntil = own.heldSince + ticket.minHoldMs
    }
    const isBound = await this.#wardens.bind(own)
    if (isBound) await this.#leases.back(own.lease, termMs(ticket))
    // Evicted meanwhile, say.
    if (!isBound || own.lease.isLost || own.ending !== undefined || this.#own.get(ticket.id) !== own) {
      await own.ending
      return this.#find(ticket)
    }
    own.until = Math.max(own.until, performance.now() + ticket.ttlMs, own.holdUntil)
    this.#wardens.look(own)
    return { tag: 'held', fence: own.fence }
  }

  async #renewOne(ticket: Ticket): Promise<RenewAnswer> {
    const own = this.#own.get(ticket.id)
    if (own === undefined) return (await this.#find(ticket)) ?? GONE
    if (own.state === 'leaving') return GONE
    // Verified with all the others just now.
    if (own.state === 'held') return (await this.#confirm(own, ticket)) ?? GONE
    return (await this.#ask(own, ticket)) ?? GONE
  }

  /** Asks whether the keys of holders are as we left them; who is not is no longer ours. */
  async #verify(held: readonly OwnTicket[]): Promise<void> {
    const batches: OwnTicket[][] = []
    for (let start = 0; start < held.length; start += MOST_COMPARES)
      batches.push(held.slice(start, start + MOST_COMPARES))
    await Promise.all(
      batches.map(async (batch) => {
        const revisions = batch.map(({ modRevision }) => modRevision)
        const { reply } = await this.#transact({
          when: batch.map(({ name, modRevision }) => isAt(name, modRevision)),
          apply: [],
          // Reads as well where there is nothing to do, so that etcd asks its other members what is true.
          otherwise: batch.map(({ name }) => ({ tag: 'range', key: name })),
        })
        if (reply.succeeded) return
        for (const [index, own] of batch.entries()) {
          const pair = reply.ranges[index]?.pairs[0]
          const isOurs = pair !== undefined && pair.modRevision === revisions[index]
          // Moved to another lease of ours while this was asked.
          const isMoved = own.modRevision !== revisions[index]
          if (!isOurs && !isMoved) this.#forget(own)
        }
      }),
    )
  }

  /** What etcd knows of a ticket that is not ours: it becomes ours, if it is there. */
  async #find(ticket: Ticket): Promise<RenewAnswer | undefined> {
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const name = this.#names.ticket(ticket.key, ticket.id)
      const { reply } = await this.#transact({
        when: [],
        apply: [{ tag: 'range', key: name }],
        otherwise: [],
      })
      const pair = reply.ranges[0]?.pairs[0]
      if (pair === undefined) return undefined
      const answer = await this.#found(pair, ticket, { isDoubtful: false })
      if (answer !== undefined && answer.tag !== 'busy') return answer
    }
    throw tooBusy(ticket.key)
  }

  async #found(
    pair: KeyValue,
    ticket: Ticket,
    { isDoubtful }: { readonly isDoubtful: boolean },
  ): Promise<AcquireAnswer | undefined> {
    const entry = entryOf(pair, this.#names)
    const { value } = entry
    if (value.state === 'gone')
      return value.evicted ? { tag: 'gone', evicted: true, reason: value.reason } : GONE
    if (value.state !== 'here') return GONE
    await this.#base.value()
    const lease = await this.#leases.shared(termMs(ticket))
    const put: Operation = {
      tag: 'put',
      key: pair.key,
      value: ticketValue(kept(ticket, { at: value.at })),
      lease: lease.id,
    }
    const range: Operation = { tag: 'range', ...this.#names.room(ticket.key) }
    const isOurs = pair.lease === lease.id
    const told = await this.#transact({
      when: [isAt(pair.key, pair.modRevision)],
      apply: isOurs ? [range] : [put, range],
      otherwise: [],
    }).catch((error: unknown) => this.#leaseGone(error, lease))
    if (told === undefined || !told.reply.succeeded) return undefined
    const { reply } = told
    const modRevision = isOurs ? pair.modRevision : reply.revision
    const own = this.#track({ ...entry, modRevision }, ticket, {
      lease,
      isDoubtful: isDoubtful || told.isDoubtful,
    })
    const pairs = reply.ranges.at(-1)?.pairs ?? []
    return this.#entered(
      own,
      pairs.filter(({ key }) => key !== pair.key),
      reply.revision,
    )
  }

  async #releaseOwn(own: OwnTicket, request: ReleaseRequest): Promise<ReleaseAnswer | undefined> {
    if (own.state === 'leaving') return { was: 'unknown' }
    const was = own.state === 'waiting' ? 'queued' : 'held'
    const isEarly = was === 'held' && own.holdUntil > performance.now()
    if (isEarly) return (await this.#wardens.leave(own)) ? { was } : undefined
    // Its deletion is our own doing, and wakes nobody.
    own.questions += 1
    try {
      const operation = await this.#removal(own.name, request.cancel || own.isDoubtful)
      const { reply } = await this.#transact({
        when: [isAt(own.name, own.modRevision)],
        apply: [operation],
        otherwise: [],
      })
      this.#forget(own)
      if (!reply.succeeded) return undefined
      this.#removed(own)
      return { was }
    } finally {
      own.questions -= 1
    }
  }

  async #releaseAny({ key, id, cancel }: ReleaseRequest): Promise<ReleaseAnswer | undefined> {
    const name = this.#names.ticket(key, id)
    const { reply } = await this.#transact({
      when: [],
      apply: [{ tag: 'range', ...this.#names.room(key) }],
      otherwise: [],
    })
    const room = new Room(key)
    const entries = this.#entries(reply.ranges[0]?.pairs ?? [])
    const present = entries.find((entry) => entry.name === name)
    if (present === undefined) {
      if (!cancel) return { was: 'unknown' }
      const burial = await this.#transact({
        when: [isNew(name)],
        apply: [await this.#removal(name, true)],
        otherwise: [],
      })
      return burial.reply.succeeded ? { was: 'unknown' } : undefined
    }
    if (present.value.state !== 'here') return { was: 'unknown' }
    room.fill(entries, reply.revision)
    const isIn = room.divide().holders.some((entry) => entry.id === id)
    const operation: Operation = present.value.pinned
      ? {
          tag: 'put',
          key: name,
          value: ticketValue({ ...present.value, state: 'leaving' }),
          lease: present.lease,
        }
      : await this.#removal(name, cancel)
    const told = await this.#transact({
      when: [isAt(name, present.modRevision)],
      apply: [operation],
      otherwise: [],
    })
    return told.reply.succeeded ? { was: isIn ? 'held' : 'queued' } : undefined
  }

  async #removal(name: string, isBuried: boolean): Promise<Operation> {
    if (!isBuried) return { tag: 'delete', key: name }
    const { id } = await this.#leases.tombs(TOMBSTONE_MS)
    return { tag: 'put', key: name, value: tombstoneValue({ evicted: false }), lease: id }
  }

  /** etcd carries out what it gets at the same time in any order. Those of one process stay in the order of their calls. */
  #inTurn(ticket: Ticket, request: TxnRequest): Promise<{ reply: TxnReply; isDoubtful: boolean }> {
    if (ticket.patienceMs === 0) return this.#transact(request)
    const { key } = ticket
    const before = this.#entering.get(key)
    const turn = before === undefined ? this.#transact(request) : before.then(() => this.#transact(request))
    const done = turn.then(
      () => {},
      () => {},
    )
    this.#entering.set(key, done)
    void done.then(() => this.#entering.get(key) === done && this.#entering.delete(key))
    return turn
  }

  #transact(request: TxnRequest): Promise<{ reply: TxnReply; isDoubtful: boolean }> {
    return this.#cluster.ask(TXN, request)
  }

  /** Nothing was written: the next try takes a new lease. */
  #leaseGone(error: unknown, lease: Lease): undefined {
    if (!isLeaseGone(error)) throw error
    this.#leases.lost(lease)
    return undefined
  }

  #tombsGone(error: unknown): undefined {
    if (!isLeaseGone(error)) throw error
    this.#leases.tombsLost()
    return undefined
  }

  #entryOf(
    ticket: Ticket,
    { name, at, lease, revision }: { name: string; at: number; lease: number; revision: number },
  ): Entry {
    const { key, id } = ticket
    const value = kept(ticket, { at })
    return { name, key, id, lease, createRevision: revision, modRevision: revision, value }
  }

  #entries(pairs: readonly KeyValue[]): Entry[] {
    return pairs.map((pair) => entryOf(pair, this.#names))
  }

  #track(
    entry: Entry,
    ticket: Ticket,
    { lease, isDoubtful }: { lease: Lease; isDoubtful: boolean },
  ): OwnTicket {
    const present = this.#own.get(ticket.id)
    if (present !== undefined && present.createRevision === entry.createRevision && present.lease === lease) {
      present.isDoubtful ||= isDoubtful
      return present
    }
    if (present !== undefined) this.#forget(present)
    const own: OwnTicket = {
      ticket,
      name: entry.name,
      createRevision: entry.createRevision,
      modRevision: entry.modRevision,
      fence: this.#base.fence(entry.createRevision),
      lease,
      pinned: false,
      at: Date.now(),
      state: 'waiting',
      until: performance.now() + ticket.ttlMs,
      rememberedUntil: performance.now() + ticket.patienceMs,
      holdUntil: 0,
      heldSince: performance.now(),
      attendAt: Number.POSITIVE_INFINITY,
      isDoubtful,
      ending: undefined,
      questions: 0,
      askedRevision: 0,
    }
    this.#own.set(ticket.id, own)
    this.#leases.used(lease)
    this.#wardens.look(own)
    return own
  }

  /** No longer ours to keep alive. */
  #forget(own: OwnTicket): void {
    if (this.#own.get(own.ticket.id) !== own) return
    this.#own.delete(own.ticket.id)
    own.lease.tickets -= 1
  }

  /** Its key is deleted, which may let others in; no need to wait until the watch says so. */
  #removed(own: OwnTicket): void {
    const room = this.#rooms.get(own.ticket.key)
    if (room === undefined) return
    room.delete(own.ticket.id, own.createRevision)
    this.#settle(room)
    // Nobody of ours may be left in it.
    this.#wardens.look()
  }

  #loseAll(lease: Lease): void {
    for (const own of [...this.#own.values()]) if (own.lease === lease) this.#lose(own)
  }

  /** All data of etcd was lost: revisions begin anew, and what is known of the old ones would be mistaken for them. */
  #reset(): void {
    this.#rooms.forgetAll()
    for (const own of [...this.#own.values()]) this.#lose(own)
  }

  /** Its holder asks, and is told that it is gone. */
  #lose(own: OwnTicket): void {
    this.#forget(own)
    if (own.questions === 0) this.#wake(own.ticket.id)
  }

  #changed(room: Room, entries: readonly Entry[], gone: readonly string[]): void {
    for (const entry of entries) {
      const own = this.#own.get(entry.id)
      if (own === undefined || entry.modRevision <= own.modRevision || own.ticket.key !== room.key) continue
      if (entry.value.state === 'here' && this.#leases.isOurs(entry.lease)) continue
      this.#forget(own)
      // Evicted; where it was taken over by another process, that one goes on with it.
      if (entry.value.state === 'gone') this.#wake(entry.id)
    }
    for (const id of gone) {
      const own = this.#own.get(id)
      if (own === undefined || own.ticket.key !== room.key || own.ending !== undefined) continue
      if (own.createRevision > room.revision) continue
      this.#lose(own)
    }
    this.#settle(room)
  }

  /** Offers the key to those of our waiters whose turn it is. */
  #settle(room: Room): void {
    const { holders, head } = room.divide()
    const now = performance.now()
    for (const entry of head === undefined ? holders : [...holders, head]) {
      const own = this.#own.get(entry.id)
      if (own?.state !== 'waiting' || own.createRevision !== entry.createRevision) continue
      if (own.rememberedUntil <= now) void this.#wardens.end(own)
      else if (entry !== head && room.closings.size === 0) {
        own.state = 'offered'
        own.until = now + own.ticket.acceptMs
        this.#wardens.look(own)
        if (own.questions === 0) this.#wake(entry.id)
      }
    }
  }

  #wake(id: string): void {
    for (const { onWake } of this.#listeners) onWake({ tag: 'ticket', id })
  }

  #ahead({ key, id }: Ticket): number {
    return this.#rooms.get(key)?.ahead(id) ?? 0
  }

  /** The head watches for the next thing that may let it in; the others only have to stay remembered. */
  #askAgain({ ticket }: OwnTicket): number {
    const staying = Math.min(ticket.patienceMs / 3, (ticket.acceptMs * 2) / 3)
    const room = this.#rooms.get(ticket.key)
    if (room === undefined) return Math.ceil(staying)
    const isFirst = room.closings.size > 0 ? this.#ahead(ticket) === 0 : room.divide().head?.id === ticket.id
    return Math.max(1, Math.ceil(isFirst ? Math.min(staying, this.#untilChange(room)) : staying))
  }

  /** When time alone may let somebody in: exactly for tickets of our own, and at the latest for those of others. */
  #untilChange(room: Room): number {
    const now = performance.now()
    let change = Number.POSITIVE_INFINITY
    for (const { id, value } of room.divide().holders) {
      const own = this.#own.get(id)
      if (own?.state === 'waiting') continue
      change = Math.min(change, own === undefined ? ('ttlMs' in value ? value.ttlMs : 1) : own.until - now)
    }
    for (const closing of room.closings.values()) change = Math.min(change, this.#wardens.closesFor(closing))
    return change === Number.POSITIVE_INFINITY ? 1 : Math.max(1, Math.ceil(change))
  }
}

interface Seen {
  readonly pairs: readonly KeyValue[]
  readonly revision: number
  readonly put: Operation
  readonly known: Compare
  readonly lease: Lease
  readonly at: number
}

function isNew(key: string): Compare {
  return { that: 'created', is: 'equal', key, revision: 0 }
}

/** Of a range without keys etcd says that it was created at revision 0. */
function isEmpty(range: { readonly key: string; readonly end: string }): Compare {
  return { that: 'created', is: 'equal', ...range, revision: 0 }
}

function isOlder(range: { readonly key: string; readonly end: string }, revision: number): Compare {
  return { that: 'modified', is: 'less', ...range, revision: revision + 1 }
}

function isAt(key: string, revision: number): Compare {
  return { that: 'modified', is: 'equal', key, revision }
}

function tooBusy(key: string): StoreError {
  const message = `The etcd keys of ${JSON.stringify(key)} changed each time before they could be.`
  return new StoreError('store-unavailable', message, { key })
}

const GONE: Gone = { tag: 'gone', evicted: false }
/** How often a transaction that was overtaken by others is tried again. */
const MOST_TRIES = 60
/** etcd takes 128 per transaction, unless it is told to take more. */
const MOST_COMPARES = 100
