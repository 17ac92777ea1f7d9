import { systemClock } from '../../../base/clock.ts'
import type { Ticket, Wake } from '../../../contract/store.ts'
import type { Cluster } from '../grpc/cluster.ts'
import { isLeaseGone } from '../grpc/failures.ts'
import { type KeyValue, TXN, type TxnReply, type TxnRequest } from '../grpc/messages.ts'
import { KeyNames } from '../rooms/key-names.ts'
import type { EtcdRoom } from '../rooms/room.ts'
import { entryOf, type RoomEntry } from '../rooms/room-entry.ts'
import { WatchedRooms } from '../rooms/watched-rooms.ts'
import { EvictionWatch } from './eviction-watch.ts'
import { FenceBase } from './fence-base.ts'
import { IdleRooms } from './idle-rooms.ts'
import { type EtcdLease, EtcdLeases } from './leases.ts'
import { LockDelays } from './lock-delays.ts'
import { Orphans } from './orphans.ts'
import { OwnKeys } from './own-keys.ts'
import { OwnTicket } from './own-ticket.ts'
import { SerialRequests } from './serial-requests.ts'
import { type Deletion, TicketTimers } from './ticket-timers.ts'

/** All that one process has in etcd: its etcd leases, its tickets, the rooms that it watches, and its listeners. */
export class Session {
  readonly cluster: Cluster
  readonly names: KeyNames
  readonly fences: FenceBase
  readonly leases: EtcdLeases
  readonly rooms: WatchedRooms
  readonly keys: OwnKeys
  readonly delays: LockDelays
  readonly timers: TicketTimers
  readonly orphans: Orphans
  readonly serial: SerialRequests = new SerialRequests()
  readonly #tickets = new Map<string, OwnTicket>()
  readonly #evictions: EvictionWatch
  readonly #idleRooms: IdleRooms
  readonly #listeners = new Set<{ readonly onWake: (wake: Wake) => void }>()

  constructor(cluster: Cluster, prefix: string) {
    const clock = systemClock
    const tickets = this.#tickets
    const names = new KeyNames(prefix)
    const leases = new EtcdLeases(cluster, (lease) => this.#loseAll(lease))
    const rooms = new WatchedRooms({
      cluster,
      names,
      onWatched: () => this.#idleRooms.look(),
      onChange: (room, { entries, removed }) => this.#changed(room, entries, removed),
    })
    this.cluster = cluster
    this.names = names
    this.leases = leases
    this.rooms = rooms
    this.fences = new FenceBase(cluster, names, () => this.#reset())
    this.keys = new OwnKeys({ cluster, names, leases })
    this.orphans = new Orphans({ cluster, names, leases, tickets })
    this.delays = new LockDelays({
      clock,
      cluster,
      names,
      leases,
      rooms,
      onOver: (room) => this.admit(room),
    })
    this.timers = new TicketTimers({
      clock,
      keys: this.keys,
      delays: this.delays,
      tickets,
      roomOf: (key) => rooms.get(key),
      onExpired: (own, deletion) => this.#expired(own, deletion),
      onMinHoldOver: (own) => void this.#endMinHold(own),
    })
    this.#idleRooms = new IdleRooms({ clock, rooms, tickets })
    this.#evictions = new EvictionWatch({
      clock,
      rooms,
      tickets,
      isHeard: () => this.#listeners.size > 0,
      onWatched: (room) => this.#loseMissing(room),
    })
  }

  /** The tickets that this process keeps alive, by their ids. */
  get tickets(): ReadonlyMap<string, OwnTicket> {
    return this.#tickets
  }

  listen(onWake: (wake: Wake) => void): () => void {
    const listener = { onWake }
    this.#listeners.add(listener)
    this.#evictions.lookAtAll()
    return () => {
      this.#listeners.delete(listener)
    }
  }

  transact(request: TxnRequest): Promise<{ readonly reply: TxnReply; readonly isInDoubt: boolean }> {
    return this.cluster.ask(TXN, request)
  }

  /** Reads all keys of a range. */
  async read(range: {
    readonly key: string
    readonly end?: string
  }): Promise<{ readonly pairs: readonly KeyValue[]; readonly revision: number }> {
    const { reply } = await this.transact({ when: [], apply: [{ tag: 'range', ...range }], otherwise: [] })
    return { pairs: reply.ranges[0]?.pairs ?? [], revision: reply.revision }
  }

  entries(pairs: readonly KeyValue[]): RoomEntry[] {
    return pairs.map((pair) => entryOf(pair, this.names))
  }

  /** The lease to which a key was to be bound has ended, so nothing was written: the next try takes a new lease. */
  leaseGone(error: unknown, lease: EtcdLease): undefined {
    if (!isLeaseGone(error)) throw error
    this.leases.lost(lease)
    return undefined
  }

  /** The same for the lease of tombstones. */
  tombstonesGone(error: unknown): undefined {
    if (!isLeaseGone(error)) throw error
    this.leases.tombstonesLost()
    return undefined
  }

  /** Makes a ticket one of this process, which has written or found its key, and keeps it alive from now on. */
  track(ticket: Ticket, written: Written): OwnTicket {
    const { name, at, createRevision, fence, revision, lease, holdLease, isInDoubt } = written
    const present = this.#tickets.get(ticket.id)
    if (present?.createRevision === createRevision && present.binding.lease === lease) {
      if (isInDoubt) present.putInDoubt()
      return present
    }
    if (present !== undefined) this.forget(present)
    const binding = { revision, lease, isForMinHold: false }
    const own = new OwnTicket(
      { ticket, name, at, createRevision, fence, binding, holdLease, isInDoubt },
      performance.now(),
    )
    this.#tickets.set(ticket.id, own)
    this.leases.used(lease)
    this.leases.used(holdLease)
    this.look(own)
    return own
  }

  /** Call this when the state or a time of a ticket has changed. */
  look(own: OwnTicket): void {
    this.timers.look(own)
    this.#evictions.look(own)
  }

  /** Ends the care for a ticket: its key is gone, or another process has it. */
  forget(own: OwnTicket): void {
    if (own.state.tag === 'forgotten') return
    own.forgotten()
    this.#tickets.delete(own.ticket.id)
    own.binding.lease.released()
    own.holdLease.released()
    if (this.rooms.get(own.ticket.key) !== undefined) this.#idleRooms.look()
  }

  /** This process has deleted the key of a ticket. Others may hold now, so they need not wait for the watch to tell it. */
  removed(own: OwnTicket): void {
    const room = this.rooms.get(own.ticket.key)
    if (room === undefined) return
    room.delete(own.ticket.id, own.createRevision)
    this.admit(room)
  }

  /** This process has evicted a ticket. It is told at once, as the room may not be watched. */
  evicted({ id, createRevision }: RoomEntry): void {
    const own = this.#tickets.get(id)
    if (own?.createRevision !== createRevision) return
    this.forget(own)
    this.#wake(id)
  }

  /** A ticket was released before its minimum hold was over. Its key says so since this revision. */
  left(own: OwnTicket, revision: number): void {
    own.bound({ ...own.binding, revision })
    if (own.state.tag === 'held') own.left()
    this.look(own)
  }

  /** The key of a ticket was read. False, and the ticket is forgotten, if it is no longer one of this process. */
  seen(own: OwnTicket, entry: RoomEntry): boolean {
    const isLeaving = entry.value.state === 'leaving' && entry.createRevision === own.createRevision
    // Another process has released it before its minimum hold was over. This process still ends it.
    if (isLeaving && this.leases.isOurs(entry.lease)) this.left(own, entry.modRevision)
    else if (!this.keys.adopt(own, entry)) {
      this.forget(own)
      return false
    }
    return true
  }

  /** Offers the key to the waiters of this process whose turn it is. */
  admit(room: EtcdRoom): void {
    const { holders, head } = room.divide()
    const now = performance.now()
    for (const entry of head === undefined ? holders : [...holders, head]) {
      const own = this.#tickets.get(entry.id)
      if (own?.state.tag !== 'waiting' || own.createRevision !== entry.createRevision) continue
      if (own.state.rememberedUntil <= now) void this.timers.expire(own)
      else if (entry !== head && room.lockDelays.size === 0) {
        own.offered(now, own.ticket.acceptMs)
        this.look(own)
        if (!own.hasOpenRequest) this.#wake(entry.id)
      }
    }
  }

  close(): void {
    this.timers.close()
    this.delays.close()
    this.#evictions.close()
    this.#idleRooms.close()
    this.orphans.close()
    this.leases.close()
    this.rooms.close()
    this.cluster.close()
  }

  /** The key of a ticket is gone. Its caller is woken, asks, and learns that. */
  #lose(own: OwnTicket): void {
    this.forget(own)
    if (own.isInDoubt) this.orphans.add(own.ticket)
    if (!own.hasOpenRequest) this.#wake(own.ticket.id)
  }

  #loseAll(lease: EtcdLease): void {
    for (const own of [...this.#tickets.values()]) if (own.binding.lease === lease) this.#lose(own)
  }

  /** A room is watched from now on. The watch does not tell of keys that were deleted before, so their tickets are lost now. */
  #loseMissing(room: EtcdRoom): void {
    for (const own of [...this.#tickets.values()]) {
      const isThere = own.ticket.key !== room.key || room.tickets.has(own.ticket.id)
      if (!isThere && own.createRevision <= room.revision) this.#lose(own)
    }
  }

  #changed(room: EtcdRoom, entries: readonly RoomEntry[], removed: readonly string[]): void {
    for (const entry of entries) {
      const own = this.#tickets.get(entry.id)
      if (own?.ticket.key !== room.key || entry.modRevision <= own.binding.revision) continue
      const isEvicted = entry.value.state === 'gone' && entry.value.evicted
      // Only an evicted ticket is woken. The caller of a cancelled one waits for nothing, and another process may have taken it
      // over.
      if (!this.seen(own, entry) && isEvicted) this.#wake(entry.id)
    }
    for (const id of removed) {
      const own = this.#tickets.get(id)
      // A key that this process deletes itself is no loss.
      if (own === undefined || own.ticket.key !== room.key || own.state.tag === 'ending') continue
      // A message that comes late may tell two things: the key was deleted, and its ticket has asked again and wrote it anew.
      const isThere = room.tickets.get(id)?.createRevision === own.createRevision
      if (!isThere && own.createRevision <= room.revision) this.#lose(own)
    }
    this.admit(room)
  }

  #expired(own: OwnTicket, deletion: Deletion | undefined): void {
    this.forget(own)
    if (own.isInDoubt) this.orphans.add(own.ticket)
    if (deletion === undefined) return
    const { revision, lockDelay } = deletion
    const room = this.rooms.get(own.ticket.key)
    // Before the next waiter is let in, the room has to know the lock-delay, of which the watch has not told yet.
    if (lockDelay !== undefined && room !== undefined && room.revision < revision)
      room.put(entryOf(lockDelay, this.names))
    this.removed(own)
  }

  /**
   * The minimum hold of a holder is over: from now on it ends with its ttl, or at once if another process has released it
   * meanwhile.
   */
  async #endMinHold(own: OwnTicket): Promise<void> {
    own.minHoldOver()
    try {
      if (await this.keys.bind(own)) return
      const { pairs } = await this.read({ key: own.name })
      const [pair] = pairs
      if (pair?.lease !== own.binding.lease.id || pair.createRevision !== own.createRevision) return
      if (entryOf(pair, this.names).value.state !== 'leaving') return
      this.left(own, pair.modRevision)
      await this.timers.expire(own)
    } catch {
      own.rebindFailed()
    }
  }

  /**
   * Called when the fence base has changed, as after a loss of all data. Then revisions begin anew, so this process forgets the
   * rooms that it knows by the old ones. It also checks its leases, because its tickets are gone with them. If only the fence
   * base was deleted, the tickets still exist, and this process still has to end them.
   */
  #reset(): void {
    this.rooms.forgetAll()
    this.leases.check()
    for (const own of this.#tickets.values()) if (!own.hasOpenRequest) this.#wake(own.ticket.id)
  }

  #wake(id: string): void {
    for (const { onWake } of this.#listeners) onWake({ tag: 'ticket', id })
  }
}

/** The key of a ticket, as it was written or found. */
export interface Written {
  readonly name: string
  /** When its ticket came, by the wall clock. */
  readonly at: number
  readonly createRevision: number
  /** Counted from the fence base that the transaction has compared: this process may know another one by now. */
  readonly fence: bigint
  readonly revision: number
  /** The lease to which the key is bound. */
  readonly lease: EtcdLease
  readonly holdLease: EtcdLease
  /** A request that writes the key got no answer, and may be carried out later. */
  readonly isInDoubt: boolean
}
