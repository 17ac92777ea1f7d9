import type { Ticket, Wake } from '../../../contract/store.ts'
import type { Cluster } from '../grpc/cluster.ts'
import { isLeaseGone } from '../grpc/failures.ts'
import { type KeyValue, TXN, type TxnReply, type TxnRequest } from '../grpc/messages.ts'
import type { Room } from '../rooms/room.ts'
import { RoomNames } from '../rooms/room-names.ts'
import { Rooms } from '../rooms/rooms.ts'
import { type Entry, entryOf, kept } from '../rooms/ticket-value.ts'
import { FenceBase } from './fence-base.ts'
import { type Lease, Leases } from './leases.ts'
import { Doubts } from './orphans.ts'
import { OwnKeys } from './own-keys.ts'
import type { OwnTicket } from './own-ticket.ts'
import { Wardens } from './ticket-timers.ts'

/** All that one process has in etcd: its leases, its tickets, the rooms that it looks at, and who wants to be woken. */
export class Register {
  readonly cluster: Cluster
  readonly names: RoomNames
  readonly leases: Leases
  readonly rooms: Rooms
  readonly keys: OwnKeys
  readonly wardens: Wardens
  readonly doubts: Doubts
  readonly base: FenceBase
  readonly own: Map<string, OwnTicket> = new Map()
  readonly listeners: Set<{ readonly onWake: (wake: Wake) => void }> = new Set()

  constructor(cluster: Cluster, prefix: string) {
    this.cluster = cluster
    this.names = new RoomNames(prefix)
    this.base = new FenceBase(cluster, this.names, () => this.#reset())
    this.leases = new Leases(cluster, (lease) => this.#loseAll(lease))
    this.rooms = new Rooms({
      cluster,
      names: this.names,
      onChange: (room, { entries, gone }) => this.#changed(room, entries, gone),
    })
    this.keys = new OwnKeys({ cluster, names: this.names, leases: this.leases, own: this.own })
    this.doubts = new Doubts(this)
    this.wardens = new Wardens({
      cluster,
      names: this.names,
      keys: this.keys,
      leases: this.leases,
      rooms: this.rooms,
      own: this.own,
      isHeard: () => this.listeners.size > 0,
      onSettle: (room) => this.settle(room),
      onSeen: (room) => this.#loseMissing(room),
      onEnded: (own, { isDeleted }) => {
        this.forget(own)
        if (own.isDoubtful) this.doubts.add(own.ticket)
        if (isDeleted) this.removed(own)
      },
    })
  }

  transact(request: TxnRequest): Promise<{ reply: TxnReply; isDoubtful: boolean }> {
    return this.cluster.ask(TXN, request)
  }

  /** Nothing was written: the next try takes a new lease. */
  leaseGone(error: unknown, lease: Lease): undefined {
    if (!isLeaseGone(error)) throw error
    this.leases.lost(lease)
    return undefined
  }

  tombsGone(error: unknown): undefined {
    if (!isLeaseGone(error)) throw error
    this.leases.tombsLost()
    return undefined
  }

  entryOf(
    ticket: Ticket,
    { name, at, lease, revision }: { name: string; at: number; lease: number; revision: number },
  ): Entry {
    const { key, id } = ticket
    const value = kept(ticket, { at })
    return { name, key, id, lease, createRevision: revision, modRevision: revision, value }
  }

  entries(pairs: readonly KeyValue[]): Entry[] {
    return pairs.map((pair) => entryOf(pair, this.names))
  }

  track(
    entry: Entry,
    ticket: Ticket,
    { lease, holdLease, isDoubtful }: { lease: Lease; holdLease: Lease; isDoubtful: boolean },
  ): OwnTicket {
    const present = this.own.get(ticket.id)
    if (present !== undefined && present.createRevision === entry.createRevision && present.lease === lease) {
      present.isDoubtful ||= isDoubtful
      return present
    }
    if (present !== undefined) this.forget(present)
    const own: OwnTicket = {
      ticket,
      name: entry.name,
      createRevision: entry.createRevision,
      modRevision: entry.modRevision,
      fence: this.base.fence(entry.createRevision),
      lease,
      holdLease,
      pinned: false,
      at: Date.now(),
      state: 'waiting',
      until: performance.now() + ticket.ttlMs,
      rememberedUntil: performance.now() + ticket.patienceMs,
      heardAt: performance.now(),
      holdUntil: 0,
      heldSince: performance.now(),
      attendAt: Number.POSITIVE_INFINITY,
      isDoubtful,
      ending: undefined,
      questions: 0,
      askedRevision: 0,
    }
    this.own.set(ticket.id, own)
    this.leases.used(lease)
    this.leases.used(holdLease)
    this.wardens.look(own)
    return own
  }

  /** No longer ours to keep alive. */
  forget(own: OwnTicket): void {
    if (this.own.get(own.ticket.id) !== own) return
    this.own.delete(own.ticket.id)
    own.lease.tickets -= 1
    own.holdLease.tickets -= 1
  }

  /** Its key is deleted, which may let others in; no need to wait until the watch says so. */
  removed(own: OwnTicket): void {
    const room = this.rooms.get(own.ticket.key)
    if (room === undefined) return
    room.delete(own.ticket.id, own.createRevision)
    this.settle(room)
    // Nobody of ours may be left in it.
    this.wardens.look()
  }

  /** Evicted by this process: no need to wait until the watch says so, and where nobody looks there is none. */
  evicted({ id, createRevision }: Entry): void {
    const own = this.own.get(id)
    if (own?.createRevision !== createRevision) return
    this.forget(own)
    this.#wake(id)
  }

  /** Its holder asks, and is told that it is gone. */
  #lose(own: OwnTicket): void {
    this.forget(own)
    if (own.isDoubtful) this.doubts.add(own.ticket)
    if (own.questions === 0) this.#wake(own.ticket.id)
  }

  #changed(room: Room, entries: readonly Entry[], gone: readonly string[]): void {
    for (const entry of entries) {
      const own = this.own.get(entry.id)
      if (own === undefined || entry.modRevision <= own.modRevision || own.ticket.key !== room.key) continue
      if (entry.value.state === 'here' && this.leases.isOurs(entry.lease)) {
        this.keys.adopt(own, entry)
        continue
      }
      if (entry.value.state === 'leaving' && this.leases.isOurs(entry.lease)) {
        // Released by another process before its minimum hold was over: we still end it.
        own.modRevision = entry.modRevision
        own.state = 'leaving'
        own.until = own.holdUntil
        this.wardens.look(own)
        continue
      }
      this.forget(own)
      // Cancelled, its caller waits for nothing; taken over by another process, that one goes on with it.
      if (entry.value.state === 'gone' && entry.value.evicted) this.#wake(entry.id)
    }
    for (const id of gone) {
      const own = this.own.get(id)
      if (own === undefined || own.ticket.key !== room.key || own.ending !== undefined) continue
      if (own.createRevision > room.revision) continue
      this.#lose(own)
    }
    this.settle(room)
  }

  /** Offers the key to those of our waiters whose turn it is. */
  settle(room: Room): void {
    const { holders, head } = room.divide()
    const now = performance.now()
    for (const entry of head === undefined ? holders : [...holders, head]) {
      const own = this.own.get(entry.id)
      if (own?.state !== 'waiting' || own.createRevision !== entry.createRevision) continue
      if (own.rememberedUntil <= now) void this.wardens.end(own)
      else if (entry !== head && room.closings.size === 0) {
        own.state = 'offered'
        own.until = now + own.ticket.acceptMs
        this.wardens.look(own)
        if (own.questions === 0) this.#wake(entry.id)
      }
    }
  }

  /** Of a room that is looked at from now on, the watch tells what happens after this. */
  #loseMissing(room: Room): void {
    for (const own of [...this.own.values()]) {
      const isThere = own.ticket.key !== room.key || room.tickets.has(own.ticket.id)
      if (!isThere && own.createRevision <= room.revision) this.#lose(own)
    }
  }

  #loseAll(lease: Lease): void {
    for (const own of [...this.own.values()]) if (own.lease === lease) this.#lose(own)
  }

  /**
   * All data of etcd was lost: revisions begin anew, and what is known of the old ones would be mistaken for them. Our
   * tickets went with their leases, so that is what is asked for. Where only the beginning of fences was deleted they are
   * still there, and still ours to end.
   */
  #reset(): void {
    this.rooms.forgetAll()
    this.leases.check()
    for (const own of this.own.values()) if (own.questions === 0) this.#wake(own.ticket.id)
  }

  #wake(id: string): void {
    for (const { onWake } of this.listeners) onWake({ tag: 'ticket', id })
  }

  ahead({ key, id }: Ticket): number {
    return this.rooms.get(key)?.ahead(id) ?? 0
  }

  /** In time to stay remembered, and for the next expiry: every waiter watches for that, as all in front of it may be dead. */
  askAgain({ ticket }: OwnTicket): number {
    const staying = Math.min(ticket.patienceMs / 3, (ticket.acceptMs * 2) / 3)
    const room = this.rooms.get(ticket.key)
    if (room === undefined) return Math.max(1, Math.ceil(staying))
    // As the law has it: none but the head asks too often, however short the lease in front of it is.
    const isFirst = room.closings.size > 0 ? this.ahead(ticket) === 0 : room.divide().head?.id === ticket.id
    const leastMs = isFirst ? 1 : ticket.acceptMs / 6
    return Math.ceil(Math.min(staying, Math.max(leastMs, this.untilChange(room))))
  }

  /** When time alone may let somebody in: exactly for tickets of our own, and at the latest for those of others. */
  untilChange(room: Room): number {
    const now = performance.now()
    let change = Number.POSITIVE_INFINITY
    for (const { id, value } of room.divide().holders) {
      const own = this.own.get(id)
      if (own?.state === 'waiting') continue
      change = Math.min(change, own === undefined ? ('ttlMs' in value ? value.ttlMs : 1) : own.until - now)
    }
    for (const closing of room.closings.values()) change = Math.min(change, this.wardens.closesFor(closing))
    return change === Number.POSITIVE_INFINITY ? 1 : Math.max(1, Math.ceil(change))
  }
}
